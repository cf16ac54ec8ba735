"""A transition as one row of numbers, which is how both kinds of store keep it."""

import itertools

import numpy as np

from phimu.types import Array, Batch, Spec


def width(spec: Spec) -> int:
    return 2 * spec.observation_dim + spec.action_dim + 3


def split(rows: Array, spec: Spec) -> Batch:
    """Transitions [..., width], each in one piece, as the columns of a batch."""
    state, action = spec.observation_dim, spec.action_dim
    ends = np.cumsum([0, state, action, 1, state, 1, 1])
    parts = [rows[..., start:end] for start, end in itertools.pairwise(ends)]
    reward, terminated, truncated = (parts[number][..., 0] for number in (2, 4, 5))
    return Batch(parts[0], parts[1], reward, parts[3], terminated, truncated)


def join(batch: Batch) -> np.ndarray:
    """What `split` has split: [B, width]."""
    columns = (np.asarray(column) for column in batch)
    return np.concatenate([x if x.ndim > 1 else x[:, None] for x in columns], axis=1)
