"""What runs will take: their matrix products, counted, at the speed that `phimu bench` measured.

All is counted on HalfCheetah's sizes, as bench does. Simulation and evaluation are left out: beside
an update per step they take little.
"""

import contextlib
import functools
import heapq
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from phimu.agents import protocol
from phimu.agents.schedule import Preset, Schedule
from phimu.data.device_set import DeviceSet
from phimu.data.rows import width
from phimu.errors import InputError
from phimu.runs.config import RunConfig
from phimu.runs.files import cache_directory, write_atomically
from phimu.speed.offline import random_set
from phimu.speed.updates import KEY, SPEC, example, random_replay, total_work, update_products
from phimu.studies.plan import Run
from phimu.training.learner import Learner

ROW_BYTES = 4 * width(SPEC)  # of the replay buffer
STATE_COPIES = 2.0  # of the agent's state in memory while it is updated; 1.0 to 1.7 were measured
ROWS = 2_000  # of a dataset on which the updates of an agent are counted
LAST = "bench.json"  # in the cache directory


class Bench(NamedTuple):
    speeds: list[tuple[float, float]]  # of updates: GFLOP, and GFLOP a second
    memory_mb: dict[str, float]  # of training loops, by agent
    start_seconds: float  # until the first update
    threads: int | None

    def seconds(self, gflop: float) -> float:
        """At the speed of the update that is nearest in size."""
        nearest = min(self.speeds, key=lambda pair: abs(math.log(pair[0] / gflop)))
        return gflop / nearest[1]


class Estimate(NamedTuple):
    """Of what a run still needs."""

    seconds: float
    memory_mb: float | None  # None on logged data: it depends on the dataset


def record(found: dict[str, Any]) -> None:
    """Keep what `phimu bench --json` writes for the estimates of later studies."""
    file = cache_directory() / LAST
    with contextlib.suppress(OSError):  # without it there are no estimates, nothing else
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(found).encode())


def read_bench(file: Path | None) -> Bench | None:
    """What is in a file of `phimu bench --json`, or else the last that was found here."""
    last = cache_directory() / LAST
    if file is None and not last.exists():
        return None
    file = file or last
    try:
        found = json.loads(file.read_bytes())
        loops = found["loop"]
        return Bench(
            [(row["gflop"], row["gflops"]) for row in found["updates"]],
            {row["name"].split()[0]: row["memory_mb"] for row in loops},
            max(row["first_update_seconds"] for row in loops),
            found.get("threads"),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} is not what a whole `phimu bench --json` writes ({error!r}): name another."
        ) from error


def estimate(run: Run, bench: Bench) -> Estimate:
    """Time in proportion to the steps that are left."""
    if run.next_command() is None:
        return Estimate(0.0, 0.0)
    step, _ = run.saved()
    whole = sum(count * bench.seconds(gflop) for count, gflop in _updates(run.config, run.steps))
    left = max(0.0, 1 - step / run.steps)
    return Estimate(bench.start_seconds + whole * left, _memory_mb(run, bench))


def shared_out(seconds: Sequence[float], workers: int) -> float:
    """When the last is done if so many work, each taking the next as it gets free."""
    busy_until = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(busy_until, busy_until[0] + each)
    return max(busy_until)


def _memory_mb(run: Run, bench: Bench) -> float | None:
    collection = run.config.schedule.collection
    if collection is None:
        return None
    loop = bench.memory_mb.get(run.config.agent, max(bench.memory_mb.values()))
    replay = min(run.steps, collection.buffer_size) * ROW_BYTES / 1e6
    return loop + replay + STATE_COPIES * _work(run.config.settings, run.config.schedule).state_mb


def _updates(config: RunConfig, steps: int) -> Iterable[tuple[int, float]]:
    """How many, and of how many GFLOP each; a pair per phase."""
    collection = config.schedule.collection
    phases = protocol.phases(config.settings)
    if collection is None:
        before = [phase.updates for phase in phases[:-1]]
        counts = [*before, steps - sum(before)]
    else:
        between = protocol.round_steps(config.settings, config.schedule)
        rounds = max(0, steps - collection.learning_starts) // between
        counts = [rounds * (phase.updates or collection.gradient_steps) for phase in phases]
    return zip(counts, _work(config.settings, config.schedule).gflop, strict=True)


class _Work(NamedTuple):
    gflop: list[float]  # of matrix products in an update, a number per phase
    state_mb: float


@functools.cache
def _work(agent: Any, schedule: Schedule) -> _Work:
    learner = Learner(agent, SPEC, schedule, 0)
    gflop = []
    for phase in protocol.phases(agent):
        if schedule.collection is None:
            data: Any = DeviceSet(random_set(SPEC, ROWS), SPEC, schedule.batch_size)
            drawn = protocol.draw(agent, phase.name, learner.begin(phase.name, data, 0), KEY)
        else:
            chosen = Preset(agent, schedule)
            drawn = example(chosen, random_replay(chosen, ROWS), phase.name)
        gflop.append(total_work(update_products(learner, phase.name, drawn)) / 1e9)
    return _Work(gflop, sum(x.nbytes for x in jax.tree.leaves(learner.state)) / 1e6)
