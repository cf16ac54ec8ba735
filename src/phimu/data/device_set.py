"""A set as arrays of the device that learns from it: batches are drawn inside the compiled step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phimu.data.logged import Transitions
from phimu.data.replay import split
from phimu.types import Batch, Spec

# What keys are folded with: far from the numbers of their splits, so that an update may draw its
# batch with the very key that it splits for everything else.
BATCH, OTHERS = 2**30, 2**30 + 1


class Drawn(eqx.Module):
    """A batch, the rows it came from, and those rows of the further columns."""

    batch: Batch
    index: jax.Array  # [B]
    columns: dict[str, jax.Array]  # [B, ...] each


class DeviceSet(eqx.Module):
    """N transitions. Agents may add columns, such as phi(s, a) once phi is frozen."""

    rows: jax.Array  # [N, width], a transition in one piece
    following: jax.Array  # [N] int32: how many rows of the same episode come after this one
    columns: dict[str, jax.Array]  # [N, ...] each
    spec: Spec = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def __init__(self, transitions: Transitions, spec: Spec, batch_size: int):
        width = 2 * spec.observation_dim + spec.action_dim + 2
        table = np.empty((len(transitions.reward), width), np.float32)
        for place, column in zip(split(table, spec), Batch(*transitions[:5]), strict=True):
            place[:] = column
        self.rows = jnp.asarray(table)
        self.following = jnp.asarray(_following(transitions.episode))
        self.columns = {}
        self.spec, self.batch_size = spec, batch_size

    def __len__(self) -> int:
        return self.rows.shape[0]

    @property
    def observations(self) -> np.ndarray:
        """Of every row [N, observation_dim], on the host; where the device is the CPU, no copy."""
        return split(np.asarray(self.rows), self.spec).observation

    def rows_at(self, start: int | jax.Array, size: int) -> Batch:
        """`size` transitions from row `start` on."""
        return split(jax.lax.dynamic_slice_in_dim(self.rows, start, size), self.spec)

    def sample(self, key: jax.Array) -> Drawn:
        """`batch_size` transitions, uniformly and with replacement."""
        index = self._indices(jax.random.fold_in(key, BATCH), self.batch_size)
        columns = {name: column[index] for name, column in self.columns.items()}
        return Drawn(split(self.rows[index], self.spec), index, columns)

    def sample_next(self, key: jax.Array, size: int) -> jax.Array:
        """Next observations from the whole set: [size, observation_dim]."""
        index = self._indices(jax.random.fold_in(key, OTHERS), size)
        return split(self.rows[index], self.spec).next_observation

    def _indices(self, key: jax.Array, size: int) -> jax.Array:
        return jax.random.randint(key, (size,), 0, len(self))

    def with_columns(self, **columns: jax.Array) -> "DeviceSet":
        return eqx.tree_at(lambda data: data.columns, self, self.columns | columns)


def _following(episode: np.ndarray) -> np.ndarray:
    """Of each row, how many of its episode come after it."""
    ends = np.append(np.flatnonzero(np.diff(episode)), len(episode) - 1)
    last = ends[np.searchsorted(ends, np.arange(len(episode)))]
    return (last - np.arange(len(episode))).astype(np.int32)
