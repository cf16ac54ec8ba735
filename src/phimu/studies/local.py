"""Commands on this machine: a process each, with one thread."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from phimu.studies.runner import End
from phimu.training.threads import environment


class Process:
    """`phimu ...` in a process that does not outlive this one by more than a save."""

    def __init__(self, command: list[str], directory: Path | None = None):
        # A file, not a pipe: it can be written to when nobody is there to read it.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it is forgotten)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "phimu.studies.worker", str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            cwd=directory,
            env=os.environ | environment(1),
            process_group=0,  # Ctrl-C is for us alone: a second signal would not let it save
        )

    def end(self) -> End | None:
        code = self._child.poll()
        if code is None:
            return None
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return End(code, lines[-1].removeprefix("phimu: ") if lines else "")

    def stop(self) -> None:
        self._child.terminate()
