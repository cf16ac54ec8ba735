"""The replay buffer: a ring of transitions, and the warm-up's random trajectories beside it."""

import numpy as np

from phimu.data.rows import split, width
from phimu.errors import at_least
from phimu.types import Batch, Sample, Spec


class Replay:
    """A Store in NumPy. The warm-up's next observations stay when the ring wraps.

    Section 4.4 draws half of the negatives from random trajectories; those are the warm-up's.
    Several environments take turns: transition n is of environment n % envs.
    """

    def __init__(
        self, spec: Spec, capacity: int, warm_up: int, batch_size: int = 256, envs: int = 1
    ):
        at_least(1, buffer_size=capacity)
        self.capacity, self.spec, self.batch_size, self.envs = capacity, spec, batch_size, envs
        # A transition lies in one piece: a sample then takes a fraction of the time that it takes
        # from an array per column, since what it reads is hardly ever in the processor's cache.
        self._table = np.zeros((capacity, width(spec)), np.float32)
        self.rows = split(self._table, spec)  # views of it
        self.random_next = np.zeros((warm_up, spec.observation_dim), np.float32)
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(
        self,
        observation: np.ndarray,
        action: np.ndarray,
        reward: float,
        next_observation: np.ndarray,
        terminated: bool,
        truncated: bool,
    ) -> None:
        at = self.added % self.capacity
        transition = (observation, action, reward, next_observation, terminated, truncated)
        for column, value in zip(self.rows, transition, strict=True):
            column[at] = value
        if self.added < len(self.random_next):
            self.random_next[self.added] = next_observation
        self.added += 1

    @property
    def rewards(self) -> np.ndarray:
        """Of all transitions: [N]."""
        return self.rows.reward[: len(self)]

    def sample(self, rng: np.random.Generator) -> Sample:
        index = rng.integers(0, len(self), self.batch_size)
        return Sample(self._table.take(index, axis=0), index, {})

    def sample_next(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return self.rows.next_observation[rng.integers(0, len(self), size)]

    def sample_random_next(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Of the buffer where there was no warm-up."""
        warm = min(self.added, len(self.random_next))
        if warm == 0:
            return self.sample_next(size, rng)
        return self.random_next[rng.integers(0, warm, size)]

    def geometric(self, chance: float, rng: np.random.Generator) -> int:
        return int(rng.geometric(1 - chance))

    def later(self, index: np.ndarray, steps: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Where the episode does not go on that long, its last row in the buffer stands in."""
        at, left = np.array(index), np.broadcast_to(steps, index.shape).copy()
        for _ in range(int(left.max(initial=0))):
            going_on = (left > 0) & self._goes_on(at)
            at, left = np.where(going_on, self._after(at), at), left - going_on
        return self.rows.next_observation[at], left == 0

    def ahead(
        self, index: np.ndarray, steps: int, discount: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at, left = np.array(index), np.ones(len(index), np.float32)
        going_on, reward = np.ones(len(index), bool), self.rows.reward[at]
        for _ in range(steps - 1):
            going_on &= self._goes_on(at)
            at = np.where(going_on, self._after(at), at)
            left = np.where(going_on, left * np.float32(discount), left)
            reward = reward + np.where(going_on, left * self.rows.reward[at], 0)
        return reward, self.rows.next_observation[at], left * (1 - self.rows.terminated[at])

    def _after(self, at: np.ndarray) -> np.ndarray:
        return (at + self.envs) % self.capacity

    def _goes_on(self, at: np.ndarray) -> np.ndarray:
        """Whether the next row of the same environment is held, and of the same episode."""
        ended = (self.rows.terminated[at] > 0) | (self.rows.truncated[at] > 0)
        return ~ended & ((self.added - 1 - at) % self.capacity >= self.envs)

    def latest(self, size: int) -> Batch:
        size = min(size, len(self)) // self.envs * self.envs  # as many of each environment
        index = np.arange(self.added - size, self.added) % self.capacity
        return split(self._table[index], self.spec)

    def latest_of(self, env: int, size: int) -> Batch:
        """The last `size` transitions of one environment, in order; it must have as many."""
        index = np.arange(self.added - self.envs * size + env, self.added, self.envs)
        return split(self._table[index % self.capacity], self.spec)

    def cut(self, env: int) -> None:
        """The episode of the last transition of an environment does not go on."""
        self.rows.truncated[(self.added - self.envs + env) % self.capacity] = 1.0

    def pairs(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        index = np.arange(len(self))
        if len(self) > size:
            index = rng.choice(len(self), size, replace=False)
        return self.rows.observation[index], self.rows.action[index]

    def spans(self) -> dict[str, range]:
        """Which transitions are held, by their number in the run: the ring's, the warm-up's."""
        warm = min(self.added, len(self.random_next))
        return {"rows": range(self.added - len(self), self.added), "random": range(warm)}

    def columns(self, name: str, span: range) -> dict[str, np.ndarray]:
        """A part of one of the `spans`, in the order of its transitions."""
        if name == "random":
            return {"next_observation": self.random_next[span.start : span.stop]}
        index = np.arange(span.start, span.stop) % self.capacity
        return {column: array[index] for column, array in self.rows._asdict().items()}

    def put(self, name: str, span: range, columns: dict[str, np.ndarray]) -> None:
        """What `columns` gave, back into its place; `added` is the caller's to set."""
        if name == "random":
            place = self.random_next[span.start : span.stop]
            place[:] = columns["next_observation"][: len(place)]
            return
        index = np.arange(span.start, span.stop)[-self.capacity :] % self.capacity
        for column, array in self.rows._asdict().items():
            array[index] = columns[column][-self.capacity :]
