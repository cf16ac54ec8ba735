"""One environment of a run and its open episode, which is on record as a seed and actions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from phimu.environments.task import Task
from phimu.training.streams import RESET, stream


class Seat:
    """An environment, and what is on record of its open episode.

    After an interrupt or an error, and when an episode is over, the environment is astray: not
    where the record is. `reopen` brings it there.
    """

    def __init__(self, task: Task, episode: int):
        self.task = task
        self.episode = episode  # its number in the run, which its seed comes from
        self.actions: list[np.ndarray] = []
        self.observation = np.zeros(task.spec.observation_dim, np.float32)
        self.total = 0.0  # the return so far
        self.simulated = 0  # simulator steps so far
        self.astray = True
        self.ended: tuple[int, int] | None = None  # the episode before, and its steps

    @property
    def last_episode(self) -> tuple[int, int] | None:
        """The number of the last episode that has a step, and how many it has."""
        return (self.episode, len(self.actions)) if self.actions else self.ended

    def reopen(self, seed: int, last: np.ndarray, say: Callable[[str], Any]) -> None:
        """Begin the episode, and take its actions again, after which `last` was seen."""
        self.observation, self.total = self.task.reset(reset_seed(seed, self.episode)), 0.0
        for action in self.actions:
            self.observation, reward, *_ = self.task.step(action)
            self.total += reward
        self.simulated = self.task.simulator_steps
        self.astray = False
        if self.actions and not np.array_equal(self.observation, last):
            say(
                f"{self.task.name} did not repeat its open episode from the same seed and "
                "actions, so this run is not a bit-exact continuation."
            )

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """What `Task.step` gives; it is for the caller to `record` it."""
        self.astray = True
        return self.task.step(action)

    def record(
        self, action: np.ndarray, observation: np.ndarray, reward: float, ended: bool
    ) -> None:
        self.actions.append(action)
        self.observation = observation
        self.total += reward
        self.simulated = self.task.simulator_steps
        self.astray = ended

    def begin(self, episode: int) -> None:
        """Another episode, once this one has ended; the environment follows in `reopen`."""
        self.ended = self.last_episode
        self.episode, self.actions, self.total, self.simulated = episode, [], 0.0, 0


def reset_seed(seed: int, episode: int) -> int:
    """What an episode of a run begins with."""
    return int(stream(seed, RESET, episode).integers(2**31))
