"""Minari's layout: a group per episode, with one observation more than there are actions.

Read with h5py, not with the minari package, which would make the environment that a file names.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.logged import LoggedDataset
from phimu.data.sets.assembly import assemble
from phimu.data.sets.checksums import verified_sha256
from phimu.data.sets.columns import Asked, Columns, most_bytes
from phimu.data.sets.hdf5 import Hdf5Columns, open_hdf5, text_attribute
from phimu.errors import InputError

MAIN_FILE = Path("data", "main_data.hdf5")
_LONGEST = 1 << 24  # bytes of metadata.json
NAMES = {
    "observation": "observations",
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminations",
    "truncated": "truncations",
}


def find_minari(source: str) -> Path:
    """The directory of a set that is named by its own path or by its id, such as
    mujoco/hopper/medium-v0. Nothing is downloaded."""
    if Path(source, MAIN_FILE).exists():
        return Path(source)
    default = Path.home() / ".minari" / "datasets"
    local = Path(os.environ.get("MINARI_DATASETS_PATH") or default) / source
    if (local / MAIN_FILE).exists():
        return local
    for directory in (Path(source), local):
        if (directory / "data").is_dir():
            raise InputError(f"{directory} has no {MAIN_FILE}: only Minari's HDF5 sets are read.")
    raise InputError(
        f"There is no Minari set {source}, neither as a directory nor in {local.parent}: fetch it "
        f"with `minari download {source}`, which comes with pip install 'phimu[minari]'."
    )


def open_minari(directory: Path, asked: Asked) -> LoggedDataset:
    """Read the set in a directory that holds data/main_data.hdf5."""
    path = directory / MAIN_FILE
    digest = verified_sha256(path, asked.sha256)
    with open_hdf5(path) as file:
        about = _metadata(path, file)
        columns = _read(path, file)
    low, high = _action_space(path, about)
    return assemble(
        columns,
        asked,
        layout="minari",
        name=_text(about.get("dataset_id")) or directory.resolve().name,
        sha256=digest,
        task=_text(_parsed(about.get("env_spec")).get("id")),
        action_low=low,
        action_high=high,
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
        raise InputError(f"{beside} is too long for what it is: fetch the set again.")
    return _parsed(beside.read_text("utf-8", "replace"), str(beside))


def _parsed(text: Any, where: str = "") -> dict[str, Any]:
    """A JSON object; what is none is refused where a file is named, and otherwise empty."""
    try:
        value = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        value = None
    if where and not isinstance(value, dict):
        raise InputError(f"{where} is no JSON object: fetch the set again.")
    return value if isinstance(value, dict) else {}


def _action_space(path: Path, about: dict[str, Any]) -> tuple[Any, Any]:
    space = _parsed(about.get("action_space"))
    if not space:
        return None, None
    if space.get("type") != "Box":
        raise InputError(f"{path}: actions are {space.get('type')}: only Box actions are learned.")
    return space.get("low"), space.get("high")


def _read(path: Path, file: Any) -> Columns:
    """All episodes one below the other: shapes first, then each straight into its place."""
    names = sorted(
        (name for name in file if re.fullmatch(r"episode_\d{1,12}", name)),
        key=lambda name: int(name.partition("_")[2]),
    )
    if not names:
        raise InputError(f"{path} has no episodes: it is empty, or not Minari's.")
    # Groups are opened anew to be read: thousands of them would not stay open cheaply.
    lengths = [_length(_group(path, file, name)) for name in names]
    ends = np.cumsum(lengths)
    first = _group(path, file, names[0])
    widths = [first.shape(name, 2)[1] for name in ("observations", "actions")]
    if 4 * ends[-1] * sum(widths) > most_bytes(path):
        raise InputError(f"{path} declares {ends[-1]:,} actions, more than it can hold.")
    table = {
        "observation": np.empty((ends[-1], widths[0]), np.float32),
        "action": np.empty((ends[-1], widths[1]), np.float32),
        "reward": np.empty(ends[-1], np.float32),
        "next_observation": np.empty((ends[-1], widths[0]), np.float32),
        "terminated": np.empty(ends[-1], bool),
        "truncated": np.empty(ends[-1], bool),
    }
    for name, end, length in zip(names, ends, lengths, strict=True):
        rows = {key: column[end - length : end] for key, column in table.items()}
        _read_episode(_group(path, file, name), rows)
    return Columns(str(path), **table, names=NAMES)  # type: ignore[arg-type]


def _group(path: Path, file: Any, name: str) -> Hdf5Columns:
    import h5py

    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise InputError(f"{path}: {name} is a link to another place: copy the episode into it.")
    group = file[name]
    if not isinstance(group, h5py.Group):
        raise InputError(f"{path}: {name} is no group: fetch the set again.")
    return Hdf5Columns(path, group)


def _length(group: Hdf5Columns) -> int:
    steps = group.shape("actions", 2)[0]
    if steps == 0:
        raise InputError(f"{group.label('actions')} is empty: drop that episode.")
    return steps


def _read_episode(group: Hdf5Columns, rows: dict[str, np.ndarray]) -> None:
    """Fill these rows of the table."""
    steps = len(rows["reward"])
    for key, name in NAMES.items():
        wanted = (steps + (key == "observation"), *rows[key].shape[1:])
        shape = group.shape(name, len(wanted))
        if shape[: len(wanted)] != wanted:
            raise InputError(
                f"{group.label(name)} has shape {shape}: give {wanted}, for {steps} actions and "
                f"as many columns as in the first episode."
            )
    observations = group.numbers("observations", 2)
    rows["observation"][:], rows["next_observation"][:] = observations[:-1], observations[1:]
    group.numbers("actions", 2, out=rows["action"])
    group.numbers("rewards", 1, out=rows["reward"])
    for key in ("terminated", "truncated"):
        rows[key][:] = flags = group.flags(NAMES[key])
        if flags[:-1].any():
            raise InputError(
                f"{group.label(NAMES[key])} in row {flags.argmax()} is 1, although the episode "
                f"goes on: the file is damaged or not Minari's."
            )
    rows["truncated"][-1] = True  # recordings that stop in the middle of an episode have no flag
