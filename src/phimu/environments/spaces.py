"""Gymnasium's spaces as agents see them: observations flat, actions in [-1, 1] or one-hot."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from phimu.action_range import ActionRange, Choices, one_hot
from phimu.errors import InputError

_NUMBERS = spaces.Box, spaces.MultiBinary  # seen as they are; all others become one-hot vectors


def actions_of(space: Space, name: str) -> ActionRange | Choices:
    """What the actions of an environment are; InputError where no agent could choose them."""
    needs = "phimu needs a Discrete or a bounded Box action space of floats"
    if isinstance(space, spaces.Discrete):
        return Choices(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        raise InputError(
            f"{needs}, but {name} has {space}; wrap it to take one integer for each combination."
        )
    if not isinstance(space, spaces.Box):
        raise InputError(f"{needs}, but {name} has {space}; choose a task with one of these.")
    if not np.issubdtype(space.dtype, np.floating) or not space.shape or 0 in space.shape:
        raise InputError(f"{needs}, but {name} has {space}; wrap it to take a vector of floats.")
    if not space.is_bounded("both"):
        raise InputError(
            f"{needs}, but {name} has {space}; give its action_space finite low and high, or wrap "
            f"it: gymnasium.wrappers.TransformAction(env, lambda action: action, "
            f"gymnasium.spaces.Box(-1.0, 1.0, {space.shape})), with the range that it is made for."
        )
    return ActionRange(space.low.reshape(-1), space.high.reshape(-1))


class Flattening:
    """Observations of a space as flat vectors, in the order of Gymnasium's FlattenObservation."""

    def __init__(self, space: Space, name: str) -> None:
        if not _usable(space):
            raise InputError(
                f"phimu needs observations of Box, Discrete, MultiDiscrete or MultiBinary, or a "
                f"Dict or Tuple of these, but {name} has {space}; wrap it to show one of them."
            )
        self.space = space
        self.size = spaces.flatdim(space)
        if self.size == 0:
            raise InputError(
                f"phimu needs an observation space with something to see, but {name} has {space}."
            )
        self.plain = isinstance(space, spaces.Box)
        # Of an observation where it is given as an array: a Box's own, or flat.
        self.shape = tuple(space.shape or ()) if self.plain else (self.size,)

    def flat(self, observation: Any) -> np.ndarray:
        """One observation [size], or a batch of them [B, size], where they have such a form.

        That of a Dict is a dict of batches, as vector environments have it. KeyError, TypeError or
        ValueError where one is not of the space.
        """
        return _flat(self.space, observation)

    def own(self, flat: np.ndarray) -> Any:
        """One flat observation as the environment gave it."""
        if self.plain:
            return flat.reshape(self.shape)
        return spaces.unflatten(self.space, flat)

    def as_array(self, observation: Any) -> Any:
        """What a user gives as an array: what is one, or has no other form, is left as it is."""
        if self.plain or not self._has_own_form(observation):
            return observation
        try:
            return self.flat(observation)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"observation is not of {self.space} ({error}): give one, a batch as a vector "
                f"environment has it, or flat ones of {self.size} numbers."
            ) from error

    def _has_own_form(self, observation: Any) -> bool:
        """And not that of one-hot vectors, which hold floats."""
        if isinstance(self.space, spaces.Dict):
            return isinstance(observation, Mapping)
        if isinstance(self.space, spaces.Tuple):
            return isinstance(observation, tuple)
        return np.asarray(observation).dtype.kind in "biu"


def _usable(space: Space) -> bool:
    if isinstance(space, spaces.Dict):
        return all(map(_usable, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return all(map(_usable, space.spaces))
    return isinstance(space, (*_NUMBERS, spaces.Discrete, spaces.MultiDiscrete))


def _flat(space: Space, value: Any) -> np.ndarray:
    """[..., size]: as gymnasium.spaces.flatten, of batches too."""
    if isinstance(space, spaces.Dict):
        parts = [_flat(each, value[name]) for name, each in space.spaces.items()]
        return np.concatenate(parts, axis=-1)
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, value, strict=True)
        return np.concatenate([_flat(each, part) for each, part in pairs], axis=-1)
    shape = tuple(space.shape or ())
    array = np.asarray(value)
    before = array.shape[: array.ndim - len(shape)]
    if (*before, *shape) != array.shape or len(before) > 1:
        raise ValueError(f"shape {array.shape} instead of {shape}")
    if isinstance(space, spaces.Discrete):
        return _one_hot(array, int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        columns = array.reshape(*before, math.prod(shape))
        ends = zip(np.ravel(space.start), np.ravel(space.nvec), strict=True)
        parts = [_one_hot(columns[..., i], int(first), int(n)) for i, (first, n) in enumerate(ends)]
        return np.concatenate(parts, axis=-1)
    with np.errstate(over="ignore"):  # what overflows is not finite, which is reported
        return array.astype(np.float32).reshape(*before, math.prod(shape))


def _one_hot(value: np.ndarray, start: int, count: int) -> np.ndarray:
    index = value.astype(np.int64) - start
    if ((index < 0) | (index >= count) | (index + start != value)).any():
        raise ValueError(f"{value} where {start} to {start + count - 1} is meant")
    return one_hot(index, count)
