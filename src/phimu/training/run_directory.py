"""The run directory: a path that names the run, its configuration and how it was made."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import platform
import re
import subprocess
import typing
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from phimu.errors import InputError

CONFIG = "config.json"
MANIFEST = "manifest.json"
LOCK = "lock"
RECORDED_PACKAGES = (
    *("phimu", "jax", "jaxlib", "equinox", "optax", "numpy", "safetensors"),
    *("gymnasium", "mujoco", "dm_control", "h5py"),
)


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """Where each part of one run lives."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def figures(self) -> Path:
        return self.path / "figures"


def to_json(config: Any) -> dict[str, Any]:
    """The plain JSON form of a nested dataclass; tuples become lists, functions their names."""
    return {
        field.name: _plain(getattr(config, field.name), field.name)
        for field in dataclasses.fields(config)
    }


def _plain(value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name), f"{name}.{field.name}")
            for field in dataclasses.fields(value)
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}.{index}") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if callable(value) and "<" not in getattr(value, "__qualname__", "<"):
        return value.__qualname__  # lambdas and closures are out: they all have the same name
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"The setting {name} is {value}: give a finite number.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"The setting {name} is {value!r}, which has no JSON form: "
        "give a number, a text, a list, a dataclass or a named function."
    )


def config_hash(config: dict[str, Any]) -> str:
    """Eight hex digits that do not depend on the order of the keys."""
    return hashlib.sha256(_canonical(config).encode()).hexdigest()[:8]


def _canonical(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The dotted names of the fields that differ or that only one side has, in sorted order."""
    found = []
    for name in sorted(a.keys() | b.keys()):
        if name not in a or name not in b:
            found.append(name)
        elif isinstance(a[name], dict) and isinstance(b[name], dict):
            found += [f"{name}.{inner}" for inner in differences(a[name], b[name])]
        elif a[name] != b[name]:
            found.append(name)
    return found


def run_path(
    root: Path, suite: str, task: str, agent: str, config: dict[str, Any], seed: int
) -> Path:
    """`root/suite/task/agent/hash/seed-n`, each part a single safe directory name."""
    task = task.split("/", 1)[-1]  # in "phimu/FourRooms-v0" the suite already says "phimu"
    parts = [_safe_name(part) for part in (suite, task, agent)]
    return Path(root, *parts, config_hash(config), f"seed-{seed}")


def _safe_name(name: str) -> str:
    # A leading dot would make "..", or hide the directory.
    safe = re.sub(r"^\.+|[^A-Za-z0-9._-]", "_", name)
    if not safe:
        raise InputError("The names of suite, task and agent cannot be empty: give each a name.")
    return safe


def open_run(
    path: Path, config: dict[str, Any], command: list[str], facts: dict[str, Any] | None = None
) -> RunDirectory:
    """Create the run at `path`, or take it up again if it was made with the same configuration.

    `facts` go into the manifest, with what is always there of how this session was started.
    """
    path = Path(path)
    config = json.loads(_canonical(config))  # as it will be read back, so that tuples equal lists
    if is_unused(path):
        path.mkdir(parents=True, exist_ok=True)
        _write_json(path / CONFIG, config)
    else:
        _refuse_other_config(path, read_config(path), config)
    session = session_facts(command) | (facts or {})
    if (path / MANIFEST).exists():
        manifest = _read_json(path / MANIFEST)
        manifest["sessions"] = [*manifest.get("sessions", []), session]
    else:
        manifest = {
            "created": session.pop("time"),
            "platform": platform.platform(),
            "cpu_count": os.cpu_count(),
            **session,
            "sessions": [],  # each later start that took this run up again
        }
    _write_json(path / MANIFEST, manifest)
    return RunDirectory(path)


def sessions(path: Path) -> list[dict[str, Any]]:
    """How the run at `path` was made, and each time that it was taken up again."""
    manifest = _read_json(path / MANIFEST)
    return [manifest, *manifest["sessions"]]


def is_unused(path: Path) -> bool:
    """Whether nothing is there but, at most, a lock and what a kill left of the first write."""
    if not path.exists():
        return True
    return path.is_dir() and {entry.name for entry in path.iterdir()} <= {LOCK, CONFIG + ".tmp"}


def _refuse_other_config(path: Path, stored: dict[str, Any], config: dict[str, Any]) -> None:
    names = differences(stored, config)
    if names:
        there, here = (_value_at(side, names[0]) for side in (stored, config))
        raise InputError(
            f"The run in {path} was made with {names[0]} = {there}, but now it is {here}: "
            "use the stored value to resume it, or choose another directory."
        )


def _value_at(config: dict[str, Any], dotted_name: str) -> str:
    value: Any = config
    for name in dotted_name.split("."):
        if name not in value:
            return "(absent)"
        value = value[name]
    return json.dumps(value)


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of the run at `path`."""
    file = Path(path) / CONFIG
    if not file.is_file():
        raise InputError(
            f"{path} is not a run directory, for it has no {CONFIG}: name another directory."
        )
    run = RunDirectory(Path(path))
    for part in (file, run.path / MANIFEST, run.path / LOCK, run.metrics, run.checkpoints):
        if part.is_symlink():  # who reads or writes a run stays inside of it
            raise InputError(f"{part} is a link: put what it leads to in its place.")
    return _read_json(file)


def session_facts(command: list[str]) -> dict[str, Any]:
    """What a result can be traced back with."""
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
        return subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=package,
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        ).stdout.strip()

    try:
        if not git("ls-files", "--", "."):
            return None  # a virtual environment inside someone's repository is not tracked by it
        commit = git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError):
        return None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` such that a kill or a power cut leaves either the old or the new content."""
    temporary = path.with_name(path.name + ".tmp")
    with naming(path):
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
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


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=2, sort_keys=True).encode() + b"\n")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON ({error}): restore it from a copy.") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} does not hold a JSON object: restore it from a copy.")
    return content


def from_json(kind: type[Any], values: dict[str, Any]) -> Any:
    """The dataclass that `to_json` made these values from.

    A field that came after the values were written takes its default, which is what phimu did
    before it; a field that is no more is an error.
    """
    hints = typing.get_type_hints(kind)
    unknown = values.keys() - {field.name for field in dataclasses.fields(kind)}
    if unknown:
        raise InputError(
            f"{kind.__name__} no longer has {', '.join(sorted(unknown))}, which the stored "
            "configuration sets: use the version of phimu that manifest.json names."
        )

    def back(hint: Any, value: Any) -> Any:
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return from_json(hint, value)
        return tuple(value) if isinstance(value, list) else value

    return kind(**{name: back(hints[name], value) for name, value in values.items()})
