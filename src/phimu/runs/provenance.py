"""What a result can be traced back with: command, time, versions, code revision."""

import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

RECORDED_PACKAGES = (
    *("phimu", "jax", "jaxlib", "equinox", "optax", "numpy", "safetensors"),
    *("gymnasium", "mujoco", "dm_control", "h5py"),
)


def command_line() -> list[str]:
    """What this process was started with, as one would type it again."""
    name = Path(sys.argv[0]).name
    return ["phimu" if name == "__main__.py" else name, *sys.argv[1:]]


def session_facts(command: list[str]) -> dict[str, Any]:
    return {
        "command": list(command),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": code_revision(Path(__file__).parents[1]),
        # On resume too: other versions than before may end the bit-for-bit equality.
        "versions": {"python": platform.python_version()}
        | {package: _version(package) for package in RECORDED_PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def code_revision(package: Path) -> dict[str, Any] | None:
    """Commit and dirty flag of a package that lives in a git checkout; None if it was installed."""

    def git(*arguments: str) -> str:
        # No optional locks: looking must not get in the way of another git process.
        command = ["git", "--no-optional-locks", *arguments]
        done = subprocess.run(command, cwd=package, check=True, capture_output=True, timeout=10)
        return done.stdout.decode(errors="replace").strip()

    try:
        if not git("ls-files", "--", "."):
            return None  # a virtual environment inside someone's repository is not tracked by it
        commit = git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError):
        return None
