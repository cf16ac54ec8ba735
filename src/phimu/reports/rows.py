"""Runs as rows: what was trained, how far, how well, by which command.

A run directory and its text in `results/` (config, manifest, metrics, a maze's scores) read alike.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from phimu.agents import PRESETS, preset
from phimu.data.sets.scores import V0_FILES, normalised_score
from phimu.errors import InputError
from phimu.runs.directory import CONFIG, MANIFEST, RunDirectory, read_config, sessions
from phimu.runs.json_form import config_hash, to_json
from phimu.runs.log import read_metrics
from phimu.studies.study import WINDOW

# Settings of a schedule that do not change what is learned.
OBSERVING = {"evaluate_every", "evaluation_episodes", "checkpoint_every", "log_every"}
# Settings that came with a version: what stood where they stand now, and what was done before.
LATER: dict[str, tuple[str, Any]] = {
    "target_every": ("target_rate", 0),
    "feature_every": ("next_noise", 0),
    "levels": ("next_noise", "[]"),
    "extra_entropy": ("target_entropy", 0.0),
    "error_bound": ("target_entropy", None),
}
SCORES = "scores.json"
NOTE = "note.txt"
# What is read of a session, where it is there at all.
SESSION: dict[str, Any] = {
    "command": list,
    "versions": dict,
    "revision": dict,
    "steps": int,
    "seconds": int | float,
    "preset": str,
    "study": str,
    "variant": str,
}
D4RL_SHA256 = {file.sha256 for file in V0_FILES.values()}

Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Result:
    path: Path
    config: str  # the hash of its configuration, which its other seeds share
    task: str  # a Gymnasium id; offline the name of the dataset
    agent: str
    seed: int
    preset: str  # as the manifest says; of older runs the one whose settings are nearest
    changes: Changes  # from the preset, by name, then options of the task; lists as their text
    study: str  # that it was a run of, as the manifest says; or nothing
    variant: str  # its label in that study
    settings: dict[str, Any]  # of agent and schedule, as far as they change what is learned
    metric: str  # `return`, or offline D4RL's `score` where there is one
    steps: np.ndarray  # [evaluations] when; offline in updates of the policy
    values: np.ndarray  # [evaluations] what was scored
    done: int  # environment steps, or updates of the policy, that the log has reached
    finished: bool  # whether it got as far as its last command asked for
    sessions: list[dict[str, Any]]  # the manifest, then each later start
    rows: list[dict[str, Any]]  # the metrics
    maze: dict[str, float]  # the scores that `phimu heatmap` wrote; empty elsewhere
    dataset: str | None  # the sha256 of the logged data that it learned from, if it did
    note: str  # of note.txt: what a reader of its score should know

    @property
    def offline(self) -> bool:
        return self.dataset is not None

    @property
    def regenerated(self) -> bool:
        """Whether it learned from a dataset that is not one of D4RL's files."""
        return self.offline and self.dataset not in D4RL_SHA256

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
    furthest: dict[tuple[str, int], Result] = {}
    for run in read_runs(paths):
        other = furthest.get((run.config, run.seed))
        if other is None or run.done > other.done:
            furthest[run.config, run.seed] = run
    return list(furthest.values())


def read_runs(paths: Sequence[Path]) -> list[Result]:
    found = {run.resolve(): run for path in paths for run in runs_below(path)}
    if not found:
        raise InputError("There is no run to read: name at least one run directory.")
    return [_result(run, read_config(run)) for run in found.values()]


def runs_below(path: Path) -> Iterator[Path]:
    """`path` itself if it is a run, otherwise every run below it, sorted by name."""
    none = True
    for directory, inner, files in os.walk(path):
        inner.sort()
        if CONFIG in files:
            inner.clear()  # what lies inside of a run is no other run
            none = False
            yield Path(directory)
    if none:
        raise InputError(f"There is no run in {path}: name a directory that has {CONFIG} below it.")


