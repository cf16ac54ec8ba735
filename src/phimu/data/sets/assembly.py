"""From the columns of a file to a dataset: actions into [-1, 1], episodes, and which rows must go.

Everything is done in place and in blocks of rows, so that a dataset needs little more memory than
it will have in the end.
"""

from typing import Any

import numpy as np

from phimu.action_range import BEYOND, ActionRange
from phimu.data.logged import LoggedDataset, Transitions, plain_task, safe_name
from phimu.data.sets.columns import Columns, blocks
from phimu.errors import InputError

CLOSE = 1e-4  # s' and the next row's s are the same within this, relative to 1 + |s|


def assemble(
    columns: Columns,
    *,
    layout: str,
    sha256: str,
    task: str | None = None,
    action_low: Any = None,
    action_high: Any = None,
) -> LoggedDataset:
    """The dataset; a task and a range of actions given here count for more than the file's own."""
    if columns.task is not None and not plain_task(columns.task):
        columns.notes.append(
            f"its task, {columns.task!r}, is no plain Gymnasium id and is left out"
        )
        columns.task = None
    low, high = _action_range(
        columns,
        columns.action_low if action_low is None else action_low,
        columns.action_high if action_high is None else action_high,
    )
    _scale_actions(columns, low, high)
    return LoggedDataset(
        _transitions(columns),
        name=safe_name(columns.name),
        layout=layout,
        sha256=sha256,
        task=task or columns.task,
        action_low=low,
        action_high=high,
        notes=tuple(columns.notes),
    )


