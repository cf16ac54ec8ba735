"""What CTRL-UCB is compared with: other ways to explore, for the loop of `ctrl_ucb.run`.

Each plans exactly in what a learner gives it. LSVI-UCB is told phi*, and has its own; Rep-UCB is
`optimistic` with a learner by maximum likelihood.
"""

import jax
import jax.numpy as jnp

from phimu.finite import solve
from phimu.finite.ctrl_ucb import Decision, Explore, covariance, elliptical
from phimu.finite.learners import Estimate, Learner, add_counts, no_counts
from phimu.finite.mdp import FiniteMDP
from phimu.finite.planning import greedy, occupancy, policy_iteration
from phimu.types import Array

TIES = 1e-6  # reward at random, so that equally good actions are not always the first
RIDGE, ROUNDS = 1.0, 300  # of LSVI-UCB: its lambda, and the steps of its value iteration


def epsilon_greedy(uniform_mix: float, hopeful: bool = False) -> Explore:
    """Collects with the plan, and with uniform actions in `uniform_mix` of all steps.

    Only uniform actions, with a mix of 1, still plan with what they have seen. To expect nothing, a
    pair (s, a) that was never seen stays where it is. `hopeful` leaves it the row of the base
    measure, which leads to a reward that is known to be somewhere: optimism by accident.
    """

    def explore(estimate: Estimate, visits: Array, mdp: FiniteMDP, key: Array) -> Decision:
        if not hopeful:
            stay = jnp.broadcast_to(jnp.eye(len(visits))[:, None], estimate.transition.shape)
            known = jnp.where((visits > 0)[..., None], estimate.transition, stay)
            estimate = estimate._replace(transition=known)
        policy = _plan(estimate, mdp, key)
        mixed = (1 - uniform_mix) * policy + uniform_mix / policy.shape[1]
        return Decision(mixed[None], policy)

    return explore


def elliptical_planner(policies: int) -> Explore:
    """FLAMBE's (Agarwal et al. 2020): policies that together cover phi, whatever the reward.

    In the learned model, each goes where phi' Sigma^-1 phi is large under those before it; the data
    are collected with all of them in turn.
    """

    def explore(estimate: Estimate, visits: Array, mdp: FiniteMDP, key: Array) -> Decision:
        def another(matrix: Array, key: Array) -> tuple[Array, Array]:
            novelty = elliptical(estimate.phi, matrix) ** 2
            noise = TIES * jax.random.uniform(key, novelty.shape)
            policy = policy_iteration(estimate.transition, novelty + noise, mdp.discount).policy
            seen = occupancy(estimate.transition, mdp.start, mdp.discount, policy)
            return matrix + covariance(estimate.phi, seen, 0.0), policy

        for_plan, *keys = jax.random.split(key, policies + 1)
        first = jnp.eye(estimate.phi.shape[2])
        _, chosen = jax.lax.scan(another, first, jnp.stack(keys))
        return Decision(chosen, _plan(estimate, mdp, for_plan))

    return explore


def _plan(estimate: Estimate, mdp: FiniteMDP, key: Array) -> Array:
    ties = TIES * jax.random.uniform(key, mdp.reward.shape)
    return policy_iteration(estimate.transition, mdp.reward + ties, mdp.discount).policy


def known_features() -> Learner:
    """LSVI-UCB's regression: P-hat V = phi* ' Sigma^-1 sum phi*_i V(s'_i) for every V at once."""

    def read(counts: Array, mdp: FiniteMDP) -> Estimate:
        matrix = covariance(mdp.phi, counts.sum(axis=2), RIDGE)
        sums = jnp.einsum("sad,sat->dt", mdp.phi, counts)
        return Estimate(mdp.phi, mdp.phi @ solve(matrix, sums))

    return Learner(no_counts, add_counts, read)


def least_squares(bonus_scale: float) -> Explore:
    """LSVI-UCB's value iteration (Jin et al. 2020), discounted.

    Needs `known_features`. Their P-hat need not be a distribution, so Q is cut to what it can be.
    """

    def explore(estimate: Estimate, visits: Array, mdp: FiniteMDP, key: Array) -> Decision:
        del key
        matrix = covariance(estimate.phi, visits, RIDGE)
        reward = mdp.reward + bonus_scale * elliptical(estimate.phi, matrix)
        highest = 1 / (1 - mdp.discount)

        def values(value: Array) -> Array:
            future = mdp.discount * (estimate.transition @ value)
            return jnp.clip(reward + future, 0.0, highest)

        nothing = jnp.zeros(len(visits))
        value = jax.lax.fori_loop(0, ROUNDS, lambda _, v: values(v).max(axis=1), nothing)
        policy = greedy(values(value))
        return Decision(policy[None], policy)

    return explore
