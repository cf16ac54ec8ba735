"""From checked columns to a set: actions into [-1, 1], episodes, and what is known of it."""

from typing import Any

import numpy as np

from phimu.data.logged import LoggedDataset, plain_task, safe_name
from phimu.data.sets.columns import Asked, Columns, blocks
from phimu.data.sets.episodes import transitions
from phimu.errors import InputError

BEYOND = 1e-4  # how far rounding may take an action out of its range, relative to half of it


def assemble(
    columns: Columns,
    asked: Asked,
    *,
    layout: str,
    name: str,
    sha256: str,
    task: str | None = None,
    action_low: Any = None,
    action_high: Any = None,
) -> LoggedDataset:
    """The set, with the file's own task and range of actions where the caller asked for none."""
    if task is not None and not plain_task(task):
        columns.notes.append(f"its task, {task!r}, is no plain Gymnasium id and is left out")
        task = None
    low, high = action_range(
        action_low if asked.action_low is None else asked.action_low,
        action_high if asked.action_high is None else asked.action_high,
        columns,
    )
    scale_actions(columns, low, high)
    return LoggedDataset(
        transitions(columns),
        name=safe_name(name),
        layout=layout,
        sha256=sha256,
        task=asked.task or task,
        action_low=low,
        action_high=high,
        notes=tuple(columns.notes),
    )


def action_range(
    low: Any, high: Any, columns: Columns
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Both ends [action_dim] in float64, or neither."""
    where, size = columns.where, columns.action.shape[1]
    if low is None and high is None:
        return None, None
    ends = []
    for name, value in (("action_low", low), ("action_high", high)):
        if value is None:
            raise InputError(f"{where}: {name} is missing: give both ends of the action range.")
        end = np.asarray(value)
        if end.dtype.kind not in "iuf" or end.ndim > 1 or end.size not in (1, size):
            raise InputError(f"{where}: {name} is {value!r}: give a number, or {size} of them.")
        ends.append(np.broadcast_to(end.astype(np.float64).reshape(-1), (size,)).copy())
    with np.errstate(invalid="ignore"):
        if not (np.isfinite(ends).all() and (ends[0] < ends[1]).all()):
            raise InputError(
                f"{where}: the actions lie between {ends[0].tolist()} and {ends[1].tolist()}: "
                f"give finite numbers, action_low below action_high."
            )
    return ends[0], ends[1]


def scale_actions(columns: Columns, low: np.ndarray | None, high: np.ndarray | None) -> None:
    """Bring actions from [low, high], [-1, 1] by default, to [-1, 1] in place."""
    size = columns.action.shape[1]
    low = np.full(size, -1.0) if low is None else low
    high = np.full(size, 1.0) if high is None else high
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    for rows in blocks(len(columns.action)):
        scaled = (columns.action[rows] - middle) / half
        beyond = np.abs(scaled) > 1 + BEYOND
        if beyond.any():
            row, dim = np.argwhere(beyond)[0]
            raise InputError(
                f"{columns.label('action')} in row {rows.start + row}, column {dim}, is "
                f"{columns.action[rows][row, dim]:g}, outside of its range {low[dim]:g} to "
                f"{high[dim]:g}: give the task's own range as action_low and action_high."
            )
        columns.action[rows] = np.clip(scaled, -1, 1)
