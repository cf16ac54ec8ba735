"""What statistics say of a table's runs as a whole."""

from typing import NamedTuple

import numpy as np

from phimu.environments.catalogue import catalogue
from phimu.reports.comparison import Row, Table
from phimu.reports.statistics import (
    Estimate,
    bootstrap,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)


class Aggregate(NamedTuple):
    """What statistics say of the variants that ran under one preset, on the tasks all of them ran.

    Scores are normalised: 0 is a random policy on MBBL's tasks and 1 its SAC; DM Control's returns
    are divided by 1000, D4RL's scores by 100.
    """

    detail: str
    tasks: list[str]
    labels: list[str]
    middle: list[Estimate]  # interquartile means
    thresholds: np.ndarray
    profiles: list[Estimate]
    improvement: list[list[Estimate | None]]  # [i][j]: of i over j


def aggregates(table: Table) -> list[Aggregate]:
    by_detail: dict[str, list[int]] = {}
    for index, column in enumerate(table.columns):
        if column.whose == "ours" and column.detail:
            by_detail.setdefault(column.detail, []).append(index)
    found = []
    for detail, indices in by_detail.items():
        shared = [row for row in table.rows if all(row.cells[i] is not None for i in indices)]
        if shared and len(indices) > 1:
            scores = [[_normalised(row, index) for row in shared] for index in indices]
            labels = [table.columns[index].heading for index in indices]
            found.append(_aggregate(detail, [row.title for row in shared], labels, scores))
    return found


def _aggregate(
    detail: str, tasks: list[str], labels: list[str], scores: list[list[np.ndarray]]
) -> Aggregate:
    pooled = np.concatenate([task for each in scores for task in each])
    thresholds = np.linspace(min(0.0, pooled.min()), max(1.2, 1.05 * pooled.max()), 61)
    return Aggregate(
        detail,
        tasks,
        labels,
        [bootstrap(interquartile_mean, each) for each in scores],
        thresholds,
        [bootstrap(lambda x: performance_profile(x, thresholds), each) for each in scores],
        [
            [None if x is y else bootstrap(probability_of_improvement, x, y) for y in scores]
            for x in scores
        ],
    )


def _normalised(row: Row, index: int) -> np.ndarray:
    """[seeds] scores of one cell."""
    cell = row.cells[index]
    runs = () if cell is None else cell.runs
    low, high = _scale(row.task)
    return (np.array([run.score for run in runs], float) - low) / (high - low)


def _scale(task: str) -> tuple[float, float]:
    if task.startswith("mbbl/"):
        scores = next(entry.scores for entry in catalogue() if entry.task == task)
        return scores["random"].mean, scores["sac"].mean
    return (0.0, 1_000.0) if task.startswith("dmc/") else (0.0, 100.0)
