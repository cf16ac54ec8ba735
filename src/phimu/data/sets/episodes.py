"""From columns of rows to transitions: where episodes end, what s' is, which rows must go.

Everything is done in place and in blocks of rows, so that a set needs little more memory than it
will have in the end.
"""

import numpy as np

from phimu.data.logged import Transitions
from phimu.data.sets.columns import Columns, blocks
from phimu.errors import InputError

CLOSE = 1e-4  # s' and the next row's s are the same within this, relative to 1 + |s|


def transitions(columns: Columns) -> Transitions:
    """Make episodes of rows; says in `columns.notes` what was dropped or taken otherwise."""
    terminated = columns.terminated
    ends = _ends(columns)
    if columns.next_observation is None:
        # s' of a row that was cut is in no file: the row goes, and the one before it was cut.
        keep = ~ends | terminated
        cut = np.zeros_like(ends)
        cut[:-1] = ~keep[1:] & ~ends[:-1]
        next_observation = _following(columns.observation, terminated, keep)
        _note(columns, "rows dropped, since their next observation is not in the file", ~keep)
        _note(
            columns, "terminated rows without a next observation, which keep their own", terminated
        )
        _note(columns, "episodes of a single row dropped", ~keep & _starts(ends))
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
        _note(columns, "episodes cut where the next observation is not the next row's", jumps)
        ends |= jumps
    elif jumps.any():
        row = int(jumps.argmax())
        raise InputError(
            f"{columns.label('next_observation')} in row {row} is not "
            f"{columns.name('observation')} in row {row + 1}, although the episode goes on: "
            f"the columns do not belong together, or a cut is not marked there."
        )
    return ends


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
    result = np.empty((np.count_nonzero(keep), observation.shape[1]), np.float32)
    at = 0
    for rows in blocks(len(keep)):
        kept = np.flatnonzero(keep[rows]) + rows.start
        result[at : at + len(kept)] = observation[np.where(terminated[kept], kept, kept + 1)]
        at += len(kept)
    return result


def _compact(column: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The rows that stay, moved to the front of the same memory."""
    at = 0
    for rows in blocks(len(keep)):
        kept = column[rows][keep[rows]]
        column[at : at + len(kept)] = kept
        at += len(kept)
    return column[:at]


def _note(columns: Columns, what: str, rows: np.ndarray) -> None:
    if count := np.count_nonzero(rows):
        columns.notes.append(f"{what}: {count:,}")
