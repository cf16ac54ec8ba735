"""Arrays out of an experiment's rows, and powers fitted to them with intervals over seeds."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phimu.reports import statistics

VARIED = {"size": "samples", "coverage": "coverage"}  # parts of `offline`, and the field of each
Summary = Callable[[np.ndarray], Any]  # over seeds, the first axis


class Power(NamedTuple):
    """The exponent of a power law, and its 95 % bootstrap interval over seeds."""

    value: float
    low: Any
    high: Any

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def cube(rows: Sequence[Any], field: str, *axes: str, **where: Any) -> tuple[list, np.ndarray]:
    """The values along the last of `axes`, ascending; `field` of every row that matches `where`."""
    chosen = [row for row in rows if all(getattr(row, key) == is_ for key, is_ in where.items())]
    found = {tuple(getattr(row, axis) for axis in axes): getattr(row, field) for row in chosen}
    ticks = [sorted(set(along)) for along in zip(*found, strict=True)]
    ordered = np.array([found[place] for place in sorted(found)])
    return ticks[-1], ordered.reshape([len(along) for along in ticks])


def suboptimalities(rows: Sequence[Any], part: str, plan: str) -> tuple[np.ndarray, np.ndarray]:
    """Of `offline`: sizes or C* (mean over gaps and seeds) [k], and values [seeds, gaps, k]."""
    at, values = (
        cube(rows, field, "seed", "gap", "share", "samples", part=part, plan=plan)[1]
        for field in (VARIED[part], "suboptimality")
    )
    at = at.mean(axis=(0, 1)).reshape(-1)  # either the share or the size is the same throughout
    order = at.argsort()
    return at[order], values.reshape(*values.shape[:2], -1)[:, :, order]


def reached(rows: Sequence[Any], varied: str) -> tuple[np.ndarray, np.ndarray]:
    """Of `scaling`: sizes at which every seed reached epsilon, and the samples [seeds, sizes]."""
    sizes, samples = cube(rows, "samples", "seed", "size", varied=varied)
    full = samples.all(axis=0)
    return np.array(sizes)[full], samples[:, full]


def mean(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=0)


def worst(values: np.ndarray) -> np.ndarray:
    """Over the gaps, of the means over the seeds: [k] of [seeds, gaps, k]."""
    return values.mean(axis=0).max(axis=0)


def interval(values: np.ndarray, summary: Summary) -> tuple[np.ndarray, np.ndarray]:
    """95 % bootstrap interval of a `summary` of values [seeds, ...]."""
    [drawn] = statistics.resampled([values], 1_000, np.random.default_rng(0))
    return statistics.interval(np.array([summary(one) for one in drawn]))


def power(sizes: np.ndarray, values: np.ndarray, summary: Summary = mean) -> Power:
    """Of `sizes`, to fit the `summary` of values [seeds, ..., sizes] in logs; or NaN."""

    def fitted(drawn: np.ndarray) -> float:
        heights = summary(drawn)
        if len(sizes) < 2 or heights.min() <= 0:
            return np.nan
        return np.polyfit(np.log(sizes), np.log(heights), 1)[0]

    return Power(fitted(values), *interval(values, fitted))


def regret_power(rows: Sequence[Any], algorithm: str, within: float) -> Power:
    """Of `online`: the power of n that fits the mean regret from N / within to N."""
    samples, regret = cube(rows, "regret", "seed", "samples", algorithm=algorithm)
    late = np.array(samples) >= samples[-1] / within
    return power(np.array(samples)[late], regret[:, late])
