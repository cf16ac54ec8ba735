"""The run directory: a path that names the run, its configuration and how it was made."""

import dataclasses
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

from phimu.errors import InputError
from phimu.runs.files import Damaged, read_json, write_atomically
from phimu.runs.json_form import canonical, config_hash, differences
from phimu.runs.provenance import session_facts

CONFIG = "config.json"
MANIFEST = "manifest.json"
LOCK = "lock"


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
    path: Path,
    config: dict[str, Any],
    command: list[str],
    facts: dict[str, Any] | None = None,
    about: dict[str, Any] | None = None,
) -> RunDirectory:
    """Create the run at `path`, or take it up again if it was made with the same configuration.

    `facts` of this session go into the manifest, with what is always there of how it was started;
    `about` is what the run itself is: its preset, its place in a study.
    """
    path = Path(path)
    config = json.loads(canonical(config))  # as it will be read back, so that tuples equal lists
    if is_unused(path):
        path.mkdir(parents=True, exist_ok=True)
        _write_json(path / CONFIG, config)
    else:
        for name, there, here in differences(read_config(path), config):
            raise InputError(
                f"The run in {path} was made with {name} = {there}, but now it is {here}: "
                "use the stored value to resume it, or choose another directory."
            )
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
    manifest |= about or {}
    _write_json(path / MANIFEST, manifest)
    return RunDirectory(path)


def add_facts(path: Path, facts: dict[str, Any]) -> None:
    """Put more into the manifest of the run at `path`, about its latest session."""
    manifest = _read_json(path / MANIFEST)
    latest = manifest["sessions"][-1] if manifest["sessions"] else manifest
    latest |= facts
    _write_json(path / MANIFEST, manifest)


def sessions(path: Path) -> list[dict[str, Any]]:
    """How a run was made, and each time taken up again; none if a kill came before its manifest."""
    if not (path / MANIFEST).exists():
        return []
    manifest = _read_json(path / MANIFEST)
    return [manifest, *manifest["sessions"]]


def is_unused(path: Path) -> bool:
    """Whether nothing is there but, at most, a lock and what a kill left of the first write."""
    if not path.exists():
        return True
    return path.is_dir() and {entry.name for entry in path.iterdir()} <= {LOCK, CONFIG + ".tmp"}


def read_config(path: Path) -> dict[str, Any]:
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


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=2, sort_keys=True).encode() + b"\n")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return read_json(file)
    except Damaged as damage:
        raise InputError(f"{damage}: restore it from a copy.") from damage
