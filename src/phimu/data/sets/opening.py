"""One door for every format."""

from pathlib import Path
from typing import Any

from phimu.data.logged import OfflineSet
from phimu.data.sets.arrays import open_npz
from phimu.data.sets.columns import Asked
from phimu.data.sets.d4rl import open_d4rl
from phimu.data.sets.minari_sets import find_minari, open_minari
from phimu.errors import InputError

LAYOUTS = ("d4rl", "minari", "npz")
FORMATS = "an .hdf5 of D4RL's layout, a Minari set as minari:ID or its directory, or an .npz"


def open_set(
    source: str | Path,
    sha256: str | None = None,
    *,
    task: str | None = None,
    action_low: Any = None,
    action_high: Any = None,
) -> OfflineSet:
    """Read logged transitions and check every one of them.

    Args:
        source: "d4rl:FILE", "minari:ID", "minari:DIRECTORY" or "npz:FILE"; without the first word
            the suffix decides, and a directory is Minari's.
        sha256: what the file must have; FILE.sha256 beside it is verified as well.
        task: the Gymnasium id for evaluation, if the file's own is not wanted.
        action_low: the range of the file's actions, if the file does not say or says it wrong.
        action_high: its other end.
    """
    layout, place = _layout(str(source))
    asked = Asked(sha256, task, action_low, action_high)
    if layout == "minari":
        return open_minari(find_minari(place), asked)
    if layout == "npz":
        return open_npz(Path(place), asked)
    return open_d4rl(Path(place), asked)


def is_source(text: str) -> bool:
    """Whether this names logged data, not a task: by its first word, or the suffix of a file."""
    word, colon, _ = text.partition(":")
    return (bool(colon) and word in LAYOUTS) or Path(text).suffix in (".hdf5", ".h5", ".npz")


def is_there(source: str) -> bool:
    """Whether there is something to open."""
    try:
        layout, place = _layout(source)
        return find_minari(place).is_dir() if layout == "minari" else Path(place).is_file()
    except InputError:
        return False


def absolute(source: str) -> str:
    """The same from wherever it is read again; a set that Minari finds by its id stays one."""
    word, colon, rest = source.partition(":")
    if colon and word in LAYOUTS:
        return f"{word}:{Path(rest).absolute()}" if Path(rest).exists() else source
    return str(Path(source).absolute()) if Path(source).exists() else source


def _layout(source: str) -> tuple[str, str]:
    word, colon, rest = source.partition(":")
    if colon and word in LAYOUTS:
        if not rest:
            raise InputError(f"{source} names nothing: give {FORMATS}.")
        return word, rest
    path = Path(source)
    if path.is_dir():
        return "minari", source
    if path.suffix in (".hdf5", ".h5"):
        return "d4rl", source
    if path.suffix == ".npz":
        return "npz", source
    raise InputError(f"{source!r} is no dataset: give {FORMATS}.")
