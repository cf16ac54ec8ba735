"""Plain arrays: in memory, or in an .npz file."""

import hashlib
import math
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.logged import LoggedDataset, Transitions
from phimu.data.sets.assembly import assemble
from phimu.data.sets.checksums import verified_sha256
from phimu.data.sets.columns import Asked, Columns, as_flags, check_finite, check_shape, most_bytes
from phimu.errors import InputError

# What a column may be called.
ALIASES = {
    "observation": ("observation", "observations"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards"),
    "next_observation": ("next_observation", "next_observations"),
    "terminated": ("terminated", "terminals", "terminations"),
    "truncated": ("truncated", "timeouts", "truncations"),
    "episode": ("episode", "episodes"),
    "action_low": ("action_low",),
    "action_high": ("action_high",),
}
_NEEDED = ("observation", "action", "reward", "terminated")
_FAULTS = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def from_arrays(
    *,
    observation: Any,
    action: Any,
    reward: Any,
    terminated: Any,
    truncated: Any = None,
    next_observation: Any = None,
    episode: Any = None,
    action_low: Any = None,
    action_high: Any = None,
    name: str = "arrays",
    task: str | None = None,
) -> LoggedDataset:
    """A set of N rows in memory; the arrays are copied and stay as they are.

    Args:
        observation: [N, observation_dim].
        action: [N, action_dim], in [action_low, action_high], or in [-1, 1] without these.
        reward: [N].
        terminated: [N], 1 where the next observation has no future.
        truncated: [N], 1 where an episode was cut, by a time limit for example.
        next_observation: [N, observation_dim]; without it, it is the row below, and the last row of
            an episode that was cut is dropped.
        episode: [N], a number per episode. Without it and `truncated`, episodes are cut where
            `next_observation` is not the row below.
        action_low: what -1 will mean, [action_dim] or one number.
        action_high: what 1 will mean.
        name: names the directories of runs on this set.
        task: the Gymnasium id that policies can be evaluated in.
    """
    given = {
        "observation": observation,
        "action": action,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "next_observation": next_observation,
        "episode": episode,
    }
    arrays = {key: np.array(value) for key, value in given.items() if value is not None}
    asked = Asked(None, task, action_low, action_high)
    made = assemble(_columns(name, arrays, {}), asked, layout="arrays", name=name, sha256="")
    return replace(made, sha256=_digest(made.transitions))


def open_npz(path: Path, asked: Asked) -> LoggedDataset:
    """Read an .npz with the columns of `from_arrays`, under one of the names in ALIASES."""
    digest = verified_sha256(path, asked.sha256)
    try:
        with zipfile.ZipFile(path) as archive:
            present = [name.removesuffix(".npy") for name in archive.namelist()]
            names = _names_in(path, present)
            arrays = {key: _member(path, archive, name) for key, name in names.items()}
    except _FAULTS as error:
        raise InputError(f"{path} is no .npz file, or damaged or cut short: {error}") from error
    other = sorted(set(present) - set(names.values()))
    low, high = arrays.pop("action_low", None), arrays.pop("action_high", None)
    columns = _columns(str(path), arrays, names)
    if other:
        columns.notes.append(f"not read: {', '.join(other)}")
    return assemble(
        columns,
        asked,
        layout="arrays",
        name=path.stem,
        sha256=digest,
        action_low=low,
        action_high=high,
    )


def _digest(made: Transitions) -> str:
    """Of sets without a file: the columns one after the other, with their names and shapes."""
    digest = hashlib.sha256()
    for name, column in made._asdict().items():
        digest.update(f"{name} {column.dtype} {column.shape}\n".encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def _columns(where: str, arrays: dict[str, np.ndarray], names: dict[str, str]) -> Columns:
    """The arrays as float32 and bool; each is taken out of the dictionary when it is done."""
    done: dict[str, np.ndarray] = {}
    for key in list(arrays):
        done[key] = _checked(f"{where}: {names.get(key, key)}", key, arrays.pop(key))
    return Columns(where, **done, names=names)  # type: ignore[arg-type]


def _checked(label: str, key: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in ("iuf" if key in ("observation", "action", "reward") else "biuf"):
        raise InputError(f"{label} has type {array.dtype}: give numbers.")
    ndim = 2 if key.endswith(("observation", "action")) else 1
    check_shape(array.shape, ndim, label)
    array = array if ndim == 2 else array.reshape(-1)
    if key == "episode":
        return array
    if key in ("terminated", "truncated"):
        return as_flags(array, label)
    with np.errstate(over="ignore"):  # the check below speaks of it
        column = np.ascontiguousarray(array, np.float32)
    check_finite(column, label)
    return column


def _names_in(path: Path, present: list[str]) -> dict[str, str]:
    """Which name each column has in the file."""
    for name in ("done", "dones"):
        if name in present:
            raise InputError(
                f"{path}: {name} does not say whether the next observation has a future: "
                f"name it terminated where it has none, truncated where the episode was cut."
            )
    names: dict[str, str] = {}
    for key, aliases in ALIASES.items():
        found = [name for name in aliases if name in present]
        if len(found) > 1:
            raise InputError(f"{path} has both {found[0]} and {found[1]}: keep one of them.")
        if found:
            names[key] = found[0]
    for key in _NEEDED:
        if key not in names:
            have = ", ".join(sorted(present)) or "nothing"
            raise InputError(f"{path}: {key} is missing: the file has {have}.")
    return names


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array of the file, if it is as long as its header declares."""
    try:
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, _, dtype = read(member)
            if dtype.kind not in "biuf":
                raise InputError(f"{path}: {name} has type {dtype}: give numbers.")
            size = math.prod(shape) * dtype.itemsize
            if size > most_bytes(path) or member.tell() + size != info.file_size:
                raise InputError(
                    f"{path}: {name} declares {size:,} bytes in shape {shape}, which are not in "
                    f"the file: it is damaged or was never written in full."
                )
        with archive.open(info) as member:
            return np.lib.format.read_array(member, allow_pickle=False)
    except _FAULTS as error:
        raise InputError(f"{path}: {name} cannot be read, it is damaged: {error}") from error
