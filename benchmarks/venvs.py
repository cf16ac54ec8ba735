"""Virtual environments for the libraries we compare with, so that phimu never depends on them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phimu.errors import InputError
from phimu.runs.files import cache_directory

Requirements = tuple[tuple[str, ...], ...]  # groups, installed one after the other


def own_venv(say: Callable[[str], Any], name: str, requirements: Requirements) -> Path:
    """The virtual environment `name` in the user's cache directory, installed if need be."""
    venv = cache_directory() / name
    wanted = "\n".join(each for group in requirements for each in group) + "\n"
    finished = venv / "installed.txt"  # written last, so that half an installation is redone
    if finished.exists() and finished.read_text() == wanted:
        return venv
    say(f"Installing {' '.join(wanted.split())} into {venv}; delete it to get the space back.")
    install(venv, requirements)
    finished.write_text(wanted)
    return venv


def install(venv: Path, requirements: Requirements) -> None:
    """Create `venv` from scratch, and install each group after the one before."""
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    commands = [[sys.executable, "-m", "venv", "--clear", str(venv)]]
    commands += [[*pip, *group] for group in requirements]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr + done.stdout).strip().splitlines() or ["no reason was given"]
            errors = [line for line in said if line.startswith("ERROR:")]
            why = (errors or said)[-1].removeprefix("ERROR:").strip()
            raise InputError(
                f"Other libraries could not be installed into {venv} ({why}); "
                "check the network, or name a virtual environment that has them by --venv."
            )


def python_of(venv: Path) -> Path:
    """Its interpreter."""
    python = venv / "bin" / "python"
    if not python.exists():
        raise InputError(f"{venv} is no virtual environment: it has no bin/python.")
    return python
