"""Plain arrays: in memory, or in an .npz file."""

import difflib
import hashlib
import math
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.logged import LoggedDataset, Transitions
from phimu.data.sets.assembly import assemble
from phimu.data.sets.checksums import most_bytes
from phimu.data.sets.columns import REQUIRED, Columns, check_type, converted
from phimu.data.sets.hdf5 import D4RL, MINARI
from phimu.errors import InputError

# What a column may be called.
ALIASES = {key: {key, name, MINARI.get(key, name)} for key, name in D4RL.items()}
ALIASES |= {"episode": {"episode", "episodes"}}
_COLUMNS = {name for aliases in ALIASES.values() for name in aliases}
ALIASES |= {"action_low": {"action_low"}, "action_high": {"action_high"}}
_FAULTS = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def from_arrays(
    *,
    observation: Any = None,
    action: Any = None,
    reward: Any = None,
    terminated: Any = None,
    truncated: Any = None,
    next_observation: Any = None,
    episode: Any = None,
    action_low: Any = None,
    action_high: Any = None,
    name: str = "arrays",
    task: str | None = None,
    **others: Any,
) -> LoggedDataset:
    """A dataset of N rows in memory; the arrays are copied and stay as they are.

    Of `truncated`, `next_observation` and `episode` it takes at least one, since without them
    nothing says where one episode stops and the next begins.

    Args:
        observation: [N, observation_dim].
        action: [N, action_dim], in [action_low, action_high], or in [-1, 1] without these.
        reward: [N].
        terminated: [N], 1 where the next observation has no future.
        truncated: [N], 1 where an episode was cut, by a time limit for example.
        next_observation: [N, observation_dim]; without it, it is the row below, and the last row of
            an episode that was cut is dropped.
        episode: [N], a number per episode. Without it and `truncated`, episodes are cut where
            `next_observation` is not the row below. Zeros for one that was never cut.
        action_low: what -1 will mean, [action_dim] or one number.
        action_high: what 1 will mean.
        name: names the directories of runs on this dataset.
        task: the Gymnasium id that policies can be evaluated in.
        others: the same columns under the names of D4RL and Minari: observations, terminals, ...
    """
    given = {
        "observation": observation,
        "action": action,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "next_observation": next_observation,
        "episode": episode,
        **others,
    }
    names = _names_in(name, [key for key, value in given.items() if value is not None], _COLUMNS)
    arrays = {key: np.array(given[called]) for key, called in names.items()}
    columns = Columns(name, **_converted(name, arrays, names), name=name, names=names)
    ends = {"action_low": action_low, "action_high": action_high}
    made = assemble(columns, layout="arrays", sha256="", task=task, **ends)
    return replace(made, sha256=digest(made.transitions))


def read_npz(path: Path) -> Columns:
    """Read an .npz with the columns of `from_arrays`, under one of the names in ALIASES."""
    try:
        with zipfile.ZipFile(path) as archive:
            present = [name.removesuffix(".npy") for name in archive.namelist()]
            names = _names_in(str(path), present)
            arrays = {key: _member(path, archive, name) for key, name in names.items()}
    except _FAULTS as error:
        raise InputError(f"{path} is no .npz file, or damaged or cut short: {error}") from error
    ends: dict[str, Any] = {key: arrays.pop(key, None) for key in ("action_low", "action_high")}
    done = _converted(str(path), arrays, names)
    columns = Columns(str(path), **done, **ends, name=path.stem, names=names)
    if other := sorted(set(present) - set(names.values())):
        columns.notes.append(f"not read: {', '.join(other)}")
    return columns


def digest(made: Transitions) -> str:
    """Of datasets without a file: the columns one after the other, with their names and shapes."""
    digest = hashlib.sha256()
    for name, column in made._asdict().items():
        digest.update(f"{name} {column.dtype} {column.shape}\n".encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def _converted(where: str, arrays: dict[str, np.ndarray], names: dict[str, str]) -> dict[str, Any]:
    """The arrays as float32 and bool; each is taken out of the dictionary when it is done."""
    done = {}
    for key in list(arrays):
        label = f"{where}: {names.get(key, key)}"
        check_type(key, arrays[key].dtype, arrays[key].shape, label)
        done[key] = converted(key, arrays.pop(key), label)
    return done


def _names_in(
    where: str, present: list[str], allowed: Collection[str] | None = None
) -> dict[str, str]:
    """Which name each column has among those `present`."""
    for name in ("done", "dones"):
        if name in present:
            raise InputError(
                f"{where}: {name} does not say whether the next observation has a future: "
                f"name it terminated where it has none, truncated where the episode was cut."
            )
    if allowed is not None and (unknown := [name for name in present if name not in allowed]):
        close = difflib.get_close_matches(unknown[0], allowed, n=1)
        meant = f"did you mean {close[0]}?" if close else f"give {', '.join(sorted(ALIASES))}."
        raise InputError(f"{where}: there is no column {unknown[0]}: {meant}")
    names: dict[str, str] = {}
    for key, aliases in ALIASES.items():
        found = sorted(aliases.intersection(present))
        if len(found) > 1:
            raise InputError(f"{where} has both {found[0]} and {found[1]}: keep one of them.")
        if found:
            names[key] = found[0]
    for key in REQUIRED:
        if key not in names:
            have = ", ".join(sorted(present)) or "nothing"
            raise InputError(f"{where}: {key} is missing: there is {have}.")
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
