"""Steps a second of our tasks against the bare bodies below them, in turns.

`python benchmarks/task_speed.py` takes a minute. Of several rounds the median ratio counts.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from command import run
from phimu.environments.task import Task, open_task
from phimu.speed.updates import seconds

# Our task -> Gymnasium's environment with the same body.
BODIES = {
    "mbbl/HalfCheetah-v0": "HalfCheetah-v5",
    "mbbl/Reacher-v0": "Reacher-v5",
    "mbbl/HumanoidET-v0": "Humanoid-v5",
    "mbbl/Pendulum-v0": "Pendulum-v1",
    "mbbl/IPendulum-v0": "InvertedPendulum-v5",
    "mbbl/AntET-v0": "Ant-v5",
    "mbbl/HopperET-v0": "Hopper-v5",
    "mbbl/SHumanoidET-v0": "Humanoid-v5",
    "mbbl/WalkerET-v0": "Walker2d-v5",
}


class Speed(NamedTuple):
    """Steps a second of a task and of the bare body below it."""

    task: str
    steps_per_second: float
    bare: str
    bare_steps_per_second: float
    ratio: float


def environment_speeds(rounds: int, steps: int) -> list[Speed]:
    """Each MBBL task but CartPole, whose kin takes no continuous action, against its bare body."""
    return [_speed(task, bare, rounds, steps) for task, bare in BODIES.items()]


def _speed(task: str, bare: str, rounds: int, steps: int) -> Speed:
    """Both in turns, so that they see the same neighbours; the median of their ratios counts."""
    both = open_task(task), open_task(bare, disable_env_checker=True)
    times = np.empty((rounds, 2))
    for turn in range(rounds):
        walks = [_walk(each, steps, seed=turn) for each in both]
        for place in (0, 1) if turn % 2 else (1, 0):  # whoever begins may find the machine busier
            times[turn, place] = seconds(walks[place])
    own, theirs = (steps / np.median(times, axis=0)).tolist()
    return Speed(task, own, bare, theirs, float(np.median(times[:, 1] / times[:, 0])))


def _walk(task: Task, steps: int, seed: int) -> Callable[[], None]:
    """`steps` random steps of the environment itself, with the actions drawn beforehand."""
    env = task.env
    numbers = np.random.default_rng(seed).uniform(-1, 1, (steps, task.spec.action_dim))
    actions = [task.to_env_action(row) for row in numbers]
    env.reset(seed=seed)

    def walk() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return walk


if __name__ == "__main__":
    sys.exit(run(__doc__, "environments", environment_speeds))
