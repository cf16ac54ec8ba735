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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from phimu.agents import protocol
from phimu.agents.schedule import Preset
from phimu.data.device_set import DeviceSet
from phimu.data.rows import width
from phimu.errors import InputError
from phimu.runs.config import RunConfig
from phimu.runs.files import cache_directory, write_atomically
from phimu.speed.offline import random_set
from phimu.speed.updates import SPEC, example, matrix_products, random_replay
from phimu.studies.plan import Run
from phimu.training.learner import Learner

ROW_BYTES = 4 * width(SPEC)  # of the replay buffer
STATE_COPIES = 2.0  # of the agent's state in memory while it is updated; 1.0 to 1.7 were measured
ROWS = 2_000  # of a set on which the updates of an agent are counted
KEY = np.zeros(2, np.uint32)
LAST = "bench.json"  # in the cache directory


class Bench(NamedTuple):
    """What `phimu bench` found."""

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
    memory_mb: float | None  # None on logged data: it depends on the set


def record(found: dict[str, Any]) -> None:
    """Keep what `phimu bench --json` writes for the estimates of later studies."""
    file = cache_directory() / LAST
    with contextlib.suppress(OSError):  # without it there are no estimates, nothing else
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(found).encode())


def read_bench(file: Path | None) -> Bench | None:
    """What is in a file of `phimu bench --json`, or else the last that was found here."""
    if file is None:
        file = cache_directory() / LAST
        if not file.exists():
            return None
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
    return loop + replay + STATE_COPIES * _state_mb(run.config.settings)


def _updates(config: RunConfig, steps: int) -> Iterable[tuple[int, float]]:
    """How many, and of how many GFLOP each; a pair per phase."""
    collection = config.schedule.collection
    phases = protocol.phases(config.settings)
    if collection is None:
        before = [phase.updates for phase in phases[:-1]]
        counts = [*before, steps - sum(before)]
    else:
        rounds = max(0, steps - collection.learning_starts) // collection.train_freq
        counts = [rounds * (phase.updates or collection.gradient_steps) for phase in phases]
    return zip(counts, _work(Preset(config.settings, config.schedule)), strict=True)


@functools.cache
def _work(chosen: Preset) -> tuple[float, ...]:
    """GFLOP of matrix products in an update, a number per phase."""
    learner = Learner(chosen.settings, SPEC, chosen.schedule, 0)
    found = []
    for phase in protocol.phases(chosen.settings):
        program = learner.program._replace(phase=phase.name)
        if chosen.schedule.collection is None:
            data: Any = DeviceSet(random_set(SPEC, ROWS), SPEC, chosen.schedule.batch_size)
            data = learner.begin(phase.name, data, 0)
            drawn = protocol.draw(chosen.settings, phase.name, data, KEY)
        else:
            drawn = example(chosen, random_replay(chosen, ROWS))
        products = matrix_products(program.update, learner.state, drawn, KEY)
        found.append(sum(product.work * count for product, count in products.items()) / 1e9)
    return tuple(found)


@functools.cache
def _state_mb(agent: Any) -> float:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(_state(agent))) / 1e6


def _state(agent: Any) -> Any:
    """Its shapes."""
    return eqx.filter_eval_shape(partial(agent.init, SPEC), KEY)