def _action_range(
    columns: Columns, low: Any, high: Any
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


def _scale_actions(columns: Columns, low: np.ndarray | None, high: np.ndarray | None) -> None:
    """Bring actions from [low, high], [-1, 1] by default, to [-1, 1] in place."""
    size = columns.action.shape[1]
    low = np.full(size, -1.0) if low is None else low
    high = np.full(size, 1.0) if high is None else high
    ends = ActionRange(low, high)
    for rows in blocks(len(columns.action)):
        scaled = ends.scaled(columns.action[rows])
        beyond = np.abs(scaled) > 1 + BEYOND
        if beyond.any():
            row, dim = np.argwhere(beyond)[0]
            raise InputError(
                f"{columns.label('action')} in row {rows.start + row}, column {dim}, is "
                f"{columns.action[rows][row, dim]:g}, outside of its range {low[dim]:g} to "
                f"{high[dim]:g}: give the task's own range as action_low and action_high."
            )
        columns.action[rows] = np.clip(scaled, -1, 1)


def _transitions(columns: Columns) -> Transitions:
    """Make episodes of rows; says in `columns.notes` what was dropped or taken otherwise."""
    terminated = columns.terminated
    ends = _ends(columns)
    if columns.next_observation is None:
        # s' of a row that was cut is in no file: the row goes, and the one before it was cut.
        keep = ~ends | terminated
        cut = np.zeros_like(ends)
        cut[:-1] = ~keep[1:] & ~ends[:-1]
        next_observation = _following(columns.observation, terminated, keep)
        columns.note("rows dropped, since their next observation is not in the file", ~keep)
        columns.note("terminated rows without a next observation, which keep their own", terminated)
        columns.note("episodes of a single row dropped", ~keep & _starts(ends))
    else:
        keep = np.ones_like(ends)
        cut = ends & ~terminated
        next_observation = columns.next_observation
    if not len(next_observation):
        raise InputError(f"{columns.where} has no transition: every row is a cut episode's last.")
    terminated, cut = _compact(terminated, keep), _compact(cut, keep)
    number = np.cumsum(_starts(terminated | cut), dtype=np.int32)
    number -= 1
    return Transitions(
        _compact(columns.observation, keep),
        _compact(columns.action, keep),
        _compact(columns.reward, keep),
        next_observation,
        terminated,
        cut,
        number,
    )


def _ends(columns: Columns) -> np.ndarray:
    """[N] bool: the last row of each episode. Where s' is in the file, it must agree."""
    if columns.truncated is columns.episode is columns.next_observation is None:
        raise InputError(_endless(columns))
    ends = columns.terminated.copy()
    if columns.truncated is not None:
        ends |= columns.truncated
    if columns.episode is not None:
        ends[:-1] |= _changes(columns, ends)
    ends[-1] = True
    if columns.next_observation is None:
        return ends
    jumps = _jumps(columns.observation, columns.next_observation)
    jumps &= ~ends
    if columns.truncated is None and columns.episode is None:
        columns.note("episodes cut where the next observation is not the next row's", jumps)
        ends |= jumps
    elif jumps.any():
        row = int(jumps.argmax())
        raise InputError(
            f"{columns.label('next_observation')} in row {row} is not "
            f"{columns.called('observation')} in row {row + 1}, although the episode goes on: "
            f"the columns do not belong together, or a cut is not marked there."
        )
    return ends


def _endless(columns: Columns) -> str:
    """Resets are no dynamics, so rows of which nothing says where episodes were cut are refused."""
    there = ""
    if len(columns.observation) > 2:
        change = np.diff(columns.observation, axis=0) / (columns.observation.std(axis=0) + 1e-12)
        size = np.where(columns.terminated[:-1], 0.0, np.linalg.norm(change, axis=1))
        row, typical = int(size.argmax()), float(np.median(size))
        if typical > 0:
            times = f"{size[row] / typical:.3g} times as much as at the median"
            there = f" (from row {row} to {row + 1} the observation changes {times})"
    cut, episode, following = map(columns.called, ("truncated", "episode", "next_observation"))
    return (
        f"{columns.where}: nothing says where an episode was cut short{there}: give {cut}, "
        f"{episode} or {following}; zeros as {episode} if it is one that was never cut."
    )


def _changes(columns: Columns, ends: np.ndarray) -> np.ndarray:
    """[N - 1] bool: the next row is of another episode. Flags must not contradict this."""
    episode = columns.episode
    changes = episode[1:] != episode[:-1]  # type: ignore[index]
    inside = ends[:-1] & ~changes
    if inside.any():
        row = int(inside.argmax())
        raise InputError(
            f"{columns.label('episode')} goes on after row {row}, in which it terminated or was "
            f"cut: number episodes anew there."
        )
    first = np.flatnonzero(np.append(True, changes))
    _, again = np.unique(episode[first], return_index=True)  # type: ignore[index]
    if len(again) < len(first):
        row = int(first[np.setdiff1d(np.arange(len(first)), again)[0]])
        raise InputError(
            f"{columns.label('episode')} in row {row} comes back after another episode: "
            f"put the rows of an episode one after the other."
        )
    return changes


def _starts(ends: np.ndarray) -> np.ndarray:
    """[N] bool: the first row of each episode."""
    starts = np.empty_like(ends)
    starts[:1], starts[1:] = True, ends[:-1]
    return starts


def _jumps(observation: np.ndarray, next_observation: np.ndarray) -> np.ndarray:
    """[N] bool: s' is not the observation of the row below."""
    jumps = np.zeros(len(observation), bool)
    for rows in blocks(len(observation) - 1):
        below = observation[rows.start + 1 : rows.stop + 1]
        distance = np.abs(next_observation[rows] - below)
        jumps[rows] = (distance > CLOSE * (1 + np.abs(below))).any(axis=1)
    return jumps


def _following(observation: np.ndarray, terminated: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """s' of the rows that stay: the row below. A terminated row has none, and needs none where
    values are learned, as nothing is bootstrapped from it; its own observation is the nearest."""
    kept = np.flatnonzero(keep)
    return observation[np.where(terminated[kept], kept, kept + 1)]


def _compact(column: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The rows that stay, moved to the front of the same memory."""
    at = 0
    for rows in blocks(len(keep)):
        kept = column[rows][keep[rows]]
        column[at : at + len(kept)] = kept
        at += len(kept)
    return column[:at]
