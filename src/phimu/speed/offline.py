"""Learning from logged data: updates of the policy a second, on a dataset of Hopper's sizes.

`python -m phimu.speed.offline JOB.json` prints the numbers of one job as JSON, so that
each has a process with one thread.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phimu.agents import preset, protocol
from phimu.agents.schedule import Preset
from phimu.data.device_set import DeviceSet
from phimu.data.logged import Transitions
from phimu.errors import InputError
from phimu.settings import override
from phimu.speed import updates
from phimu.speed.loop import run_child
from phimu.speed.updates import Product, UpdateSpeed, in_a_round, update_products
from phimu.training.learner import Learner
from phimu.training.memory import keep_freed_memory
from phimu.training.threads import environment
from phimu.types import Spec

HOPPER = Spec(observation_dim=11, action_dim=3)
ROWS = 200_000
EPISODE = 1_000  # rows of one
BATCH = 256
WARM = 100  # updates before the first round
PLANNERS = {"ctrl-lcb 256-256-256": "small", "ctrl-lcb 512-512-512": "paper-d4rl"}
COLUMNS = {"columns computed once": True, "phi computed for each batch": False}


class Comparison(NamedTuple):
    """Updates a second of two, in turns; the quickest round of each, and the median ratio."""

    name: str
    updates_per_second: float
    other: str
    others_updates_per_second: float
    ratio: float
    processor_ratio: float  # by the processor time of both, which neighbours hardly change


def random_set(spec: Spec, rows: int) -> Transitions:
    """Episodes of noise: speed does not depend on what they say."""
    rng = np.random.default_rng(0)
    number = np.arange(rows)
    walks = rng.standard_normal((rows // EPISODE, EPISODE + 1, spec.observation_dim), np.float32)
    return Transitions(
        walks[:, :-1].reshape(rows, -1),
        np.tanh(rng.standard_normal((rows, spec.action_dim), np.float32)),
        rng.standard_normal(rows, np.float32),
        walks[:, 1:].reshape(rows, -1),
        np.zeros(rows, bool),
        number % EPISODE == EPISODE - 1,
        (number // EPISODE).astype(np.int32),
    )


class Timed:
    """An agent in its policy phase, on a dataset of noise."""

    def __init__(self, chosen: Preset, rows: Transitions):
        keep_freed_memory()
        spec = Spec(rows.observation.shape[1], rows.action.shape[1])
        self.learner = Learner(chosen.settings, spec, chosen.schedule, 0)
        self.learner.normalise_by(rows.observation)
        self.phase = protocol.phases(chosen.settings)[-1].name
        data = DeviceSet(rows, spec, chosen.schedule.batch_size)
        self.data: Any = self.learner.begin(self.phase, data, 0)  # phi and penalty of every row
        self.seconds(WARM)

    def seconds(self, count: int) -> list[float]:
        """Of `count` updates in one compiled call: by the clock, and of the processor."""
        begin = time.perf_counter(), time.process_time()
        if self.learner.learn_from(self.phase, self.data, 0, count) != count:
            raise InputError(f"An update was not finite: {self.learner.metrics}")
        return [time.perf_counter() - begin[0], time.process_time() - begin[1]]

    def products(self) -> Counter[Product]:
        """The matrix products of an update."""
        drawn = protocol.draw(self.learner.agent, self.phase, self.data, updates.KEY)
        return update_products(self.learner, self.phase, drawn)


def planner_speed(name: str, rounds: int, work: float = updates.WORK) -> UpdateSpeed:
    """One of PLANNERS on HalfCheetah's sizes, as the other updates."""
    timed = Timed(preset("ctrl-lcb", PLANNERS[name], logged=True), random_set(updates.SPEC, 10_000))
    products = timed.products()
    count = in_a_round(products, work)
    seconds = min(timed.seconds(count)[0] for _ in range(rounds)) / count
    return updates.against_peak(f"{name}, policy", seconds, products, rounds)


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
    command = [sys.executable, "-m", "phimu.speed.offline"]
    return run_child(command, job, environment(1))["seconds"]


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
    try:
        print(json.dumps(measure(json.loads(Path(sys.argv[1]).read_text()))))
    except InputError as error:
        sys.exit(str(error))
