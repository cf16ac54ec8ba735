"""One process at a time trains in a run directory; those that only read need no leave."""

import contextlib
import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from phimu.errors import Busy
from phimu.runs.directory import LOCK, is_unused, read_config
from phimu.runs.files import naming

UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


@contextlib.contextmanager
def locked(path: Path, say: Callable[[str], Any]) -> Iterator[None]:
    """Hold a run directory, made if need be; Busy if another process has it. None is ever stale:
    the kernel drops the lock of a process that dies, however it does."""
    if not is_unused(path):
        read_config(path)  # a directory of something else is left as it is
    path.mkdir(parents=True, exist_ok=True)
    file = path / LOCK
    with naming(file):
        descriptor = _acquire(file, say)
    try:
        yield
    finally:
        # While still held: whoever waits for the same file sees that it is gone and opens anew.
        with contextlib.suppress(OSError):
            file.unlink()
        os.close(descriptor)


def _acquire(file: Path, say: Callable[[str], Any]) -> int:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in UNSUPPORTED:
                say(f"{file} cannot be locked here: see to it that no other process trains there.")
                return descriptor
            owner = os.pread(descriptor, 4_096, 0)
            os.close(descriptor)
            if error.errno == errno.EWOULDBLOCK:
                raise Busy(_taken(file.parent, owner)) from error
            raise
        if _is_same(descriptor, file):
            break
        os.close(descriptor)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(about).encode() + b"\n", 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_same(descriptor: int, file: Path) -> bool:
    """Whether the file we locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.lstat())
    except FileNotFoundError:
        return False


def _taken(path: Path, owner: bytes) -> str:
    try:
        about = json.loads(owner)
        who = f"process {about['pid']} on {about['host']} (since {about['since']})"
    except (ValueError, KeyError, TypeError):
        who = "another process"
    return f"{who} is at work in {path}: wait for it, stop it, or choose another --run-dir or seed."
