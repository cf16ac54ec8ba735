"""Learning curves, read from run directories."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phimu.data.sets.scores import normalised_score
from phimu.errors import InputError
from phimu.runs.directory import CONFIG, RunDirectory, read_config
from phimu.runs.json_form import config_hash
from phimu.runs.log import read_metrics

Returns = dict[int, float]  # step to return


class Curve(NamedTuple):
    """The evaluations of one configuration under several seeds."""

    label: str
    steps: np.ndarray  # [steps]
    values: np.ndarray  # [seeds, steps]
    clock: str = "environment steps"  # what the steps count
    measure: str = "return"  # what the values are


class _Group(NamedTuple):
    """The seeds of one configuration."""

    directory: Path  # the parent of the runs
    config: dict[str, Any]  # without the seed
    seeds: list[tuple[int, Returns]]


def curves_of_runs(runs: Sequence[Path]) -> list[tuple[str, list[Curve]]]:
    """The curves of each task, in the order in which the tasks, then the runs, are first met.

    A directory that is no run itself stands for all the runs below it.
    """
    by_task: dict[str, list[_Group]] = {}
    for group in _grouped(runs):
        by_task.setdefault(group.config["task"], []).append(group)
    return [
        (
            task,
            [_curve(label, group) for label, group in zip(_labels(groups), groups, strict=True)],
        )
        for task, groups in by_task.items()
    ]


def _grouped(runs: Sequence[Path]) -> list[_Group]:
    groups: dict[tuple[Path, str], _Group] = {}
    for run in find_runs(runs):
        config = read_config(run)
        for name in ("task", "agent"):
            if not isinstance(config.get(name), str):
                raise InputError(f"{run / CONFIG} names no {name}: name the directory of a run.")
        seed = config.pop("seed", 0)
        # The parent is the configuration; its hash too, lest a renamed directory mix two of them.
        key = run.resolve().parent, config_hash(config)
        group = groups.setdefault(key, _Group(run.parent, config, []))
        group.seeds.append((seed, _returns(run)))
    return list(groups.values())


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Every run at or below these paths, each once."""
    found = {run.resolve(): run for path in paths for run in _runs_below(Path(path))}
    if not found:
        raise InputError("There is no run to read: name at least one run directory.")
    return list(found.values())


def _runs_below(path: Path) -> Iterator[Path]:
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


def _returns(run: Path) -> Returns:
    metrics = RunDirectory(run).metrics
    rows = read_metrics(metrics) if metrics.exists() else []
    returns = evaluations(rows)
    if not returns:
        raise InputError(f"The run in {run} has no evaluation yet: wait for one, or leave it out.")
    return returns


def evaluations(rows: Iterable[dict[str, Any]]) -> Returns:
    """The return, or D4RL's score where there is one, of each evaluation in a log."""
    return {
        reached(row): float(row.get("score", row["return"]))
        for row in rows
        if row.get("kind") == "evaluation" and "return" in row
    }


def reached(row: dict[str, Any]) -> int:
    """Environment steps; on logged data updates of the policy."""
    return int(row.get("updates", row["step"]))


def is_scored(dataset: dict[str, Any] | None) -> bool:
    """Whether runs on this dataset have D4RL's normalised score."""
    return dataset is not None and normalised_score(str(dataset.get("task")), 0.0) is not None


def _curve(label: str, group: _Group) -> Curve:
    """The steps that all seeds have reached; the first seed first."""
    returns = [seed_returns for _, seed_returns in sorted(group.seeds, key=lambda seed: seed[0])]
    steps = sorted(set.intersection(*(set(each) for each in returns)))
    if not steps:
        raise InputError(
            f"The seeds in {group.directory} have no evaluation step in common: name one alone."
        )
    values = np.array([[each[s] for s in steps] for each in returns])
    dataset = group.config.get("dataset")
    if dataset is None:
        return Curve(label, np.array(steps), values)
    measure = "D4RL's normalised score" if is_scored(dataset) else "return"
    return Curve(label, np.array(steps), values, "updates of the policy", measure)


def _labels(groups: Sequence[_Group]) -> list[str]:
    """The agent; then, where two are equal, the fields that differ; then the directory."""
    by_agent: dict[str, list[_Group]] = {}
    for group in groups:
        by_agent.setdefault(group.config["agent"], []).append(group)
    labels = []
    for group in groups:
        agent = group.config["agent"]
        differs = _differing_fields(group.config, [same.config for same in by_agent[agent]])
        labels.append(f"{agent} ({differs})" if differs else agent)
    return [
        f"{label} ({group.directory})" if labels.count(label) > 1 else label
        for label, group in zip(labels, groups, strict=True)
    ]


def _differing_fields(config: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Such as "bonus_scale=5.0, ridge=1.0"; dotted where the last part of a name is not enough."""
    own, *flat = (_dotted(each) for each in (config, *others))
    fields = sorted({name for each in flat for name in each})
    names = [name for name in fields if len({each.get(name, "-") for each in flat}) > 1]
    last = {name: name.rpartition(".")[2] for name in names}
    shown = {n: n if list(last.values()).count(last[n]) > 1 else last[n] for n in names}
    return ", ".join(f"{shown[name]}={own.get(name, '-')}" for name in names)


def _dotted(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Every field by its whole name, as text."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= _dotted(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value if isinstance(value, str) else json.dumps(value)
    return flat
