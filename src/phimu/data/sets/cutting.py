"""A dataset without a part of its observations: what is known there has to be guessed."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from phimu.data.logged import LoggedDataset, Transitions, safe_name
from phimu.data.sets.arrays import digest
from phimu.errors import InputError

Region = Callable[[np.ndarray], np.ndarray]  # observations [N, D] -> [N] bool: inside
Bound = tuple[int, float, float]  # a component of the observation, its lowest and highest value


def box(bounds: Sequence[Bound]) -> Region:
    """Where every one of these components lies strictly between its ends."""

    def inside(observation: np.ndarray) -> np.ndarray:
        held = [(low < observation[:, i]) & (observation[:, i] < high) for i, low, high in bounds]
        return np.logical_and.reduce(held)

    return inside


def cut_out(data: LoggedDataset, region: Region, name: str) -> LoggedDataset:
    """Without all rows that start or end in the region; episodes are cut where rows are gone."""
    rows = data.transitions
    keep = ~(region(rows.observation) | region(rows.next_observation))
    if not keep.any():
        raise InputError(f"The region holds all {len(data):,} rows of {data.name}: give less.")
    kept = Transitions(*(column[keep] for column in rows))
    # A row is the last of its episode where the one after it was so, or is gone.
    index = np.flatnonzero(keep)
    goes_on = (np.diff(index) == 1) & (np.diff(kept.episode) == 0)
    last = np.append(~goes_on, True)
    number = np.append(0, np.cumsum(last[:-1])).astype(np.int32)
    kept = kept._replace(truncated=last & ~kept.terminated, episode=number)
    note = f"{len(data) - len(index):,} of {len(data):,} rows of {data.name} were cut out"
    notes = (*data.notes, note)
    return replace(
        data,
        transitions=kept,
        name=safe_name(name),
        layout="arrays",
        sha256=digest(kept),
        notes=notes,
    )
