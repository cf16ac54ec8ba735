"""D4RL's HDF5 layout: the rows of all episodes in one table, with the quirks of v0, v1 and v2."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.logged import LoggedDataset
from phimu.data.sets.assembly import assemble
from phimu.data.sets.checksums import verified_sha256
from phimu.data.sets.columns import Asked, Columns
from phimu.data.sets.hdf5 import Hdf5Columns, open_hdf5, text_attribute
from phimu.data.sets.scores import HORIZON, Body, body_of_set, body_of_task
from phimu.errors import InputError

NAMES = {
    "observation": "observations",
    "action": "actions",
    "reward": "rewards",
    "next_observation": "next_observations",
    "terminated": "terminals",
    "truncated": "timeouts",
}


def open_d4rl(path: Path, asked: Asked) -> LoggedDataset:
    """Read a file of D4RL's, or one of the same layout with root attributes of our own.

    The attribute `task` is the Gymnasium id, `name` the set's, `action_low` and `action_high` the
    range of the file's actions, [-1, 1] without them.
    """
    digest = verified_sha256(path, asked.sha256)
    with open_hdf5(path) as file:
        name = text_attribute(file, "name") or path.stem
        task = text_attribute(file, "task")
        body = body_of_set(name) if task is None else body_of_task(task)
        low, high = (_numbers(file, end) for end in ("action_low", "action_high"))
        columns = _read(path, file)
    if body is not None:
        _mend(columns, body)
        if task is None:
            _check_widths(columns, body)
            task = body.task
    return assemble(
        columns,
        asked,
        layout="d4rl",
        name=name,
        sha256=digest,
        task=task,
        action_low=-1.0 if low is None else low,
        action_high=1.0 if high is None else high,
    )


def _numbers(file: Any, attribute: str) -> Any:
    if attribute in file.attrs and len(file.attrs.get_id(attribute).shape) == 1:
        return file.attrs[attribute]
    return None


def _read(path: Path, file: Any) -> Columns:
    reader = Hdf5Columns(path, file)
    if "observations" not in reader and "episode_0" in reader:
        raise InputError(f"{path} is a Minari file: name the directory above its data/.")
    return Columns(
        str(path),
        terminated=reader.flags("terminals"),
        truncated=reader.flags("timeouts") if "timeouts" in reader else None,
        observation=reader.numbers("observations", 2),
        action=reader.numbers("actions", 2),
        reward=reader.numbers("rewards", 1),
        next_observation=(
            reader.numbers("next_observations", 2) if "next_observations" in reader else None
        ),
        names=NAMES,
    )


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
                f"fields are swapped, or the file is another set's and wants another name."
            )
