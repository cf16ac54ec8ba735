"""What the page draws: learning curves, profiles and the metrics of each run, as plain JSON."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phimu.reports.comparison import Table, aggregates
from phimu.reports.curves import aligned
from phimu.reports.page.runs import Anchors, title
from phimu.reports.published import published
from phimu.reports.rows import Result, configurations
from phimu.studies.tables import STUDIES

POINTS = 120  # of a metric; more cannot be told apart in a small chart


def drawn(results: Sequence[Result], tables: Sequence[Table], anchors: Anchors) -> dict[str, Any]:
    return {
        "curves": _curves(results),
        "profiles": _profiles(tables),
        "runs": {anchors[run]: _metrics(run) for run in results},
    }


def _curves(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A panel per task: mean and range over the seeds that have got to each step."""
    panels: dict[str, dict[str, Any]] = {}
    for group in configurations([run for run in results if len(run.steps)]):
        first = group[0]
        panel = {
            "task": first.task,
            "title": title(first.task),
            "clock": "updates" if first.offline else "steps",
            "series": [],
            "published": _final_scores(first.task),
        }
        steps, values = aligned(group)
        series = {
            "agent": first.agent,
            "label": f"{first.agent} ({first.label})",
            "x": steps.tolist(),
            "mean": _short(np.nanmean(values, axis=0)),
            "low": _short(np.nanmin(values, axis=0)),
            "high": _short(np.nanmax(values, axis=0)),
            "count": np.isfinite(values).sum(axis=0).tolist(),
        }
        panels.setdefault(first.task, panel)["series"].append(series)
    return list(panels.values())


def _final_scores(task: str) -> list[dict[str, Any]]:
    """The paper's score of each agent of ours on this task."""
    agents = {
        (study.name, variant.published_method): variant.agent
        for study in STUDIES.values()
        for variant in study.variants
        if study.name.startswith("table") and not variant.settings
    }
    return [
        {"agent": agents[row.table, row.method], "label": f"paper: {row.method}", "value": row.mean}
        for row in published()
        if row.of_paper and row.task == task and (row.table, row.method) in agents
    ]


def _profiles(tables: Sequence[Table]) -> dict[str, Any]:
    return {
        f"{table.study.name}-{index}": {
            "x": _short(each.thresholds),
            "series": [
                {"label": label, "mean": _short(mean), "low": _short(low), "high": _short(high)}
                for label, (mean, low, high) in zip(each.labels, each.profiles, strict=True)
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
