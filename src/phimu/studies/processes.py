"""Commands on this machine: a process each, with one thread.

`python -m phimu.studies.processes PARENT ...` is `phimu ...`, told to stop when its parent dies.
On Linux, that is; elsewhere it goes on, and its lock keeps others out of the run directory. That
is why nothing heavy is imported here.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from phimu.training.threads import environment

PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>; holds beyond execv
GONE = "phimu: the process that wanted this one is gone."


class End(NamedTuple):
    code: int
    said: str  # the last line of its standard error


class Process:
    """`phimu ...` in a process that does not outlive this one by more than a save."""

    def __init__(self, command: list[str], directory: Path | None = None):
        # A file, not a pipe: it can be written to when nobody is there to read it.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "phimu.studies.processes", str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            cwd=directory,
            env=os.environ | environment(1),
            process_group=0,  # Ctrl-C is for us alone: a second signal would not let it save
        )

    def end(self) -> End | None:
        """How it ended, told once; None as long as it runs."""
        code = self._child.poll()
        if code is None:
            return None
        with self._said:
            self._said.seek(0)
            lines = self._said.read().decode(errors="replace").strip().splitlines()
        return End(code, lines[-1].removeprefix("phimu: ") if lines else "")

    def stop(self) -> None:
        self._child.terminate()


if __name__ == "__main__":
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != int(parent):
        sys.exit(GONE)
    os.execv(sys.executable, [sys.executable, "-m", "phimu", *command])
