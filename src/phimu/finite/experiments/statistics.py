"""Intervals over seeds and slopes on log axes."""

from collections.abc import Callable

import numpy as np

RESAMPLES = 1_000


def interval(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray | float]
) -> tuple[np.ndarray, np.ndarray]:
    """95 % bootstrap interval of `statistic`, which takes [seeds, ...], by drawing seeds anew."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    found = np.array([statistic(values[index]) for index in drawn])
    low, high = np.quantile(found, [0.025, 0.975], axis=0)
    return low, high


def mean(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=0)


def slope(sizes: np.ndarray, values: np.ndarray) -> float:
    """The power of `sizes` that fits `values` best in the least squares of their logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
