"""A finite linear MDP, and the conditions of sections 2.1 and 4.1 as numbers.

P(s'|s,a) = sum_i phi_i(s,a) mu_i(s') p(s'): section 4.1, with a base measure p under mu.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from phimu.errors import InputError
from phimu.types import Array

T = TypeVar("T")


class FiniteMDP(NamedTuple):
    """All that there is to know. A pytree: `stack` gives every array a leading axis of seeds."""

    transition: Array  # P(s'|s,a) [S, A, S]
    reward: Array  # r(s,a) in [0, 1]: [S, A]
    start: Array  # distribution of the first observation [S]
    discount: Array  # below 1: []
    base_measure: Array  # p(s') > 0, the noise of the contrastive losses too: [S]
    phi: Array  # [S, A, d]
    mu: Array  # [S, d]


def make(
    phi: Array, mu: Array, base_measure: Array, reward: Array, start: Array, discount: float
) -> FiniteMDP:
    """The MDP of these factors, in float64; refused if they do not make one."""
    phi, mu, base_measure, reward, start = (
        np.asarray(array, np.float64) for array in (phi, mu, base_measure, reward, start)
    )
    transition = transition_of(phi, mu, base_measure)
    mdp = FiniteMDP(transition, reward, start, np.float64(discount), base_measure, phi, mu)
    if not 0 <= discount < 1:
        raise InputError(f"discount is {discount}: give a number from 0 to below 1.")
    if mdp.reward.min() < 0 or mdp.reward.max() > 1:
        raise InputError("reward lies outside [0, 1]: scale it, the theorems count on it.")
    if mdp.base_measure.min() <= 0 or abs(mdp.base_measure.sum() - 1) > 1e-9:
        raise InputError("base_measure must be positive everywhere and sum to 1.")
    if mdp.start.min() < 0 or abs(mdp.start.sum() - 1) > 1e-9:
        raise InputError("start must be a distribution: not negative, with sum 1.")
    if mdp.transition.min() < 0 or np.abs(mdp.transition.sum(axis=2) - 1).max() > 1e-9:
        raise InputError("phi and mu give no distribution of s' for some (s, a): normalise them.")
    return mdp


def transition_of(phi: Array, mu: Array, base_measure: Array) -> Array:
    """<phi, p mu> for every (s, a, s'): [S, A, S]."""
    return phi @ (mu * base_measure[:, None]).T


def stack(trees: Sequence[T]) -> T:
    """MDPs, or other pytrees, of one size as one, for jax.vmap."""
    return jax.tree.map(lambda *arrays: np.stack(arrays), *trees)


def conditions(mdp: FiniteMDP) -> dict[str, float]:
    """What sections 2.1 and 4.1 assume of a linear MDP, as numbers."""
    theta, reward_error = linear_fit(mdp, mdp.reward)
    difference = mdp.transition - transition_of(mdp.phi, mdp.mu, mdp.base_measure)
    found = {
        "row_error": np.abs(mdp.transition.sum(axis=2) - 1).max(),
        # max |P - <phi, p mu>|: wanted is 0, as of all that are called errors.
        "factorisation_error": np.abs(difference).max(),
        # max |int phi' mu p - 1| over (s, a): what section 4.2's regulariser holds at zero.
        "marginal_error": np.abs(mdp.phi @ (mdp.base_measure @ mdp.mu) - 1).max(),
        "phi_norm": np.linalg.norm(mdp.phi, axis=2).max(),  # max |phi(s, a)|, at most 1
        "reward_error": reward_error,  # max |r - <phi, theta>|
        "theta_norm": np.linalg.norm(theta),  # at most sqrt(d)
        # |int |mu| p|, at most sqrt(d), bounds |int mu p g| for every |g| <= 1. Equal to the
        # largest of these where mu is not negative (g = 1), as in all our models. Where mu has
        # both signs that is a search over 2^S functions g, which is section 3.1's point.
        "mu_norm": np.linalg.norm(mdp.base_measure @ np.abs(mdp.mu)),
        # sqrt(E_p |mu|^2): section 4.1's bound by Jensen, which can be estimated from samples.
        "mu_norm_bound": np.sqrt(mdp.base_measure @ (mdp.mu**2).sum(axis=1)),
    }
    return {name: float(value) for name, value in found.items()}


def linear_fit(mdp: FiniteMDP, values: np.ndarray) -> tuple[np.ndarray, float]:
    """w with `values` [S, A] = <phi, w> in the least squares, and the largest error: 0 of any Q."""
    rows = mdp.phi.reshape(-1, mdp.phi.shape[2])
    weights = np.linalg.lstsq(rows, values.reshape(-1))[0]
    return weights, float(np.abs(rows @ weights - values.reshape(-1)).max())
