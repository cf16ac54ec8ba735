"""Logged data to a policy: random transitions of Pendulum as arrays, CTRL-LCB, an evaluation.

python examples/logged_data.py [UPDATES]
"""

import sys
from typing import Any

import gymnasium
import numpy as np

from phimu import Offline, from_arrays


def random_log(rows: int) -> dict[str, np.ndarray]:
    """What a controller of yours might have written down."""
    env = gymnasium.make("Pendulum-v1")
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    log: dict[str, list[Any]] = {}
    for _ in range(rows):
        action = env.action_space.sample()
        following, reward, terminated, truncated, _ = env.step(action)
        names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
        values = (observation, action, reward, following, terminated, truncated)
        for name, value in zip(names, values, strict=True):
            log.setdefault(name, []).append(value)
        observation = env.reset()[0] if truncated else following
    return {name: np.array(column) for name, column in log.items()}


def main(steps: int = 5_000, rows: int = 10_000, **settings: Any) -> dict[str, float]:
    data = from_arrays(**random_log(rows), action_low=-2, action_high=2)
    model = Offline(data, agent="ctrl-lcb", **settings).learn(steps, progress_bar=True)
    far = model.penalty([[1.0, 0.0, 0.0], [9.0, 9.0, 90.0]], [[0.0], [0.0]])
    print(f"penalty of a pair like the data's {far[0]:.3f}, of one that cannot be {far[1]:.3f}")
    found = model.evaluate(episodes=5, env="Pendulum-v1")
    print(f"mean return {found['return']:.1f}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
