"""Algorithm 2 (CTRL-LCB) on finite MDPs, line for line, and what it is compared with.

The study's MDPs are tables, with phi = e_(s,a) as in section 4.1, so that the penalty of (s, a)
says how often it is in the data. With the rows of P-hat as phi, which serve Algorithm 1, an action
that is not in the data has the row of the base measure, and a small penalty: the theorem asks for a
behaviour that takes every action (omega), and nothing protects from one that is missing.
"""

import jax.numpy as jnp

from phimu.finite import exact, solve
from phimu.finite.ctrl_ucb import Constants, bonus, covariance
from phimu.finite.planning import policy_iteration
from phimu.types import Array


def penalty(
    phi: Array, visits: Array, discount: Array, omega: Array, constants: Constants
) -> Array:
    """Lines 3-4: min(alpha sqrt(phi' Sigma^-1 phi), 2) [S, A], for `visits` [S, A] in the data.

    `omega` is the largest 1 / pi_b(a|s). Deviation: the paper prints the largest pi_b(a|s), which
    is at most 1 even if actions are missing; Rep-LCB's theorem, which it follows, has the inverse.
    """
    feature_dim = phi.shape[2]
    scale = constants.bonus_scale(1, omega, feature_dim, discount)  # offline neither has an n
    return bonus(phi, visits, scale, constants.ridge(1, feature_dim))


def penalised_plan(transition: Array, reward: Array, penalty: Array, discount: Array) -> Array:
    """Line 5: the best policy of the learned P-hat [S, A, S] with r - b: [S, A]."""
    return policy_iteration(transition, reward - penalty, discount).policy


def behaviour_cloning(visits: Array) -> Array:
    """How often the data take each action; uniform where they have never been: [S, A]."""
    total = visits.sum(axis=1, keepdims=True)
    return jnp.where(total > 0, visits / jnp.maximum(total, 1), 1 / visits.shape[1])


@exact
def coverage(phi: Array, occupancy: Array, data: Array) -> Array:
    """C* of a policy: tr(E_pi phi phi' (E_data phi phi')^-1), from d^pi and the data's [S, A]."""
    return jnp.trace(solve(covariance(phi, data, 0.0), covariance(phi, occupancy, 0.0)))
