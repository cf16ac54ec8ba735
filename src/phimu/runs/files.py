"""Files on disk: replaced as a whole, fsynced, arrays finite or refused, faults as OSErrors."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from phimu.errors import NotFinite


def cache_directory() -> Path:
    """Where this user keeps what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "phimu")


def cache_compilation() -> None:
    """Keep JAX's compiled programs there, unless JAX_COMPILATION_CACHE_DIR names another place."""
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    directory = cache_directory() / "jax"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(directory, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(directory))
        # What compiles faster is not worth a file.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        # A cache that cannot be read or written costs time, nothing else.
        warnings.filterwarnings("ignore", message=".*persistent compilation cache")


class Damaged(Exception):
    """A file is not as it was written: which, and why."""

    def __init__(self, path: Path, why: str):
        super().__init__(f"{path} {why}")


def write_synced(path: Path, data: bytes) -> None:
    """A file that is on the disk when this returns."""
    with naming(path), open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` such that a kill or a power cut leaves either the old or the new content."""
    temporary = path.with_name(path.name + ".tmp")
    write_synced(temporary, data)
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power cut."""
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have every OSError say which file it is about; those of write and fsync do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_arrays(path: Path, arrays: dict[str, np.ndarray], finite: bool = True) -> None:
    """A safetensors file that is on the disk when this returns; `finite` refuses NaN in it."""
    for name, array in arrays.items() if finite else ():
        if jnp.issubdtype(array.dtype, jnp.inexact) and not np.isfinite(array).all():
            raise NotFinite(f"{name} has a number that is not finite, so nothing was saved.")
    # safetensors reads raw memory: a transposed view would be stored scrambled, without a word.
    # (asarray copies only what is not in C order, and unlike ascontiguousarray keeps scalars 0-d.)
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with naming(path):
        # safetensors would make it 0600, whatever the umask, and never fsync it.
        with open(path, "wb"):
            mode = path.stat().st_mode
        try:
            save_file(plain, path)
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        os.chmod(path, mode)
        with open(path, "rb+") as file:
            os.fsync(file.fileno())


def fingerprint(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"sha256": digest, "size": path.stat().st_size}


def check_regular(path: Path) -> None:
    """Damaged if it is no file: a link could lead out of the run, a pipe would block for ever."""
    if not os.path.lexists(path):
        raise Damaged(path, "is missing")
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Damaged(path, "is not a regular file")


def verify(path: Path, mark: Any) -> None:
    """Damaged unless it is a file with this fingerprint."""
    check_regular(path)
    if fingerprint(path) != mark:
        raise Damaged(path, "does not match its checksum")


@contextlib.contextmanager
def parsing(path: Path) -> Iterator[None]:
    """What a parser refuses is damaged: a forged file has a good checksum and may still fail."""
    try:
        yield
    except (SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise Damaged(path, f"cannot be read ({error})") from error


def read_json(path: Path) -> dict[str, Any]:
    with parsing(path):
        content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise Damaged(path, "does not hold a JSON object")
    return content


def remove(path: Path) -> None:
    """A file, a link or a whole directory, if it is there; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