def configurations(results: Sequence[Result]) -> list[list[Result]]:
    """The runs of each configuration, by seed."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault((result.task, result.agent, result.label), []).append(result)
    return [sorted(group, key=lambda run: run.seed) for group in groups.values()]


def maze_groups(results: Sequence[Result]) -> list[list[Result]]:
    return [group for group in configurations(results) if any(run.maze for run in group)]


def differing(settings: Iterable[dict[str, Any]]) -> list[str]:
    """The settings that two of these have and set differently, in the order of first meeting."""
    values: dict[str, list[Any]] = {}
    for each in settings:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    return [name for name, found in values.items() if any(value != found[0] for value in found)]


def _result(path: Path, config: dict[str, Any]) -> Result:
    for name in ("task", "agent"):
        if not config.get(name) or not isinstance(config[name], str):
            raise InputError(f"{path / CONFIG} names no {name}: name the directory of a run.")
    metrics = RunDirectory(path).metrics
    rows = read_metrics(metrics) if metrics.is_file() else []
    maze = _maze_scores(path)
    try:
        started = sessions(path) if (path / MANIFEST).is_file() else [{}]
        for session, (name, kind) in product(started, SESSION.items()):
            if session.get(name) is not None and not isinstance(session[name], kind):
                raise TypeError(f"{name} is {session[name]!r}")
        dataset: Any = config.get("dataset")
        steps, values = evaluations(rows)
        last = max((row for row in rows if row["kind"] == "train"), key=reached, default=None)
        settings = _settings(config["settings"], config["schedule"])
        preset_name, changes = _preset_and_changes(config, settings, started)
        scored = dataset and normalised_score(str(dataset.get("task")), 0.0) is not None
        return Result(
            path=path,
            config=config_hash({name: config[name] for name in config if name != "seed"}),
            task=config["task"],
            agent=config["agent"],
            seed=int(config["seed"]),
            preset=preset_name,
            changes=changes,
            study=started[0].get("study") or "",
            variant=started[0].get("variant") or "",
            settings=settings,
            metric="score" if scored else "return",
            steps=steps,
            values=values,
            done=reached(last) if last else int(maze.get("step", 0)),
            finished=_finished(last, started[-1]) if last else bool(maze),
            sessions=started,
            rows=rows,
            maze=maze,
            dataset=None if dataset is None else str(dataset["sha256"]),
            note=" ".join(_own_text(path / NOTE).split()),  # on one line
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"The run in {path} cannot be read ({type(error).__name__}: {error}): "
            f"repair its {CONFIG}, {MANIFEST} or metrics, or leave it out."
        ) from error


def evaluations(rows: Iterable[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """When, and the return, or D4RL's score where there is one."""
    found = {
        reached(row): float(row.get("score", row["return"]))
        for row in rows
        if row["kind"] == "evaluation" and "return" in row
    }
    if not all(map(math.isfinite, found.values())):
        raise ValueError("a return is not finite")
    steps = sorted(found)
    return np.array(steps, int), np.array([found[step] for step in steps], float)


def reached(row: dict[str, Any]) -> int:
    """Environment steps; on logged data updates of the policy."""
    return int(row.get("updates", row["step"]))


def _finished(last: dict[str, Any], session: dict[str, Any]) -> bool:
    """By the steps that the session was to reach; older manifests have only the command."""
    if "steps" in session:
        return last["step"] >= session["steps"]
    command = session.get("command", [])
    asked = command[command.index("--steps") + 1] if "--steps" in command[:-1] else None
    return asked is None or reached(last) >= int(asked)


def _maze_scores(path: Path) -> dict[str, float]:
    try:
        found = json.loads(_own_text(path / SCORES) or "{}")
        return {name: float(value) for name, value in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path / SCORES} does not hold scores ({error}): `phimu heatmap` writes it again."
        ) from error


def _own_text(file: Path) -> str:
    """Nothing if it is not there, or a link, which could lead out of the run."""
    if not file.is_file() or file.is_symlink():
        return ""
    return file.read_text(encoding="utf-8", errors="replace")


def _settings(settings: dict[str, Any], schedule: dict[str, Any]) -> dict[str, Any]:
    """Both together, for settings have moved from one to the other, without those that observe."""
    both = _flat(settings) | _flat(schedule)
    before = {name: value for name, (near, value) in LATER.items() if near in both}
    return {name: value for name, value in (before | both).items() if name not in OBSERVING}


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by their own names, which are unique; lists as text, a chosen part by its kind."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            inner = dict(value)
            if "kind" in inner:
                flat[name] = inner.pop("kind")
            flat |= _flat(inner)
        else:
            flat[name] = as_text(value)
    return flat


def as_text(value: Any) -> Any:
    """Several numbers as one text, which can be compared and hashed; all else as it is."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _preset_and_changes(
    config: dict[str, Any], settings: dict[str, Any], started: Sequence[dict[str, Any]]
) -> tuple[str, Changes]:
    """The preset that the manifest names, and what differs from it.

    Older manifests name none: then it is the one in the command, or else the preset with the fewest
    changed settings. Settings that only one side has came or went with a version of phimu, and are
    not compared.
    """
    options = tuple(config.get("task_options", {}).items())
    offline, stated = config.get("dataset") is not None, started[0].get("preset")
    command = started[-1].get("command", [])
    found: list[tuple[str, Changes]] = []
    for name in [stated] if stated else PRESETS:
        try:
            chosen = preset(config["agent"], name, offline)
        except InputError:  # an agent or a preset of another version
            continue
        there = _settings(to_json(chosen.settings), to_json(chosen.schedule))
        differ = [each for each in settings if each in there and settings[each] != there[each]]
        found.append((name, tuple((each, settings[each]) for each in sorted(differ))))
    if not found:
        return stated or "unknown preset", options
    nearest, changes = min(found, key=lambda each: (each[0] not in command, len(each[1])))
    return nearest, changes + options
