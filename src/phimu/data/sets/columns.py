"""Columns of a file as they were read, before episodes are made of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phimu.errors import InputError

BLOCK = 4_096  # rows
# An array is at most this many times as large as its file when it is unpacked, or this large.
EXPANSION, SMALL = 100, 64 << 20


class Asked(NamedTuple):
    """What the caller says of a set, which counts for more than what the file says."""

    sha256: str | None = None
    task: str | None = None
    action_low: Any = None
    action_high: Any = None


@dataclass
class Columns:
    """What a file holds, checked column by column. `transitions` overwrites the arrays."""

    where: str  # the file, for messages
    observation: np.ndarray  # [N, observation_dim] float32
    action: np.ndarray  # [N, action_dim] float32
    reward: np.ndarray  # [N] float32
    terminated: np.ndarray  # [N] bool
    truncated: np.ndarray | None = None  # [N] bool
    next_observation: np.ndarray | None = None  # [N, observation_dim] float32
    episode: np.ndarray | None = None  # [N], a number per episode
    names: dict[str, str] = field(default_factory=dict)  # what the file calls a column
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows, width = self.observation.shape
        if rows == 0 or width == 0 or self.action.shape[1] == 0:
            empty = "action" if rows and width else "observation"
            raise InputError(f"{self.label(empty)} is empty: a set needs at least one transition.")
        for name in ("action", "reward", "terminated", "truncated", "next_observation", "episode"):
            column = getattr(self, name)
            if column is not None and len(column) != rows:
                raise InputError(
                    f"{self.label(name)} has {len(column)} rows, but {self.name('observation')} "
                    f"has {rows}: give one per transition."
                )
        following = self.next_observation
        if following is not None and following.shape[1] != width:
            raise InputError(
                f"{self.label('next_observation')} has {following.shape[1]} columns, but "
                f"{self.name('observation')} has {width}: give as many."
            )

    def name(self, column: str) -> str:
        return self.names.get(column, column)

    def label(self, column: str) -> str:
        return f"{self.where}: {self.name(column)}"


def check_finite(column: np.ndarray, label: str) -> None:
    """Refuse NaN and infinity, also what overflowed when it became float32."""
    for rows in blocks(len(column)):
        bad = ~np.isfinite(column[rows])
        if bad.any():
            row = np.argwhere(bad)[0]
            value = column[rows][tuple(row)]
            raise InputError(
                f"{label} in row {rows.start + row[0]} is {value}: drop or mend that transition."
            )


def as_flags(values: np.ndarray, label: str) -> np.ndarray:
    """[N] bool of numbers that are each 0 or 1."""
    flags = values.astype(bool)
    wrong = values != flags
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"{label} in row {row} is {values[row]:g}: give 0 or 1.")
    return flags


def check_shape(shape: tuple[int, ...], ndim: int, label: str) -> None:
    """[N, size] or [N], for which [N, 1] is taken as well."""
    if len(shape) != ndim and (ndim, shape[1:]) != (1, (1,)):
        raise InputError(f"{label} has shape {shape}: give {'[N, size]' if ndim == 2 else '[N]'}.")


def blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, BLOCK):
        yield slice(start, min(start + BLOCK, rows))


def most_bytes(path: Path) -> int:
    """More than any array of this file can have: beyond it, a shape is damaged or a trap."""
    return max(SMALL, EXPANSION * path.stat().st_size)
