"""The base measure p(s'), which ratios are to: the noise that s' was told apart from, as points."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from phimu.errors import InputError
from phimu.representation.negatives import Negatives
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun
from phimu.training.streams import BASE, stream

POINTS = 16_384  # that an integral over s' is estimated from, where there are more
PART = 2_048  # of them at a time, for memory


class BaseMeasure(NamedTuple):
    """Weighted points; a mean under p is the weighted sum over them."""

    points: np.ndarray  # [N, observation_dim], as the environment or data has them
    weights: np.ndarray  # [N], summing to one

    def log_mean_exp(self, log_ratio: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """log E_p exp(log_ratio(s')): [B], for a function from s' [K, ...] to [B, K]."""
        parts = []
        for start in range(0, len(self.points), PART):
            rows = slice(start, start + PART)
            logs = np.asarray(log_ratio(self.points[rows]), np.float64)
            parts.append(logsumexp(logs, axis=1, b=self.weights[None, rows]))
        return logsumexp(np.stack(parts), axis=0)


def mixture(
    parts: list[tuple[float, np.ndarray]], most: int | None, rng: np.random.Generator
) -> BaseMeasure:
    """Of sets of points [n, ...] by their shares; of more than `most` in all, a sample of each.

    A point is drawn at most once. Sets that have no share, or no point, are left out.
    """
    parts = [(share, points) for share, points in parts if share and len(points)]
    total, chosen, weights = sum(share for share, _ in parts), [], []
    for share, points in parts:
        size = len(points) if most is None else max(1, round(most * share / total))
        if size < len(points):
            points = points[np.sort(rng.choice(len(points), size, replace=False))]
        chosen.append(points)
        weights.append(np.full(len(points), share / total / len(points)))
    return BaseMeasure(np.concatenate(chosen), np.concatenate(weights))


def base_measure(run: OnlineRun | OfflineRun, most: int | None = POINTS) -> BaseMeasure:
    """The mixture of in-batch, replay and random-trajectory negatives, from what the run stores.

    With `most` it is a sample, drawn by NumPy's generator from the run's seed and step: the same
    one until the run goes on, also after it was saved and loaded.
    """
    stored, random_next = run.next_observations()
    if not len(stored):
        raise InputError("There is no next observation yet to integrate over: learn first.")
    noise = getattr(getattr(run.agent, "representation", None), "noise", None)
    share = noise.share_of_random(run.schedule.batch_size) if isinstance(noise, Negatives) else 0.0
    rng = stream(run.seed, BASE, run.step)
    return mixture([(1 - share, stored), (share, random_next)], most, rng)


def of_points(points: np.ndarray, rng: Any) -> BaseMeasure:
    """All of them, or a sample, with equal weights."""
    return mixture([(1.0, points)], POINTS, rng)
