"""Data: Algorithm 1, line 4, a transition from the occupancy of a policy, by a geometric stop; or
transitions of pairs drawn at will, with negatives.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phimu.finite.mdp import FiniteMDP
from phimu.types import Array


class Transitions(NamedTuple):
    """n of them; with K negatives for each: only how often each s' is among these."""

    observation: Array  # [n], integers
    action: Array  # [n]
    next_observation: Array  # [n]
    negatives: Any = None  # [n, S], rows sum to K; or none


def collect(
    key: Array, mdp: FiniteMDP, policies: Array, size: int, uniform_action: bool = True
) -> Transitions:
    """`size` episodes, each of which gives its last transition.

    An episode follows one of `policies` [M, S, A], drawn at random, and stops with probability
    1 - discount before each step, so that s ~ d^pi. Then a is uniform, or the policy's own.
    """
    for_ends, for_walk = jax.random.split(key)
    chances = jax.random.uniform(for_ends, (5, size))
    which = (chances[0] * len(policies)).astype(int)
    chosen, leads = jnp.cumsum(policies, axis=2), jnp.cumsum(mdp.transition, axis=2)
    begin = pick(jnp.broadcast_to(jnp.cumsum(mdp.start), (size, len(mdp.start))), chances[1])
    length = geometric(mdp.discount, chances[2])

    def walking(step: tuple[Array, Array]) -> Array:
        return step[1] < length.max()

    def walk(step: tuple[Array, Array]) -> tuple[Array, Array]:
        observation, time = step
        act, move = jax.random.uniform(jax.random.fold_in(for_walk, time), (2, size))
        action = pick(chosen[which, observation], act)
        following = pick(leads[observation, action], move)
        return jnp.where(time < length, following, observation), time + 1

    observation, _ = jax.lax.while_loop(walking, walk, (begin, 0))
    if uniform_action:
        action = (chances[3] * policies.shape[2]).astype(int)
    else:
        action = pick(chosen[which, observation], chances[3])
    following = pick(leads[observation, action], chances[4])
    return Transitions(observation, action, following)


def geometric(discount: Array, chance: Array) -> Array:
    """Steps before the stop, P(t) = (1 - discount) discount^t, from uniform numbers: integers."""
    return jnp.floor(jnp.log(1 - chance) / jnp.log(discount)).astype(int)


def pick(running_sums: Array, chance: Array) -> Array:
    """An index per row of running sums of probabilities [n, k], from uniform numbers: [n]."""
    # The last sum, which may be short of one by rounding, is not asked.
    return (running_sums[:, :-1] <= chance[:, None]).sum(axis=1)


def count(transitions: Transitions, observations: int, actions: int) -> Array:
    """n(s, a, s'): [S, A, S]."""
    none = jnp.zeros((observations, actions, observations))
    return none.at[transitions[:3]].add(1.0)


def draw(
    rng: np.random.Generator, mdp: FiniteMDP, pairs: np.ndarray, size: int, negatives: int
) -> Transitions:
    """`size` transitions from (s, a) ~ `pairs` [S, A], each with `negatives` draws of p."""
    index = rng.choice(pairs.size, size, p=pairs.reshape(-1))
    observation, action = np.divmod(index, pairs.shape[1])
    sums = np.cumsum(mdp.transition[observation, action], axis=1)
    following = pick(sums, rng.uniform(size=size))
    drawn = rng.multinomial(negatives, mdp.base_measure, size).astype(np.float64)
    return Transitions(observation, action, following, drawn)
