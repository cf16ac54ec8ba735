"""Actions as networks see them, in [-1, 1] or one-hot, and as a task or a dataset has them."""

from typing import Any

import numpy as np

from phimu.errors import InputError

BEYOND = 1e-4  # how far rounding may take an action out of its range, relative to half of it


def one_hot(index: Any, count: int) -> np.ndarray:
    """Integers [...] below `count` as vectors [..., count]."""
    return np.eye(count, dtype=np.float32)[index]


class ActionRange:
    """What -1 and 1 mean in each component of an action."""

    kind = np.float32  # of numbers that hold own actions

    def __init__(self, low: Any, high: Any) -> None:
        self.low = np.asarray(low, np.float64)  # [action_dim]
        self.high = np.asarray(high, np.float64)
        self._middle = self.low / 2 + self.high / 2
        self._half_width = self.high / 2 - self.low / 2

    @property
    def size(self) -> int:
        """Numbers of an action as networks see it."""
        return len(self.low)

    def __str__(self) -> str:
        return f"{self.low.tolist()} to {self.high.tolist()}"

    def fits(self, other: Any) -> bool:
        """Whether an action of the one is the same action of the other."""
        return isinstance(other, ActionRange) and all(
            mine.shape == its.shape and np.allclose(mine, its)
            for mine, its in ((self.low, other.low), (self.high, other.high))
        )

    @property
    def log_volume(self) -> float:
        """Of a unit of volume in [-1, 1]^action_dim: what a log density loses on its way out."""
        return float(np.log(self._half_width).sum())

    def outward(self, action: np.ndarray) -> np.ndarray:
        """Actions [..., action_dim] in [-1, 1] as the task or dataset has them."""
        scaled = self._middle + self._half_width * action
        # Two ufuncs take half the time of np.clip.
        return np.minimum(np.maximum(scaled, self.low), self.high)

    def scaled(self, action: np.ndarray) -> np.ndarray:
        """Own actions brought to [-1, 1], or beyond it where they are out of range."""
        return (action - self._middle) / self._half_width

    def inward(self, action: np.ndarray) -> np.ndarray:
        """Own actions [B, action_dim] in [-1, 1], if they are in range."""
        scaled = self.scaled(np.asarray(action, np.float64))
        outside = ~(np.abs(scaled) <= 1 + BEYOND)  # a NaN is nowhere
        if outside.any():
            row, column = np.argwhere(outside)[0]
            raise InputError(
                f"action in row {row}, column {column}, is {action[row, column]:g}, outside of its "
                f"range {self.low[column]:g} to {self.high[column]:g}: give actions as `predict` "
                "does, in the range of the environment or data."
            )
        return np.clip(scaled, -1.0, 1.0)


class Choices:
    """An action is one of `count` integers from `start` on; networks see one-hot vectors."""

    kind = np.float64  # which holds integers that float32 would round
    log_volume = 0.0  # a probability is one anywhere

    def __init__(self, count: int, start: int = 0) -> None:
        self.size, self.start = count, start

    def __str__(self) -> str:
        return f"the integers {self.start} to {self.start + self.size - 1}"

    def fits(self, other: Any) -> bool:
        """Whether an action of the one is the same action of the other."""
        return isinstance(other, Choices) and (self.size, self.start) == (other.size, other.start)

    def outward(self, action: np.ndarray) -> np.ndarray:
        """One-hot vectors [..., size], or weights of which the largest counts, as integers."""
        return self.start + np.argmax(action, axis=-1)

    def inward(self, action: np.ndarray) -> np.ndarray:
        """Integers [B], if they are such, as one-hot vectors [B, size]."""
        index = np.asarray(action, np.float64) - self.start
        outside = ~((index >= 0) & (index < self.size) & (index == np.floor(index)))
        if outside.any():
            row = int(outside.argmax())
            raise InputError(
                f"action in row {row} is {action[row]:g}, which is none of {self}: give actions "
                "as `predict` does, as the environment has them."
            )
        return one_hot(index.astype(np.int64), self.size)


Actions = ActionRange | Choices
