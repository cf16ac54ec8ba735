"""A dataset as arrays of the device that learns from it: batches are drawn in the compiled step."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phimu.data.logged import Transitions
from phimu.data.rows import split, width
from phimu.errors import InputError
from phimu.types import Batch, Sample, Spec

# What keys are folded with: far from the numbers of their splits, so that an update may draw its
# batch with the very key that it splits for everything else.
BATCH, OTHERS, STEPS = 2**30, 2**30 + 1, 2**30 + 2


class DeviceSet(eqx.Module):
    """N transitions, as a Store. Agents may add columns, such as phi(s, a) once phi is frozen."""

    rows: jax.Array  # [N, width], a transition in one piece
    following: jax.Array  # [N] int32: how many rows of the same episode come after this one
    columns: dict[str, jax.Array]  # [N, ...] each
    spec: Spec = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    envs: ClassVar[int] = 1  # its rows are episode by episode

    def __init__(self, transitions: Transitions, spec: Spec, batch_size: int):
        table = np.empty((len(transitions.reward), width(spec)), np.float32)
        for place, column in zip(split(table, spec), Batch(*transitions[:6]), strict=True):
            place[:] = column
        self.rows = jnp.asarray(table)
        self.following = jnp.asarray(_following(transitions.episode))
        self.columns = {}
        self.spec, self.batch_size = spec, batch_size

    def __len__(self) -> int:
        return self.rows.shape[0]

    @property
    def rewards(self) -> jax.Array:
        """Of every row [N]."""
        return split(self.rows, self.spec).reward

    @property
    def next_observations(self) -> np.ndarray:
        """Of every row [N, observation_dim], on the host; where the device is the CPU, no copy."""
        return split(np.asarray(self.rows), self.spec).next_observation

    def rows_at(self, start: int | jax.Array, size: int) -> Batch:
        """`size` transitions from row `start` on."""
        return split(jax.lax.dynamic_slice_in_dim(self.rows, start, size), self.spec)

    def sample(self, key: jax.Array) -> Sample:
        index = self._indices(jax.random.fold_in(key, BATCH), self.batch_size)
        columns = {name: column[index] for name, column in self.columns.items()}
        return Sample(self.rows[index], index, columns)

    def sample_next(self, size: int, key: jax.Array) -> jax.Array:
        index = self._indices(jax.random.fold_in(key, OTHERS), size)
        return split(self.rows[index], self.spec).next_observation

    def sample_random_next(self, size: int, key: jax.Array) -> jax.Array:
        raise InputError(
            "random_share is above 0, but logged data has no random trajectories: give 0."
        )

    def geometric(self, chance: float, key: jax.Array) -> jax.Array:
        return jax.random.geometric(jax.random.fold_in(key, STEPS), 1 - chance, dtype=jnp.int32)

    def later(self, index: jax.Array, steps: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where the episode does not go on that long, its last row stands in."""
        left = self.following[index]
        row = index + jnp.minimum(steps, left)
        return split(self.rows[row], self.spec).next_observation, left >= steps

    def ahead(
        self, index: jax.Array, steps: int, discount: float
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        count = jnp.minimum(steps, 1 + self.following[index])  # [B], rows that are summed
        reward = jnp.zeros(len(index))
        for step in range(steps):
            row = jnp.where(step < count, index + step, index)
            own = split(self.rows[row], self.spec).reward
            reward += jnp.where(step < count, discount**step * own, 0)
        last = split(self.rows[index + count - 1], self.spec)
        left = jnp.power(jnp.float32(discount), count - 1)
        return reward, last.next_observation, left * (1 - last.terminated)

    def next_actions(self, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The action of the row after, and 1.0 where that is of the same episode, else 0.0."""
        left = self.following[index]
        action = split(self.rows[index + jnp.minimum(1, left)], self.spec).action
        return action, (left > 0).astype(jnp.float32)

    def latest(self, size: int) -> Batch:
        return split(self.rows[max(0, len(self) - size) :], self.spec)

    def pairs(self, size: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = self.rows
        if len(self) > size:
            rows = rows[jax.random.choice(key, len(self), (size,), replace=False)]
        batch = split(rows, self.spec)
        return batch.observation, batch.action

    def _indices(self, key: jax.Array, size: int) -> jax.Array:
        return jax.random.randint(key, (size,), 0, len(self))

    def with_columns(self, **columns: jax.Array) -> "DeviceSet":
        return eqx.tree_at(lambda data: data.columns, self, self.columns | columns)


def _following(episode: np.ndarray) -> np.ndarray:
    """Of each row, how many of its episode come after it."""
    ends = np.append(np.flatnonzero(np.diff(episode)), len(episode) - 1)
    last = ends[np.searchsorted(ends, np.arange(len(episode)))]
    return (last - np.arange(len(episode))).astype(np.int32)
