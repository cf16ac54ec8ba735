"""Algorithm 1, line 4: a transition from the occupancy of a policy, by a geometric stop."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from phimu.finite.mdp import FiniteMDP
from phimu.types import Array


class Transitions(NamedTuple):
    """n of them, one per episode."""

    observation: Array  # [n], integers
    action: Array  # [n]
    next_observation: Array  # [n]


class Simulator(NamedTuple):
    """An MDP from which only draws are taken: its distributions as running sums."""

    transition: Array  # [S, A, S]
    start: Array  # [S]
    discount: Array  # []


def simulator(mdp: FiniteMDP) -> Simulator:
    return Simulator(
        jnp.cumsum(mdp.transition, axis=2), jnp.cumsum(mdp.start), jnp.asarray(mdp.discount)
    )


def collect(
    key: Array, world: Simulator, policies: Array, size: int, uniform_action: bool = True
) -> Transitions:
    """`size` episodes, each of which gives its last transition.

    An episode follows one of `policies` [M, S, A], drawn at random, and stops with probability
    1 - discount before each step, so that s ~ d^pi. Then a is uniform, or the policy's own.
    """
    for_policy, for_start, for_length, for_walk, for_action, for_next = jax.random.split(key, 6)
    which = jax.random.randint(for_policy, (size,), 0, len(policies))
    chosen = jnp.cumsum(policies, axis=2)
    begin = draw(for_start, jnp.broadcast_to(world.start, (size, len(world.start))))
    length = geometric(for_length, world.discount, size)

    def walking(step: tuple[Array, Array]) -> Array:
        return step[1] < length.max()

    def walk(step: tuple[Array, Array]) -> tuple[Array, Array]:
        observation, time = step
        act, move = jax.random.split(jax.random.fold_in(for_walk, time))
        action = draw(act, chosen[which, observation])
        following = draw(move, world.transition[observation, action])
        return jnp.where(time < length, following, observation), time + 1

    observation, _ = jax.lax.while_loop(walking, walk, (begin, 0))
    if uniform_action:
        action = jax.random.randint(for_action, (size,), 0, policies.shape[2])
    else:
        action = draw(for_action, chosen[which, observation])
    following = draw(for_next, world.transition[observation, action])
    return Transitions(observation, action, following)


def geometric(key: Array, discount: Array, size: int) -> Array:
    """Steps before the stop, P(t) = (1 - discount) discount^t: [size]."""
    chance = 1 - jax.random.uniform(key, (size,))  # in (0, 1]
    return jnp.floor(jnp.log(chance) / jnp.log(discount)).astype(int)


def draw(key: Array, running_sums: Array) -> Array:
    """An index per row of running sums of probabilities [n, k]: [n]."""
    chance = jax.random.uniform(key, (len(running_sums), 1))
    # The last sum may be short of one by rounding.
    return (running_sums[:, :-1] <= chance).sum(axis=1)


def count(transitions: Transitions, observations: int, actions: int) -> Array:
    """n(s, a, s'): [S, A, S]."""
    none = jnp.zeros((observations, actions, observations))
    return none.at[tuple(transitions)].add(1.0)
