"""Evaluation: whole episodes in mode action, on an environment of its own."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from phimu.environments.task import Task

Policy = Callable[[np.ndarray], np.ndarray]  # observation -> action in [-1, 1]


class Evaluation(NamedTuple):
    """What a policy did, an entry per episode."""

    returns: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray  # ended by the environment, not by the time limit

    def summary(self) -> dict[str, float]:
        return {
            "return": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "length": float(self.lengths.mean()),
            "terminated": float(self.terminated.mean()),
            "episodes": len(self.returns),
        }


def evaluate(policy: Policy, task: Task, episodes: int, seed: int) -> Evaluation:
    """Run `episodes` episodes; one seed, the same episodes' starts."""
    rows = [run_episode(policy, task, s) for s in episode_seeds(seed, episodes)]
    return Evaluation(*(np.array(column) for column in zip(*rows, strict=True)))


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """The seed of each episode's reset; more episodes begin with the same ones."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(episodes)]


def run_episode(policy: Policy, task: Task, seed: int) -> tuple[float, int, bool]:
    """(return, length, terminated) of one episode."""
    observation = task.reset(seed)
    total, length = 0.0, 0
    while True:
        observation, reward, terminated, truncated = task.step(policy(observation))
        total, length = total + reward, length + 1
        if terminated or truncated:
            return total, length, terminated
