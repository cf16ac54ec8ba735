"""Linear probes of phi: what a linear critic on it could know, by least squares on held-out rows.

Return alone does not say why one representation is better than another. A phi that tells s' apart
may still have forgotten the reward, or hardly change with the action.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from phimu.errors import InputError
from phimu.types import Batch

Phi = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (observation, action) -> [B, d]

HELD_OUT = 0.1  # the share of rows that come last
RIDGE = 0.1
CHUNK = 8_192


class Probes(NamedTuple):
    """Shares of variance on held-out rows that are linear in phi, and two properties of phi."""

    change: float  # of s' - s, mean over its components
    action: float
    reward: float
    observation: float
    action_share: float  # |phi(s, a) - phi(s, a~)|^2 for another row's a~, over that of two rows
    dimensions: int  # principal directions that hold 99 % of phi's variance


def probe(phi: Phi, batch: Batch, seed: int = 0) -> Probes:
    """Probe phi on transitions in the order of their collection."""
    rows = len(batch.reward)
    if rows < 100:
        raise InputError(f"There are {rows} transitions to probe phi on: give at least 100.")
    rng = np.random.default_rng(seed)
    features = _chunked(phi, batch.observation, batch.action)
    swapped = _chunked(phi, batch.observation, batch.action[rng.permutation(rows)])
    apart = _distance(features, features[rng.permutation(rows)])
    spectrum = np.linalg.eigvalsh(np.cov(features.T))[::-1]
    cumulated = np.cumsum(spectrum) / spectrum.sum()
    return Probes(
        change=explained(features, batch.next_observation - batch.observation),
        action=explained(features, batch.action),
        reward=explained(features, batch.reward[:, None]),
        observation=explained(features, batch.observation),
        action_share=_distance(features, swapped) / apart,
        dimensions=int(np.sum(cumulated < 0.99)) + 1,
    )


def explained(features: np.ndarray, target: np.ndarray) -> float:
    """The share of variance that least squares explains on the last rows, of what varies there."""
    target = np.asarray(target, np.float64)
    cut = int(len(features) * (1 - HELD_OUT))
    inputs = np.column_stack([features, np.ones(len(features))])
    gram = inputs[:cut].T @ inputs[:cut] + RIDGE * np.eye(inputs.shape[1])
    weights = np.linalg.solve(gram, inputs[:cut].T @ target[:cut])
    variance = target[cut:].var(axis=0)
    error = (target[cut:] - inputs[cut:] @ weights).var(axis=0)
    varies = variance > 1e-12
    return float(np.mean(1 - error[varies] / variance[varies])) if varies.any() else float("nan")


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean(np.sum((a - b) ** 2, axis=1)))


def _chunked(phi: Phi, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """[N, d] in float64."""
    parts = range(0, len(action), CHUNK)
    return np.concatenate(
        [phi(observation[i : i + CHUNK], action[i : i + CHUNK]) for i in parts]
    ).astype(np.float64)
