"""What a file of logged data holds, column by column: names, types and numbers are checked."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phimu.errors import InputError

BLOCK = 4_096  # rows at a time, so that little more memory is needed than the columns have
REQUIRED = ("observation", "action", "reward", "terminated")
VECTORS = ("observation", "action", "next_observation")
FLAGS = ("terminated", "truncated")


@dataclass
class Columns:
    """What a file holds, checked column by column. `assemble` overwrites the arrays."""

    where: str  # the file, for messages
    observation: np.ndarray  # [N, observation_dim] float32
    action: np.ndarray  # [N, action_dim] float32
    reward: np.ndarray  # [N] float32
    terminated: np.ndarray  # [N] bool
    truncated: np.ndarray | None = None  # [N] bool
    next_observation: np.ndarray | None = None  # [N, observation_dim] float32
    episode: np.ndarray | None = None  # [N], a number per episode
    action_low: Any = None  # the range of the actions, as it was found
    action_high: Any = None
    name: str = ""
    task: str | None = None
    names: dict[str, str] = field(default_factory=dict)  # what the file calls a column
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows, width = self.observation.shape
        if rows == 0 or width == 0 or self.action.shape[1] == 0:
            empty = "action" if rows and width else "observation"
            raise InputError(f"{self.label(empty)} is empty: give at least one transition.")
        for name in ("action", "reward", "terminated", "truncated", "next_observation", "episode"):
            column = getattr(self, name)
            if column is not None and len(column) != rows:
                raise InputError(
                    f"{self.label(name)} has {len(column)} rows, but {self.called('observation')} "
                    f"has {rows}: give one per transition."
                )
        following = self.next_observation
        if following is not None and following.shape[1] != width:
            raise InputError(
                f"{self.label('next_observation')} has {following.shape[1]} columns, but "
                f"{self.called('observation')} has {width}: give as many."
            )

    def called(self, column: str) -> str:
        return self.names.get(column, column)

    def label(self, column: str) -> str:
        return f"{self.where}: {self.called(column)}"

    def note(self, what: str, rows: np.ndarray) -> None:
        """Say of how many rows something is true, unless of none."""
        if count := np.count_nonzero(rows):
            self.notes.append(f"{what}: {count:,}")


def check_type(key: str, dtype: np.dtype, shape: tuple[int, ...], label: str) -> None:
    """Numbers, of shape [N, size] or [N], for which [N, 1] is taken as well."""
    if dtype.kind not in ("biuf" if key in (*FLAGS, "episode") else "iuf"):
        raise InputError(f"{label} has type {dtype}: give numbers.")
    ndim = 2 if key in VECTORS else 1
    if key == "action" and len(shape) == 1 and dtype.kind in "iu":
        raise InputError(
            f"{label} holds an integer a row, so actions are discrete: agents learn those in an "
            "environment, and from logged data continuous ones, [N, size]."
        )
    if len(shape) != ndim and (ndim, shape[1:]) != (1, (1,)):
        raise InputError(f"{label} has shape {shape}: give {'[N, size]' if ndim == 2 else '[N]'}.")


def converted(key: str, values: np.ndarray, label: str) -> np.ndarray:
    """A column whose type was checked, as float32 or bool, if its numbers can be that."""
    values = values if key in VECTORS else values.reshape(-1)
    if key == "episode":
        return values
    if key in FLAGS:
        flags = values.astype(bool)
        if (wrong := values != flags).any():
            row = int(wrong.argmax())
            raise InputError(f"{label} in row {row} is {values[row]:g}: give 0 or 1.")
        return flags
    with np.errstate(over="ignore"):  # what overflows is refused below
        column = np.ascontiguousarray(values, np.float32)
    for rows in blocks(len(column)):
        if (bad := ~np.isfinite(column[rows])).any():
            first = np.argwhere(bad)[0]
            raise InputError(
                f"{label} in row {rows.start + first[0]} is {column[rows][tuple(first)]}: "
                f"drop or mend that transition."
            )
    return column


def blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, BLOCK):
        yield slice(start, min(start + BLOCK, rows))
