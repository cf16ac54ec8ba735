"""Learning curves: what the seeds of a configuration scored, and when."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phimu.errors import InputError
from phimu.reports.rows import Result, differing, evaluations, reached, read_runs

EVALUATION = "evaluation"  # the metric that is drawn unless another is asked for


class Curve(NamedTuple):
    """The evaluations of one configuration under several seeds."""

    label: str
    steps: np.ndarray  # [steps]
    values: np.ndarray  # [seeds, steps]
    clock: str = "environment steps"  # what the steps count
    measure: str = "return"  # what the values are


def curves_of_runs(
    paths: Sequence[Path], metric: str = EVALUATION
) -> list[tuple[str, list[Curve]]]:
    """The curves of each task, in the order in which the tasks, then the runs, are first met.

    `metric` is the evaluation, or a number of the training rows, such as their `return`.
    """
    by_task: dict[str, dict[tuple[Path, str], list[Result]]] = {}
    for run in read_runs(paths):
        if metric != EVALUATION:
            steps, values = _series(run.rows, metric)
            run = replace(run, steps=steps, values=values)
        if not len(run.steps):
            raise InputError(_nothing(f"The run in {run.path}", run.rows, metric))
        # The parent is the configuration; its hash too, lest a renamed directory mix two of them.
        place = run.path.resolve().parent, run.config
        by_task.setdefault(run.task, {}).setdefault(place, []).append(run)
    return [(task, _curves(list(groups.values()), metric)) for task, groups in by_task.items()]


def curve_of_rows(
    rows: Sequence[dict[str, Any]], metric: str | None, label: str, offline: bool
) -> Curve:
    """One run's; without a metric the evaluation, or else the training return."""
    for name in (EVALUATION, "return") if metric is None else (metric,):
        steps, values = _series(rows, name)
        if len(steps):
            scored = any("score" in row for row in rows)
            return Curve(label, steps, values[None], _clock(offline), _measure(name, scored))
    raise InputError(_nothing("The history", rows, metric or EVALUATION))


def _series(rows: Sequence[dict[str, Any]], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Of the evaluations, or of one number of the training rows."""
    if metric == EVALUATION:
        return evaluations(rows)
    found = {
        reached(row): float(row[metric])
        for row in rows
        if row["kind"] == "train" and isinstance(row.get(metric), int | float)
    }
    steps = sorted(found)
    return np.array(steps, int), np.array([found[step] for step in steps], float)


def _nothing(whose: str, rows: Iterable[dict[str, Any]], metric: str) -> str:
    """The sentence for a metric that is not there."""
    known = dict.fromkeys(name for row in rows if row["kind"] == "train" for name in row)
    names = [name for name in known if name not in ("step", "kind", "updates")]
    choice = f"choose another metric ({', '.join(names)}), or wait" if names else "let it learn"
    return f"{whose} has no {metric} yet: {choice}."


def _clock(offline: bool) -> str:
    return "updates of the policy" if offline else "environment steps"


def _measure(metric: str, scored: bool) -> str:
    if metric == EVALUATION:
        return "D4RL's normalised score" if scored else "return"
    return "return of the last ten training episodes" if metric == "return" else metric


def aligned(group: Sequence[Result]) -> tuple[np.ndarray, np.ndarray]:
    """Every step that a run was evaluated at, and [runs, steps] scores, NaN where there is none."""
    steps = np.unique(np.concatenate([run.steps for run in group]))
    values = np.full((len(group), len(steps)), np.nan)
    for row, run in zip(values, group, strict=True):
        row[np.searchsorted(steps, run.steps)] = run.values
    return steps, values


def _curves(groups: Sequence[list[Result]], metric: str) -> list[Curve]:
    """Of the groups of one task, over the steps that all seeds of a group have reached."""
    found = []
    for label, group in zip(_labels(groups), groups, strict=True):
        steps, values = aligned(sorted(group, key=lambda run: run.seed))
        common = ~np.isnan(values).any(axis=0)
        first = group[0]
        if not common.any():
            raise InputError(
                f"The seeds in {first.path.parent} have no evaluation step in common: "
                "name one alone."
            )
        measure = _measure(metric, first.metric == "score")
        found.append(Curve(label, steps[common], values[:, common], _clock(first.offline), measure))
    return found


def _labels(groups: Sequence[list[Result]]) -> list[str]:
    """The agent; then, where two are equal, the settings that differ; then the directory."""
    firsts = [group[0] for group in groups]
    settings = [run.settings | dict(run.changes) for run in firsts]  # with options of the task
    labels = []
    for run, own in zip(firsts, settings, strict=True):
        beside = zip(firsts, settings, strict=True)
        names = sorted(differing(each for other, each in beside if other.agent == run.agent))
        differs = ", ".join(f"{name}={own.get(name, '-')}" for name in names)
        labels.append(f"{run.agent} ({differs})" if differs else run.agent)
    return [
        f"{label} ({run.path.parent})" if labels.count(label) > 1 else label
        for label, run in zip(labels, firsts, strict=True)
    ]
