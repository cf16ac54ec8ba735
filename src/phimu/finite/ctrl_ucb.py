"""Algorithm 1 (CTRL-UCB) on finite MDPs, line for line, and the loop that its rivals share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phimu.errors import InputError
from phimu.finite import whiten
from phimu.finite.collecting import collect, count
from phimu.finite.learners import Estimate, Learner
from phimu.finite.mdp import FiniteMDP
from phimu.finite.planning import evaluate, policy_iteration
from phimu.types import Array

CAP = 2.0  # of a bonus
DELTA = 0.1  # the probability with which the theorems may fail


@dataclass(frozen=True)
class Constants:
    """alpha_n and lambda_n of the theorems, with what their O( ) leaves open as factors.

    With factors of one every bonus stays at its cap for millions of samples: a study scales them,
    and says so.
    """

    log_models: float
    """log of the number of models in the class."""
    bonus_factor: float = 1.0
    """alpha_n is this times sqrt((A + d^2) discount log(models n / delta))."""
    ridge_factor: float = 1.0
    """lambda_n is this times d log(models n / delta)."""

    def __post_init__(self) -> None:
        if self.bonus_factor < 0 or self.ridge_factor <= 0:
            raise InputError("bonus_factor must not be negative and ridge_factor positive.")

    def bonus_scale(self, size: Array, spread: Array, feature_dim: int, discount: Array) -> Array:
        """alpha: `size` is n; `spread` is A online, omega offline."""
        return self.bonus_factor * jnp.sqrt((spread + feature_dim**2) * discount * self._log(size))

    def ridge(self, size: Array, feature_dim: int) -> Array:
        """lambda."""
        return self.ridge_factor * feature_dim * self._log(size)

    def _log(self, size: Array) -> Array:
        return self.log_models + jnp.log(size / DELTA)


def log_tables(observations: int, actions: int) -> float:
    """The `log_models` of all tables P(s'|s,a), as if each of the S A rows were one of S."""
    return observations * actions * np.log(observations)


def covariance(phi: Array, visits: Array, ridge: Array) -> Array:
    """Line 7: the sum of phi phi' over data with visits [S, A] of each pair, + ridge I: [d, d]."""
    rows = phi.reshape(-1, phi.shape[2])
    total = rows.T @ (rows * visits.reshape(-1, 1))
    return total + ridge * jnp.eye(phi.shape[2])


def elliptical(phi: Array, matrix: Array) -> Array:
    """sqrt(phi' matrix^-1 phi) for every (s, a): [S, A]."""
    rows = phi.reshape(-1, phi.shape[2])
    return jnp.sqrt((whiten(matrix, rows.T) ** 2).sum(axis=0)).reshape(phi.shape[:2])


def bonus(phi: Array, visits: Array, bonus_scale: Array, ridge: Array) -> Array:
    """Line 8: min(alpha sqrt(phi' Sigma^-1 phi), 2): [S, A]."""
    return jnp.minimum(bonus_scale * elliptical(phi, covariance(phi, visits, ridge)), CAP)


class Decision(NamedTuple):
    """What an algorithm makes of its data."""

    policies: Array  # which collect next, one drawn per episode [M, S, A]
    returned: Array  # which it would give back now [S, A]


Explore = Callable[[Estimate, Array, FiniteMDP, Array], Decision]  # estimate, visits, MDP, key


class Algorithm(NamedTuple):
    """Rep-UCB is CTRL-UCB with another learner, epsilon-greedy one with another `explore`."""

    learner: Learner
    explore: Explore
    uniform_action: bool = True
    policies: int = 1  # how many collect in turn


def optimistic(constants: Constants) -> Explore:
    """Lines 7-9 of Algorithm 1."""

    def explore(estimate: Estimate, visits: Array, mdp: FiniteMDP, key: Array) -> Decision:
        del key
        size, feature_dim = visits.sum(), estimate.phi.shape[2]
        scale = constants.bonus_scale(size, visits.shape[1], feature_dim, mdp.discount)
        added = bonus(estimate.phi, visits, scale, constants.ridge(size, feature_dim))
        plan = policy_iteration(estimate.transition, mdp.reward + added, mdp.discount)
        return Decision(plan.policy[None], plan.policy)

    return explore


class Trace(NamedTuple):
    """After each plan."""

    samples: Array  # n [plans]
    collected: Array  # value of the policies that collected the last batch [plans]
    returned: Array  # value of the policy that would be given back [plans]


def run(algorithm: Algorithm, mdp: FiniteMDP, key: Array, plans: int, batch: int) -> Trace:
    """Algorithm 1, with `batch` episodes where it has one; for jax.vmap over MDPs and keys.

    Deviation: between two plans a batch of episodes is collected, not a single one. The learner
    and `explore` know the MDP's reward, discount and base measure, and nothing else of it.
    """
    observations, actions = mdp.reward.shape
    uniform = jnp.full((algorithm.policies, observations, actions), 1 / actions)

    def value(policy: Array) -> Array:
        return evaluate(mdp.transition, mdp.reward, mdp.discount, policy).value @ mdp.start

    def episode(state: tuple[Any, Array, Array], key: Array) -> tuple[Any, Trace]:
        memory, visits, policies = state
        for_data, for_noise, for_plan = jax.random.split(key, 3)
        new = collect(for_data, mdp, policies, batch, algorithm.uniform_action)  # line 4
        visits = visits + count(new, observations, actions).sum(axis=2)  # line 5
        memory = algorithm.learner.learn(memory, mdp, new, for_noise)  # line 6
        estimate = algorithm.learner.read(memory, mdp)
        decision = algorithm.explore(estimate, visits, mdp, for_plan)  # lines 7-9
        collected = jax.vmap(value)(policies).mean()
        trace = Trace(visits.sum(), collected, value(decision.returned))
        return (memory, visits, decision.policies), trace

    first = (algorithm.learner.init(mdp), jnp.zeros((observations, actions)), uniform)
    return jax.lax.scan(episode, first, jax.random.split(key, plans))[1]
