"""What the page draws: learning curves, profiles and the metrics of each run, as plain JSON."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phimu.reports.aggregates import aggregates
from phimu.reports.comparison import Table
from phimu.reports.page.runs import title
from phimu.reports.published import published
from phimu.reports.rows import Result, configurations
from phimu.studies.tables import STUDIES

POINTS = 120  # of a metric; more cannot be told apart in a small chart


def drawn(
    results: Sequence[Result], tables: Sequence[Table], anchors: dict[str, str]
) -> dict[str, Any]:
    return {
        "curves": _curves(results),
        "profiles": _profiles(tables),
        "runs": {anchors[str(run.path)]: _metrics(run) for run in results},
    }


def _curves(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A panel per task: mean and range over the seeds that have got to each step."""
    panels: dict[str, dict[str, Any]] = {}
    for group in configurations([run for run in results if len(run.steps)]):
        first = group[0]
        panel = panels.setdefault(
            first.task,
            {
                "task": first.task,
                "title": title(first.task),
                "clock": "updates" if first.offline else "steps",
                "series": [],
                "published": _final_scores(first.task),
            },
        )
        steps = np.unique(np.concatenate([run.steps for run in group]))
        columns = [
            np.concatenate([run.values[run.steps == step] for run in group]) for step in steps
        ]
        panel["series"].append(
            {
                "agent": first.agent,
                "label": f"{first.agent} ({first.label})",
                "x": steps.tolist(),
                "mean": _short([column.mean() for column in columns]),
                "low": _short([column.min() for column in columns]),
                "high": _short([column.max() for column in columns]),
                "count": [len(column) for column in columns],
            }
        )
    return list(panels.values())


def _final_scores(task: str) -> list[dict[str, Any]]:
    """The paper's score of each agent of ours on this task."""
    found = []
    for study in STUDIES.values():
        if study.name.startswith("table") and task in study.tasks:
            for variant in (each for each in study.variants if not each.settings):
                found += [
                    {"agent": variant.agent, "label": f"paper: {row.method}", "value": row.mean}
                    for row in published()
                    if (row.table, row.task, row.method)
                    == (study.name, task, variant.published_method)
                    and row.of_paper
                ]
    return found


def _profiles(tables: Sequence[Table]) -> dict[str, Any]:
    return {
        f"{table.study.name}-{index}": {
            "x": _short(each.thresholds),
            "series": [
                {
                    "label": label,
                    "mean": _short(profile.value),
                    "low": _short(profile.low),
                    "high": _short(profile.high),
                }
                for label, profile in zip(each.labels, each.profiles, strict=True)
            ],
        }
        for table in tables
        for index, each in enumerate(aggregates(table))
    }


def _metrics(run: Result) -> list[dict[str, Any]]:
    """Each number of the log against its step, thinned; those with the same steps together."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in run.rows:
        for name, value in row.items():
            plain = isinstance(value, float) and math.isfinite(value)
            if plain and name not in ("updates", "simulator_steps"):
                found.setdefault(f"{row['kind']}: {name}", []).append((row["step"], value))
    thinned = {name: points[:: 1 + (len(points) - 1) // POINTS] for name, points in found.items()}
    groups: dict[tuple[int, ...], dict[str, list[float]]] = {}
    for name, points in thinned.items():
        if len(points) > 1:
            steps, values = zip(*points, strict=True)
            groups.setdefault(steps, {})[name] = _short(values)
    return [{"x": steps, "y": series} for steps, series in groups.items()]


def _short(values: Any) -> list[float]:
    """Five digits are more than can be seen."""
    return [float(f"{float(value):.5g}") for value in values]
