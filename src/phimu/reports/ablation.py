"""One change at a time: every variant of a study on one task at one step, beside the first."""

from collections.abc import Sequence

import numpy as np

from phimu.reports.comparison import place
from phimu.reports.duels import score_at, with_interval
from phimu.reports.markdown import grid, plain
from phimu.reports.numbers import NOT_RUN
from phimu.reports.rows import Result
from phimu.reports.statistics import bootstrap, difference_of_means
from phimu.studies.study import Study


def ablation_grid(study: Study, task: str, steps: int, results: Sequence[Result]) -> str:
    """A row for each variant: its mean over seeds, and how far that is from the first variant's.

    Both with 95 % intervals of a bootstrap over seeds, where there are two or more of each.
    """
    runs = [
        (run, place(run))
        for run in results
        if run.task == task and len(run.steps) and run.steps[-1] >= steps
    ]
    scores = [
        np.array(
            [score_at(run, steps) for run, places in runs if (study.name, index, ()) in places]
        )
        for index in range(len(study.variants))
    ]
    rows = []
    for variant, own in zip(study.variants, scores, strict=True):
        mean = with_interval(bootstrap(_mean, [own]), own) if len(own) else NOT_RUN
        rows.append([plain(variant.label), str(len(own)), mean, _apart(own, scores[0])])
    first = study.variants[0].label
    return grid(["variant", "seeds", "mean", f"less {plain(first)}"], rows)


def _mean(scores: Sequence[np.ndarray]) -> np.ndarray:
    return scores[0].mean(axis=-1)


def _apart(own: np.ndarray, first: np.ndarray) -> str:
    if own is first or not len(own) or not len(first):
        return ""
    return with_interval(difference_of_means(own, first), own, first)
