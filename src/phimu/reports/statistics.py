"""Statistics over few runs of several tasks: IQM, stratified bootstrap, profiles, improvement.

As in "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (Agarwal et al., 2021)
and its library rliable, but tasks may have different numbers of runs. Plain NumPy, so that an
environment that has rliable can load this file and compare.

Scores are one array per task, [..., runs]; leading axes, as that of bootstrap samples, are kept.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Scores = Sequence[np.ndarray]


class Estimate(NamedTuple):
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def mean_and_std(values: np.ndarray) -> tuple[float, float | None]:
    """Over seeds; the spread is that of a sample (n - 1), which a single run does not have."""
    values = np.asarray(values, float)
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None


def interquartile_mean(scores: Scores) -> np.ndarray:
    """The mean of the middle half of all runs of all tasks."""
    values = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = values.shape[-1] // 4
    return values[..., cut : values.shape[-1] - cut].mean(axis=-1)


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """[..., thresholds]: the share of all runs above each threshold."""
    values = np.concatenate(scores, axis=-1)
    return (values[..., None, :] > np.asarray(thresholds)[:, None]).mean(axis=-1)


def probability_of_improvement(ours: Scores, theirs: Scores) -> np.ndarray:
    """How often a run of ours is above one of theirs, a tie being half; the mean over tasks."""
    pairs = [(x[..., :, None], y[..., None, :]) for x, y in zip(ours, theirs, strict=True)]
    return np.mean([((x > y) + 0.5 * (x == y)).mean(axis=(-2, -1)) for x, y in pairs], axis=0)


def resampled(scores: Scores, repetitions: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Bootstrap samples, [repetitions, runs] per task: the runs of a task stay with it."""
    return [
        task[rng.integers(len(task), size=(repetitions, len(task)))]
        for task in (np.asarray(task, float) for task in scores)
    ]


def interval(samples: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """The percentile interval of a statistic of bootstrap samples [repetitions, ...]."""
    tail = 50 * (1 - level)
    low, high = np.percentile(samples, [tail, 100 - tail], axis=0)
    return low, high


def bootstrap(
    statistic: Callable[..., np.ndarray], *scores: Scores, repetitions: int = 2_000, seed: int = 0
) -> Estimate:
    """A statistic with its 95% interval; several methods are resampled independently."""
    rng = np.random.default_rng(seed)
    drawn = [resampled(each, repetitions, rng) for each in scores]
    return Estimate(statistic(*scores), *interval(statistic(*drawn)))


def difference_of_means(ours: np.ndarray, theirs: np.ndarray) -> Estimate:
    """Over seeds [n] and [m] of one task."""
    return bootstrap(lambda a, b: a[0].mean(axis=-1) - b[0].mean(axis=-1), [ours], [theirs])
