"""Runs as rows: what was trained, how far, how well, by which command.

A run directory and its text in `results/` (config, manifest, metrics, a maze's scores) read alike.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phimu.agents import AGENTS
from phimu.data.sets.scores import V0_FILES, normalised_score
from phimu.errors import InputError
from phimu.reports.curves import runs_below
from phimu.runs.directory import CONFIG, MANIFEST, RunDirectory, read_config, sessions
from phimu.runs.json_form import config_hash, to_json
from phimu.runs.log import read_metrics
from phimu.studies.tables import WINDOW

# Settings of a schedule that do not change what is learned.
OBSERVING = {"evaluate_every", "evaluation_episodes", "checkpoint_every", "log_every"}
SCORES = "scores.json"
NOTE = "note.txt"
# What is read of a session, where it is there at all.
SESSION: dict[str, Any] = {
    "command": list,
    "versions": dict,
    "revision": dict,
    "steps": int,
    "seconds": int | float,
}

Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Result:
    """One run."""

    path: Path
    task: str
    """A Gymnasium id; offline the name of the set."""
    agent: str
    seed: int
    preset: str
    """The one whose settings are nearest."""
    changes: Changes
    """Settings that differ from it, and options of the task; lists as their text."""
    settings: dict[str, Any]
    """Every setting of the agent by its name."""
    metric: str
    """`return`, or offline D4RL's `score` where there is one."""
    steps: np.ndarray
    """[evaluations] when; offline in updates of the policy."""
    values: np.ndarray
    """[evaluations] what was scored."""
    done: int
    """Environment steps, or updates of the policy, that the log has reached."""
    finished: bool
    """Whether it got as far as its last command asked for."""
    sessions: list[dict[str, Any]]
    """The manifest, then each later start."""
    rows: list[dict[str, Any]]
    """The metrics."""
    maze: dict[str, float]
    """The scores that `phimu heatmap` wrote; empty elsewhere."""
    offline: bool
    """Whether it learned from logged data."""
    made_anew: bool
    """Whether it learned from a set under D4RL's name that is not D4RL's file."""
    note: str
    """What its note.txt says: what a reader of its score should know."""

    @property
    def score(self) -> float | None:
        """The mean of the evaluations within WINDOW of the last one."""
        if not len(self.steps):
            return None
        return float(self.values[self.steps > self.steps[-1] - WINDOW].mean())

    @property
    def hours(self) -> float | None:
        """Of all sessions, as far as they recorded it."""
        seconds = [each["seconds"] for each in self.sessions if "seconds" in each]
        return sum(seconds) / 3600 if seconds else None

    @property
    def command(self) -> str:
        """The one that last took it up."""
        words = self.sessions[-1].get("command", [])
        return " ".join(["phimu", *map(str, words[1:])]) if words else "not recorded"

    @property
    def label(self) -> str:
        """Such as `small, bonus_scale=5.0`."""
        return ", ".join([self.preset, *(f"{name}={value}" for name, value in self.changes)])


def gather(paths: Sequence[Path]) -> list[Result]:
    """Every run at or below these paths, each once: of copies the one that got furthest."""
    found = {run.resolve(): run for path in paths for run in runs_below(Path(path))}
    if not found:
        raise InputError("There is no run to read: name at least one run directory.")
    furthest: dict[str, Result] = {}
    for run in found.values():
        result, identity = _result(run), config_hash(read_config(run))
        other = furthest.get(identity)
        if other is None or result.done > other.done:
            furthest[identity] = result
    return list(furthest.values())


