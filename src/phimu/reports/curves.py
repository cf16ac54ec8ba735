"""Learning curves: what the seeds of a configuration scored, and when."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from phimu.errors import InputError
from phimu.reports.rows import Result, differing, read_runs


class Curve(NamedTuple):
    """The evaluations of one configuration under several seeds."""

    label: str
    steps: np.ndarray  # [steps]
    values: np.ndarray  # [seeds, steps]
    clock: str = "environment steps"  # what the steps count
    measure: str = "return"  # what the values are


def curves_of_runs(paths: Sequence[Path]) -> list[tuple[str, list[Curve]]]:
    """The curves of each task, in the order in which the tasks, then the runs, are first met."""
    by_task: dict[str, dict[tuple[Path, str], list[Result]]] = {}
    for run in read_runs(paths):
        if not len(run.steps):
            raise InputError(
                f"The run in {run.path} has no evaluation yet: wait for one, or leave it out."
            )
        # The parent is the configuration; its hash too, lest a renamed directory mix two of them.
        place = run.path.resolve().parent, run.config
        by_task.setdefault(run.task, {}).setdefault(place, []).append(run)
    return [(task, _curves(list(groups.values()))) for task, groups in by_task.items()]


def aligned(group: Sequence[Result]) -> tuple[np.ndarray, np.ndarray]:
    """Every step that a run was evaluated at, and [runs, steps] scores, NaN where there is none."""
    steps = np.unique(np.concatenate([run.steps for run in group]))
    values = np.full((len(group), len(steps)), np.nan)
    for row, run in zip(values, group, strict=True):
        row[np.searchsorted(steps, run.steps)] = run.values
    return steps, values


def _curves(groups: Sequence[list[Result]]) -> list[Curve]:
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
        clock = "updates of the policy" if first.offline else "environment steps"
        measure = "D4RL's normalised score" if first.metric == "score" else "return"
        found.append(Curve(label, steps[common], values[:, common], clock, measure))
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
