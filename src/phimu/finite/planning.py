"""Exact planning: optimal values and policies, the values and the occupancy of any policy.

All take P and r apart, because algorithms plan in a learned P with r + bonus. A policy is
pi(a|s): [S, A]. Over seeds: `exact(jax.vmap(policy_iteration))`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from phimu.finite.linear_systems import solve
from phimu.finite.precision import exact
from phimu.types import Array


class Plan(NamedTuple):
    """A policy and its values."""

    policy: Array  # pi(a|s) [S, A]
    value: Array  # V(s) [S]
    action_value: Array  # Q(s, a) [S, A]


def action_values(transition: Array, reward: Array, discount: Array, value: Array) -> Array:
    """Equation (bellman_q): r + discount P V: [S, A]."""
    return reward + discount * (transition @ value)


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
    return Plan(policy, value, action_values(transition, reward, discount, value))


@exact
def occupancy(transition: Array, start: Array, discount: Array, policy: Array) -> Array:
    """d^pi(s, a): where the policy is when it stops with probability 1 - discount a step: [S, A].

    Deviation: the paper's definition has (1 - discount)^-1 in front, a slip; it means the inverse.
    """
    moves = jnp.einsum("sa,sat->st", policy, transition)
    matrix = jnp.eye(len(moves)) - discount * moves.T
    return (1 - discount) * solve(matrix, start)[:, None] * policy


@exact
def value_iteration(transition: Array, reward: Array, discount: Array) -> Plan:
    """The optimal V and Q within 1e-10, or within rounding, and the greedy policy."""
    rounding = 8 * jnp.finfo(jnp.float64).eps

    def unfinished(step: tuple[Array, Array]) -> Array:
        value, change = step
        wanted = jnp.maximum(1e-10 * (1 - discount), rounding * jnp.abs(value).max())
        return discount * change > wanted

    def improve(step: tuple[Array, Array]) -> tuple[Array, Array]:
        value = action_values(transition, reward, discount, step[0]).max(axis=1)
        return value, jnp.abs(value - step[0]).max()

    nothing = jnp.zeros(reward.shape[0])
    value, _ = jax.lax.while_loop(unfinished, improve, (nothing, jnp.inf))
    q = action_values(transition, reward, discount, value)
    return Plan(greedy(q), q.max(axis=1), q)


@exact
def policy_iteration(transition: Array, reward: Array, discount: Array) -> Plan:
    """An optimal policy and its exact values.

    An action is exchanged only for one that is better by more than rounding: equals would go round
    for ever.
    """
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
