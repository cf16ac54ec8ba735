"""What agents with a model of the dynamics draw: transitions to fit, and where episodes begin."""

from typing import Any, NamedTuple

import numpy as np

from phimu.data.rows import join
from phimu.types import Drawn, Store


def rows_to_fit(store: Store, rng: Any) -> Drawn:
    """All transitions; if those are too many, the newest and as many at random.

    Rows are repeated until there are always as many, so that all fits are one program; those that
    are repeated do not count, says the column `real`.
    """
    size = store.batch_size
    rows = join(store.latest(min(len(store), size if len(store) <= size else size // 2)))
    if len(store) > size:
        rows = np.concatenate([rows, store.sample(rng).rows[: size - len(rows)]])
    real = (np.arange(size) < len(rows)).astype(np.float32)
    return Drawn(rows[np.arange(size) % len(rows)], columns={"real": real})


class Beginnings(NamedTuple):
    """Of the episodes that a store holds."""

    rows: np.ndarray  # [E, width]: their first transitions
    time_limit: int | None  # steps of the longest that was cut; None where none was


def beginnings(store: Store) -> Beginnings:
    """What follows an end begins an episode; of a store without any end, so does its oldest row."""
    batch, envs = store.latest(len(store)), store.envs
    truncated = np.asarray(batch.truncated).reshape(-1, envs) > 0
    ended = truncated | (np.asarray(batch.terminated).reshape(-1, envs) > 0)
    first = np.zeros(ended.shape, bool)
    first[1:] = ended[:-1]
    number = np.arange(len(first))[:, None]
    begun = np.maximum.accumulate(np.where(first, number, 0), axis=0)
    lengths = (number - begun + 1)[truncated]
    if not first.any():
        first[0] = True
    return Beginnings(join(batch)[first.reshape(-1)], int(lengths.max()) if lengths.size else None)
