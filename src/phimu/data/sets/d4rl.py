"""D4RL's HDF5 layout: the rows of all episodes in one table, with the quirks of v0, v1 and v2."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.sets.columns import REQUIRED, Columns
from phimu.data.sets.hdf5 import D4RL, Hdf5Columns, open_hdf5, text_attribute
from phimu.data.sets.scores import HORIZON, Body, body_of_set, body_of_task
from phimu.errors import InputError


def read_d4rl(path: Path) -> Columns:
    """Read a file of D4RL's, or one of the same layout with root attributes of our own.

    The attribute `task` is the Gymnasium id, `name` the dataset's, `action_low` and `action_high`
    the range of the file's actions, [-1, 1] without them.
    """
    with open_hdf5(path) as file:
        reader = Hdf5Columns(path, file, D4RL)
        if "observation" not in reader and "episode_0" in file:
            raise InputError(f"{path} is a Minari file: name the directory above its data/.")
        present = [key for key in D4RL if key in REQUIRED or key in reader]
        read: dict[str, Any] = {key: reader.column(key) for key in present}
        columns = Columns(
            str(path),
            **read,
            action_low=_numbers(file, "action_low", -1.0),
            action_high=_numbers(file, "action_high", 1.0),
            name=text_attribute(file, "name") or path.stem,
            task=text_attribute(file, "task"),
            names=D4RL,
        )
    body = body_of_set(columns.name) if columns.task is None else body_of_task(columns.task)
    if body is not None:
        _mend(columns, body)
        if columns.task is None:
            _check_widths(columns, body)
            columns.task = body.task
    return columns


def _numbers(file: Any, attribute: str, default: float) -> Any:
    if attribute in file.attrs and len(file.attrs.get_id(attribute).shape) == 1:
        return file.attrs[attribute]
    return default


def _mend(columns: Columns, body: Body) -> None:
    """Flags that are known to be wrong or absent in some of D4RL's files."""
    if columns.truncated is None and columns.next_observation is None:
        columns.truncated = _every(HORIZON, columns.terminated)
        columns.notes.append(f"there are no timeouts: episodes are cut after {HORIZON:,} steps")
    if not body.terminates and columns.terminated.any():
        count = np.count_nonzero(columns.terminated)
        columns.notes.append(
            f"terminal flags of {body.task}, which never terminates, taken as cuts: {count:,}"
        )
        cuts, columns.terminated = columns.terminated, np.zeros_like(columns.terminated)
        columns.truncated = cuts if columns.truncated is None else columns.truncated | cuts


def _every(horizon: int, terminated: np.ndarray) -> np.ndarray:
    """[N] bool: the row in which an episode reaches its horizon."""
    reached = np.zeros_like(terminated)
    ends = np.flatnonzero(terminated) + 1
    for start, end in itertools.pairwise([0, *ends.tolist(), len(terminated)]):
        reached[start + horizon - 1 : end : horizon] = True
    return reached


def _check_widths(columns: Columns, body: Body) -> None:
    """Columns that changed places have other widths."""
    for name, size in (("observation", body.observation_dim), ("action", body.action_dim)):
        width = getattr(columns, name).shape[1]
        if width != size:
            raise InputError(
                f"{columns.label(name)} has {width} columns, but those of {body.task} have {size}: "
                f"fields are swapped, or the file is another dataset's and wants another name."
            )