def configurations(results: Sequence[Result]) -> list[list[Result]]:
    """The runs of each configuration, by seed."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault((result.task, result.agent, result.label), []).append(result)
    return [sorted(group, key=lambda run: run.seed) for group in groups.values()]


def _result(path: Path) -> Result:
    config = read_config(path)
    metrics = RunDirectory(path).metrics
    rows = read_metrics(metrics) if metrics.is_file() else []
    maze = _maze_scores(path)
    try:
        started = sessions(path) if (path / MANIFEST).is_file() else [{}]
        for session in started:
            _check_session(session)
        dataset: Any = config.get("dataset")
        offline = dataset is not None
        curve = _curve(rows)
        last = max((row for row in rows if row["kind"] == "train"), key=_clock, default=None)
        nearest, changes = _nearest_preset(config, started[-1].get("command", []), offline)
        return Result(
            path=path,
            task=_text(config["task"]),
            agent=_text(config["agent"]),
            seed=int(config["seed"]),
            preset=nearest,
            changes=changes,
            settings=_flat(config["settings"]),
            metric="score" if offline and _scored(dataset) else "return",
            steps=np.array(sorted(curve), int),
            values=np.array([curve[step] for step in sorted(curve)], float),
            done=_clock(last) if last else int(maze.get("step", 0)),
            finished=_finished(last, started[-1]) if last else bool(maze),
            sessions=started,
            rows=rows,
            maze=maze,
            offline=offline,
            made_anew=offline
            and dataset["sha256"] not in {file.sha256 for file in V0_FILES.values()},
            note=_note(path),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"The run in {path} cannot be read ({type(error).__name__}: {error}): "
            f"repair its {CONFIG}, {MANIFEST} or metrics, or leave it out."
        ) from error


def _check_session(session: dict[str, Any]) -> None:
    for name, kind in SESSION.items():
        if session.get(name) is not None and not isinstance(session[name], kind):
            raise TypeError(f"{name} is {session[name]!r}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is no name")
    return value


def _clock(row: dict[str, Any]) -> int:
    return int(row.get("updates", row["step"]))


def _scored(dataset: dict[str, Any]) -> bool:
    return normalised_score(str(dataset.get("task")), 0.0) is not None


def _curve(rows: Iterable[dict[str, Any]]) -> dict[int, float]:
    curve = {
        _clock(row): float(row.get("score", row["return"]))
        for row in rows
        if row.get("kind") == "evaluation" and "return" in row
    }
    for step, value in curve.items():
        if not math.isfinite(value):
            raise ValueError(f"the return at step {step} is {value}")
    return curve


def _finished(last: dict[str, Any], session: dict[str, Any]) -> bool:
    """By the steps that the session was to reach; older manifests have only the command."""
    if "steps" in session:
        return last["step"] >= session["steps"]
    command = session.get("command", [])
    asked = command[command.index("--steps") + 1] if "--steps" in command[:-1] else None
    return asked is None or _clock(last) >= int(asked)


def _maze_scores(path: Path) -> dict[str, float]:
    file = path / SCORES
    if not file.is_file() or file.is_symlink():
        return {}
    try:
        return {name: float(value) for name, value in json.loads(file.read_bytes()).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{file} does not hold scores ({error}): `phimu heatmap` writes it again."
        ) from error


def _note(path: Path) -> str:
    """On one line."""
    file = path / NOTE
    if not file.is_file() or file.is_symlink():
        return ""
    return " ".join(file.read_text(encoding="utf-8", errors="replace").split())


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Nested settings by the last part of their names, which are unique; lists as text."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value)
        else:
            flat[name] = json.dumps(value) if isinstance(value, list) else value
    return flat


def _nearest_preset(
    config: dict[str, Any], command: Sequence[str], offline: bool
) -> tuple[str, Changes]:
    """The preset with the fewest changed settings; among equals the one that was asked for.

    Settings that only one side has came or went with a version of phimu, and are not compared.
    """
    here = _flat(config["settings"]) | _flat(config["schedule"])
    options = tuple(config.get("task_options", {}).items())
    nearest: tuple[int, bool, str, Changes] | None = None
    entry = AGENTS.get(config["agent"])
    if entry is None:  # an agent of another version
        return "unknown preset", options
    for name, chosen in entry.presets(offline).items():
        there = _flat(to_json(chosen.settings)) | _flat(to_json(chosen.schedule))
        changes = tuple(
            (field, value)
            for field, value in here.items()
            if field in there and field not in OBSERVING and value != there[field]
        )
        candidate = len(changes), name not in command, name, changes
        nearest = candidate if nearest is None else min(nearest, candidate, key=lambda c: c[:2])
    if nearest is None:
        return "unknown preset", options
    return nearest[2], nearest[3] + options
