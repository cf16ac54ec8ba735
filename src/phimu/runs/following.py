"""Following a run that someone else trains: its new rows, whether it is at work, how fast it is."""

import contextlib
import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from phimu.errors import InputError
from phimu.runs.directory import LOCK, RunDirectory, sessions
from phimu.runs.log import row_of

WINDOW_SECONDS = 30.0  # over which speed is measured

State = Literal["waiting", "training", "stopped", "finished"]


class MetricRows:
    """The rows of a metrics.jsonl; each call of `read` parses only what was added since.

    A last line without its end is left for the next call. A file that was replaced or cut, as a
    resumed run does it, is read anew. Other lines that cannot be read are left out.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._offset = 0
        self._file = 0  # its inode

    def read(self) -> list[dict[str, Any]]:
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            about = os.fstat(file.fileno())
            if about.st_ino != self._file or about.st_size < self._offset:
                self.rows, self._offset, self._file = [], 0, about.st_ino
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
            self._offset += len(whole) + len(end)
            for line in whole.split(b"\n"):
                with contextlib.suppress(ValueError, RecursionError):
                    self.rows.append(row_of(line))
        return self.rows


class Followed:
    """A run directory as it grows. `look` brings everything up to date."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time):
        self.path = path
        self._clock = clock
        self._log = MetricRows(RunDirectory(path).metrics)
        self._seen: deque[tuple[float, int]] = deque()
        self._started: float | None = None  # when it began, if no earlier session got anywhere
        self._seconds = 0.0  # that all sessions took until their last checkpoints
        self.steps: int | None = None  # how far it is to be trained, if its manifest says so
        self.state: State = "waiting"
        self.look()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self._log.rows

    @property
    def step(self) -> int:
        return self.rows[-1]["step"] if self.rows else 0

    def look(self) -> None:
        before, now = self.step, self._clock()
        self._log.read()
        self._read_sessions()
        if self.step < before:
            self._seen.clear()
        if self.step and (not self._seen or self.step != self._seen[-1][1]):
            self._seen.append((now, self.step))  # the first step is preceded by compilation
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_SECONDS:
            self._seen.popleft()
        if self.steps is not None and self.step >= self.steps:
            self.state = "finished"
        elif at_work(self.path):
            self.state = "training"
        else:
            self.state = "stopped" if self.rows else "waiting"

    def _read_sessions(self) -> None:
        """Of the manifest: how far, and since when; what is just being replaced stays as it was."""
        with contextlib.suppress(InputError, OSError, ValueError, LookupError, TypeError):
            found = sessions(self.path)
            self.steps = int(found[-1]["steps"])
            took = [float(each.get("seconds", 0.0)) for each in found]
            self._started, self._seconds = None, sum(took)
            if not any(took[:-1]):  # of one that was resumed nobody knows at which step
                began = found[-1].get("time") or found[-1]["created"]
                self._started = datetime.fromisoformat(began).timestamp()

    @property
    def rate(self) -> float:
        """Steps a second: as seen here, or as long as that is little since it began; else 0."""
        if self.state != "training":
            return self.step / self._seconds if self._seconds else 0.0
        if len(self._seen) > 1:
            (first_time, first), (last_time, last) = self._seen[0], self._seen[-1]
            return (last - first) / max(last_time - first_time, 1e-3)
        with contextlib.suppress(OSError):
            written = self._log.path.stat().st_mtime
            if self._started is not None and written > self._started:
                return self.step / (written - self._started)
        return 0.0

    @property
    def left(self) -> float | None:
        """Seconds to its end, if it is at work and its speed known."""
        if self.state != "training" or self.steps is None or not self.rate:
            return None
        return max(0, self.steps - self.step) / self.rate


def at_work(path: Path) -> bool:
    """Whether a process trains in a run directory.

    A lock file that a kill left behind names a process of this machine that is gone. The lock
    itself is not tried: whoever looks must not get in the way of who trains.
    """
    try:
        owner = json.loads((path / LOCK).read_bytes())
        if owner["host"] == socket.gethostname():
            os.kill(int(owner["pid"]), 0)
        return True
    except PermissionError:
        return True  # it is there, another user's
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return False
