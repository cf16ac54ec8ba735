"""How much environments side by side gain: the same run with 1, 4 and 16 of them on Hopper-v5."""

from functools import partial
from typing import Any, NamedTuple

import jax

from phimu.environments.vector import open_tasks
from phimu.settings import override
from phimu.speed import updates
from phimu.training.online import OnlineRun

TASK = "Hopper-v5"
AGENTS = ("sac 256-256", "ctrl-ucb-m 256-256-256")  # of updates.CASES
COUNTS = (1, 4, 16)
NEVER = 10**9  # a train_freq without any updates


class VectorSpeed(NamedTuple):
    """Environment steps a second, and how much of that one environment has."""

    agent: str
    envs: int
    collecting: float  # acting by the policy, and nothing learned
    collecting_ratio: float  # to one environment, in the same round; the median
    training: float  # with an update per step
    training_ratio: float


def vector_speeds(rounds: int, steps: int) -> list[VectorSpeed]:
    """The quickest of rounds that take turns; each has `steps` of each kind and number."""
    found = []
    for agent in AGENTS:
        collecting, training = (_timed(agent, freq, rounds, steps) for freq in (NEVER, 1))
        for count in COUNTS:
            found.append(VectorSpeed(agent, count, *collecting[count], *training[count]))
    return found


def _timed(agent: str, train_freq: int, rounds: int, steps: int) -> dict[int, tuple[float, float]]:
    """By number of environments: steps a second, and how many times that of one."""
    runs = {count: _run(agent, count, train_freq) for count in COUNTS}
    for run in runs.values():
        _advance(run, 10 * max(COUNTS))  # compiles
    times: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(rounds):
        for count, run in runs.items():
            times[count].append(updates.seconds(partial(_advance, run, steps)))
    for run in runs.values():
        run.close()
    ratios = {
        count: sorted(one / own for one, own in zip(times[1], each, strict=True))
        for count, each in times.items()
    }
    made = {count: _whole(steps, count) for count in COUNTS}
    return {
        count: (made[count] / min(each), ratios[count][rounds // 2] * made[count] / made[1])
        for count, each in times.items()
    }


def _run(agent: str, count: int, train_freq: int) -> OnlineRun:
    changes: dict[str, Any] = {
        **{"learning_starts": 256, "buffer_size": 100_000, "evaluate_every": 0},
        **{"batch_size": 256, "train_freq": train_freq, "envs": count},
    }
    chosen = override(updates.settings(*updates.CASES[agent]), changes)
    return OnlineRun(chosen.settings, open_tasks(TASK, count), chosen.schedule, seed=0)


def _whole(steps: int, count: int) -> int:
    """As many as a number of environments can make together."""
    return -(-steps // count) * count


def _advance(run: OnlineRun, steps: int) -> None:
    until = run.step + _whole(steps, run.stride)
    until = max(until, run.collection.learning_starts + run.stride)  # where the policy acts
    while run.step < until:
        run.advance()
    jax.block_until_ready(run.metrics)
