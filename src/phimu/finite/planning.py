"""Exact planning: optimal values and policies, the values and the occupancy of any policy.

All take P and r apart, because algorithms plan in a learned P with r + bonus. A policy is
pi(a|s): [S, A]. Over seeds: `exact(jax.vmap(policy_iteration))`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from phimu.finite import exact, solve
from phimu.types import Array


class Plan(NamedTuple):
    """A policy and its values."""

    policy: Array  # pi(a|s) [S, A]
    value: Array  # V(s) [S]
    action_value: Array  # Q(s, a) [S, A]


@exact
def greedy(action_value: Array) -> Array:
    """The first best action of each observation, as a policy [S, A]."""
    return jax.nn.one_hot(action_value.argmax(axis=1), action_value.shape[1])


@exact
def evaluate(transition: Array, reward: Array, discount: Array, policy: Array) -> Plan:
    """V and Q of a policy, by solving (1 - discount P^pi) V = r^pi."""
    moves = jnp.einsum("sa,sat->st", policy, transition)
    matrix = jnp.eye(len(moves)) - discount * moves
    value = solve(matrix, (policy * reward).sum(axis=1))
    return Plan(policy, value, reward + discount * (transition @ value))  # equation (bellman_q)


@exact
def occupancy(transition: Array, start: Array, discount: Array, policy: Array) -> Array:
    """d^pi(s, a): where the policy is when it stops with probability 1 - discount a step: [S, A].

    Deviation: the paper's definition has (1 - discount)^-1 in front, a slip; it means the inverse.
    """
    moves = jnp.einsum("sa,sat->st", policy, transition)
    matrix = jnp.eye(len(moves)) - discount * moves.T
    return (1 - discount) * solve(matrix, start)[:, None] * policy


@exact
def policy_iteration(transition: Array, reward: Array, discount: Array) -> Plan:
    """An optimal policy and its exact values."""
    # An action is exchanged only for one better by more than rounding: equals would go round.
    better = 1e-12 * jnp.abs(reward).max() / (1 - discount)

    def unfinished(step: tuple[Plan, Array]) -> Array:
        return step[1]

    def improve(step: tuple[Plan, Array]) -> tuple[Plan, Array]:
        plan = step[0]
        gain = plan.action_value.max(axis=1) - plan.value
        policy = jnp.where((gain > better)[:, None], greedy(plan.action_value), plan.policy)
        improved = evaluate(transition, reward, discount, policy)
        return improved, jnp.any(gain > better)

    first = evaluate(transition, reward, discount, greedy(reward))
    return jax.lax.while_loop(unfinished, improve, (first, jnp.array(True)))[0]
