"""Algorithm 2 (CTRL-LCB) on finite MDPs, line for line, and what it is compared with.

phi is e_(s,a) here, as for the tables of section 4.1, so the penalty of (s, a) is that of how often
it is in the data. With the rows of P-hat as phi, which Algorithm 1 uses, an action that is not in
the data gets the row of the base measure, whose penalty is small: the theorem asks for a behaviour
that takes every action (omega), and without it nothing protects from the missing one.
"""

import jax.numpy as jnp

from phimu.finite.ctrl_ucb import Constants, bonus
from phimu.finite.planning import policy_iteration
from phimu.types import Array


def one_hot_pairs(observations: int, actions: int) -> Array:
    """phi = e_(s,a): [S, A, S A]."""
    return jnp.eye(observations * actions).reshape(observations, actions, -1)


def penalised_plan(
    phi: Array,
    transition: Array,
    visits: Array,
    reward: Array,
    discount: Array,
    omega: Array,
    constants: Constants,
) -> Array:
    """Lines 3-5: the best policy of the learned P-hat with r - b [S, A].

    `visits` [S, A] is how often each pair is in the data; `omega` is the theorem's. It writes
    max pi_b(a|s), by which more of one action would ask for more care; its source has the
    largest 1 / pi_b(a|s).
    """
    feature_dim = phi.shape[2]
    scale = constants.bonus_scale(visits.sum(), omega, feature_dim, discount)
    penalty = bonus(phi, visits, scale, constants.ridge(visits.sum(), feature_dim))
    return policy_iteration(transition, reward - penalty, discount).policy


def plan(transition: Array, reward: Array, discount: Array) -> Array:
    """The same without a penalty: model-based planning that trusts its model."""
    return policy_iteration(transition, reward, discount).policy


def behaviour_cloning(visits: Array) -> Array:
    """How often the data take each action; uniform where they have never been: [S, A]."""
    total = visits.sum(axis=1, keepdims=True)
    return jnp.where(total > 0, visits / jnp.maximum(total, 1), 1 / visits.shape[1])


def coverage(phi: Array, occupancy: Array, data: Array) -> Array:
    """C* of a policy: tr(E_(d^pi) phi phi' (E_data phi phi')^-1), from d^pi and data [S, A]."""
    rows = phi.reshape(-1, phi.shape[2])
    wanted = rows.T @ (rows * occupancy.reshape(-1, 1))
    given = rows.T @ (rows * data.reshape(-1, 1))
    return jnp.trace(jnp.linalg.solve(given.T, wanted.T))
