"""One door for every format."""

from pathlib import Path
from typing import Any

from phimu.data.logged import LoggedDataset
from phimu.data.sets.arrays import read_npz
from phimu.data.sets.assembly import assemble
from phimu.data.sets.checksums import verified_sha256
from phimu.data.sets.d4rl import read_d4rl
from phimu.data.sets.minari_sets import find_minari, read_minari
from phimu.errors import InputError

LAYOUTS = {"d4rl": read_d4rl, "minari": read_minari, "npz": read_npz}
SUFFIXES = {".hdf5": "d4rl", ".h5": "d4rl", ".npz": "npz"}
FORMATS = "an .hdf5 of D4RL's layout, a Minari dataset as minari:ID or its directory, or an .npz"


def open_set(
    source: str | Path,
    sha256: str | None = None,
    *,
    task: str | None = None,
    action_low: Any = None,
    action_high: Any = None,
) -> LoggedDataset:
    """Read logged transitions and check every one of them.

    Args:
        source: "d4rl:FILE", "minari:ID", "minari:DIRECTORY" or "npz:FILE"; without the first word
            the suffix decides, and a directory is Minari's.
        sha256: what the file must have; FILE.sha256 beside it is verified as well.
        task: the Gymnasium id for evaluation, if the file's own is not wanted.
        action_low: the range of the file's actions, if the file does not say or says it wrong.
        action_high: its other end.
    """
    layout, path = _find(str(source))
    digest = verified_sha256(path, sha256)
    return assemble(
        LAYOUTS[layout](path),
        layout="arrays" if layout == "npz" else layout,
        sha256=digest,
        task=task,
        action_low=action_low,
        action_high=action_high,
    )


def is_source(text: str) -> bool:
    """Whether this names logged data, not a task: by its first word, or the suffix of a file."""
    return bool(_word(text)[0]) or Path(text).suffix in SUFFIXES


def is_there(source: str) -> bool:
    try:
        return _find(source)[1].is_file()
    except InputError:
        return False


def absolute(source: str) -> str:
    """The same from wherever it is read again; a set that Minari finds by its id stays one."""
    word, rest = _word(source)
    return f"{word}{Path(rest).absolute()}" if Path(rest).exists() else source


def _word(source: str) -> tuple[str, str]:
    """The layout that it begins with, as "d4rl:", if it does, and the rest."""
    word, colon, rest = source.partition(":")
    return (word + colon, rest) if colon and word in LAYOUTS else ("", source)


def _find(source: str) -> tuple[str, Path]:
    word, rest = _word(source)
    layout = word.removesuffix(":") or SUFFIXES.get(Path(source).suffix, "")
    if not word and Path(source).is_dir():
        layout = "minari"
    if not layout:
        raise InputError(f"{source!r} is no dataset: give {FORMATS}.")
    if not rest:
        raise InputError(f"{source} names nothing: give {FORMATS}.")
    return layout, find_minari(rest) if layout == "minari" else Path(rest)
