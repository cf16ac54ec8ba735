"""Updates on logged data: phi of all rows computed once against phi computed for each batch.

`python benchmarks/columns.py` times CTRL-LCB's planner, in turns and on one thread; a round takes
about two minutes.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from command import run
from phimu.agents import preset
from phimu.agents.schedule import Preset
from phimu.errors import InputError
from phimu.settings import override
from phimu.speed.loop import run_child
from phimu.speed.offline import PLANNERS, Timed, random_set
from phimu.training.threads import environment
from phimu.types import Spec

HOPPER = Spec(observation_dim=11, action_dim=3)
ROWS = 200_000
COLUMNS = {"columns computed once": True, "phi computed for each batch": False}


class Comparison(NamedTuple):
    """Updates a second of two, in turns; the quickest round of each, and the median ratio."""

    name: str
    updates_per_second: float
    other: str
    others_updates_per_second: float
    ratio: float
    processor_ratio: float  # by the processor time of both, which neighbours hardly change


def offline_speeds(rounds: int, steps: int, rows: int = ROWS) -> list[Comparison]:
    """A frozen phi kept in columns against none."""
    pairs = [[f"{planner}, {how}" for how in COLUMNS] for planner in PLANNERS]
    return [compare(names, steps, run_ours(names, rounds, steps, rows)) for names in pairs]


def compare(names: Sequence[str], steps: int, seconds: Any) -> Comparison:
    """Two names, and `Timed.seconds` of `steps` updates of each: [rounds, 2, 2]."""
    times = np.array(seconds)
    best, others = steps / times[:, :, 0].min(axis=0)
    ratio, of_processor = np.median(times[:, 1] / times[:, 0], axis=0)
    numbers = (float(each) for each in (others, ratio, of_processor))
    return Comparison(names[0], float(best), names[1], *numbers)


def run_ours(names: Sequence[str], rounds: int, steps: int, rows: int) -> list[Any]:
    """`Timed.seconds` of `steps` updates: [rounds, names, 2]. In a new process, on one thread."""
    job = {"task": names[0], "names": names, "rounds": rounds, "steps": steps, "rows": rows}
    return run_child([sys.executable, __file__], job, environment(1))["seconds"]


def _chosen(name: str) -> Preset:
    planner, how = name.split(", ")
    settings = preset("ctrl-lcb", PLANNERS[planner], logged=True)
    return override(settings, {"precompute": COLUMNS[how]})


def measure(job: dict[str, Any]) -> dict[str, Any]:
    rows = random_set(HOPPER, job["rows"])
    timed = [Timed(_chosen(name), rows) for name in job["names"]]
    seconds = []
    for turn in range(job["rounds"]):
        order = range(len(timed))[:: -1 if turn % 2 else 1]
        times = {place: timed[place].seconds(job["steps"]) for place in order}
        seconds.append([times[place] for place in range(len(timed))])
    return {"seconds": seconds}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(run(__doc__, "offline", offline_speeds))
    try:
        print(json.dumps(measure(json.loads(Path(sys.argv[1]).read_text()))))
    except InputError as error:
        sys.exit(str(error))
