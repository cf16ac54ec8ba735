"""Minari's layout: a group per episode, with one observation more than there are actions.

Read with h5py, not with the minari package, which would make the environment that a file names.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.sets.checksums import most_bytes
from phimu.data.sets.columns import FLAGS, Columns
from phimu.data.sets.hdf5 import MINARI, MINARI_FILE, Hdf5Columns, open_hdf5, text_attribute
from phimu.errors import InputError

_LONGEST = 1 << 24  # bytes of metadata.json


def find_minari(source: str) -> Path:
    """The file of a dataset that is named by its directory or by its id, such as
    mujoco/hopper/medium-v0. Nothing is downloaded."""
    default = Path.home() / ".minari" / "datasets"
    local = Path(os.environ.get("MINARI_DATASETS_PATH") or default) / source
    for directory in (Path(source), local):
        if (directory / MINARI_FILE).exists():
            return directory / MINARI_FILE
    for directory in (Path(source), local):
        if (directory / "data").is_dir():
            raise InputError(f"{directory} has no {MINARI_FILE}: only Minari's HDF5 sets are read.")
    raise InputError(
        f"There is no Minari dataset {source}, neither as a directory nor in {local.parent}: fetch "
        f"it with `minari download {source}`, which comes with pip install 'phimu[minari]'."
    )


def read_minari(path: Path) -> Columns:
    """Read the main_data.hdf5 of a dataset, with what its metadata say."""
    with open_hdf5(path) as file:
        about = _metadata(path, file)
        table = _read(path, file)
    space = _parsed(about.get("action_space"))
    if space and space.get("type") != "Box":
        kind = space.get("type")
        raise InputError(f"{path}: actions are {kind}: only Box actions are learned from data.")
    return Columns(
        str(path),
        **table,
        action_low=space.get("low"),
        action_high=space.get("high"),
        name=_text(about.get("dataset_id")) or path.resolve().parents[1].name,
        task=_text(_parsed(about.get("env_spec")).get("id")),
        names=MINARI,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _metadata(path: Path, file: Any) -> dict[str, Any]:
    """metadata.json; before Minari 0.5 the same words were attributes of the file."""
    beside = path.with_name("metadata.json")
    if not beside.is_file():
        words = ("dataset_id", "env_spec", "action_space")
        return {word: text_attribute(file, word) for word in words}
    if beside.stat().st_size > _LONGEST:
        raise InputError(f"{beside} is too long for what it is: fetch the dataset again.")
    return _parsed(beside.read_text("utf-8", "replace"), str(beside))


def _parsed(text: Any, where: str = "") -> dict[str, Any]:
    """A JSON object; what is none is refused where a file is named, and otherwise empty."""
    try:
        value = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        value = None
    if where and not isinstance(value, dict):
        raise InputError(f"{where} is no JSON object: fetch the dataset again.")
    return value if isinstance(value, dict) else {}


def _read(path: Path, file: Any) -> dict[str, Any]:
    """All episodes one below the other: shapes first, then each straight into its place."""
    names = sorted(
        (name for name in file if re.fullmatch(r"episode_\d{1,12}", name)),
        key=lambda name: int(name.partition("_")[2]),
    )
    if not names:
        raise InputError(f"{path} has no episodes: it is empty, or not Minari's.")
    # Groups are opened again to be read: thousands of them would not stay open cheaply.
    lengths = [_group(path, file, name).dataset("action").shape[0] for name in names]
    ends = np.cumsum(lengths)
    first = _group(path, file, names[0])
    state, action = (first.dataset(key).shape[1] for key in ("observation", "action"))
    if 4 * ends[-1] * (state + action) > most_bytes(path):
        raise InputError(f"{path} declares {ends[-1]:,} actions, more than it can hold.")
    widths = {"observation": (state,), "action": (action,), "next_observation": (state,)}
    table = {
        key: np.empty((ends[-1], *widths.get(key, ())), np.float32) for key in (*widths, "reward")
    }
    table |= {key: np.empty(ends[-1], bool) for key in FLAGS}
    for name, end, length in zip(names, ends, lengths, strict=True):
        rows = {key: column[end - length : end] for key, column in table.items()}
        _read_episode(_group(path, file, name), rows)
    return table


def _group(path: Path, file: Any, name: str) -> Hdf5Columns:
    import h5py

    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise InputError(f"{path}: {name} is a link to another place: copy the episode into it.")
    group = file[name]
    if not isinstance(group, h5py.Group):
        raise InputError(f"{path}: {name} is no group: fetch the dataset again.")
    return Hdf5Columns(path, group, MINARI)


def _read_episode(group: Hdf5Columns, rows: dict[str, np.ndarray]) -> None:
    steps = len(rows["reward"])
    if not steps:
        raise InputError(f"{group.label('action')} is empty: drop that episode.")
    for key in MINARI:
        wanted = (steps + (key == "observation"), *rows[key].shape[1:])
        shape = group.dataset(key).shape
        if shape[: len(wanted)] != wanted:
            raise InputError(
                f"{group.label(key)} has shape {shape}: give {wanted}, for {steps} actions and "
                f"as many columns as in the first episode."
            )
    observations = group.column("observation")
    rows["observation"][:], rows["next_observation"][:] = observations[:-1], observations[1:]
    for key in ("action", "reward"):
        group.column(key, out=rows[key])
    for key in FLAGS:
        rows[key][:] = flags = group.column(key)
        if flags[:-1].any():
            raise InputError(
                f"{group.label(key)} in row {flags.argmax()} is 1, although the episode "
                f"goes on: the file is damaged or not Minari's."
            )
    rows["truncated"][-1] = True  # recordings that stop in the middle of an episode have no flag
