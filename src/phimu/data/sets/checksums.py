"""What is known of a file: its sha256, as HDF5 does not notice a flipped bit, and its size."""

import hashlib
import re
from pathlib import Path

from phimu.data.sets.scores import V0_FILES
from phimu.errors import InputError

_LONGEST = 1 << 16  # bytes of a checksum file that are read
# An array is at most this many times as large as its file when it is unpacked, or this large.
EXPANSION, SMALL = 100, 64 << 20


def sidecar(path: Path) -> Path:
    """Where the checksum of a file is kept, in the form of `sha256sum`: "<hex>  <name>"."""
    return path.with_name(path.name + ".sha256")


def verified_sha256(path: Path, expected: str | None = None) -> str:
    """The file's sha256, which must be `expected`, the sidecar's and that of a published file.

    Published files are known by name and size: a regenerated dataset under the same name passes.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}: name a dataset that exists.")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    for whose, wanted in _known(path, expected).items():
        if found != wanted:
            raise InputError(
                f"{path} is damaged or another file: its sha256 is {found}, but {whose} {wanted}; "
                f"fetch or make it again."
            )
    return found


def _known(path: Path, expected: str | None) -> dict[str, str]:
    """Who names a checksum, and which."""
    known = {}
    if expected is not None:
        if not re.fullmatch("[0-9a-fA-F]{64}", expected.strip()):
            raise InputError(f"sha256 is {expected!r}: give its 64 hexadecimal digits.")
        known["you asked for"] = expected.strip().lower()
    if sidecar(path).exists():
        known[f"{sidecar(path)} says"] = _read_sidecar(path)
    published = V0_FILES.get(path.name)
    if published is not None and published.bytes == path.stat().st_size:
        known["D4RL's file of this name and size has"] = published.sha256
    return known


def _read_sidecar(path: Path) -> str:
    """The line for this file; without names, the first."""
    with open(sidecar(path), "rb") as file:
        text = file.read(_LONGEST).decode("utf-8", "replace")
    lines = re.findall(r"^([0-9a-fA-F]{64})(?:\s+\*?(.*?))?\s*$", text, re.MULTILINE)
    for digest, name in lines:
        if not name or Path(name).name == path.name:
            return str(digest).lower()
    raise InputError(
        f"{sidecar(path)} has no sha256 of {path.name}: write it with `sha256sum`, or delete it."
    )


def most_bytes(path: Path) -> int:
    """More than any array of this file can have: beyond it, a shape is damaged or a trap."""
    return max(SMALL, EXPANSION * path.stat().st_size)
