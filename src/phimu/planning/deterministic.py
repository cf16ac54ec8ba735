"""TD3: a deterministic actor and twin critics, the actor at every so many updates of the critic.

What agents differ in, the target of Q and the actor's loss, is handed in.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.networks import norm, polyak
from phimu.planning.critics import Twin, td_step
from phimu.policies import Deterministic
from phimu.types import Metrics

TOLD = ("policy_loss", "cloning_loss")  # what the actor's loss tells
ActorLoss = Callable[[Deterministic], tuple[jax.Array, Metrics]]


class Slowly(NamedTuple):
    """What changes with the actor."""

    actor: Deterministic
    slow_actor: Deterministic
    slow_critic: Twin
    actor_optimiser: optax.OptState
    told: Metrics  # of the last time


class DeterministicState(NamedTuple):
    """Training state of actor and twin critic."""

    critic: Twin
    critic_optimiser: optax.OptState
    slowly: Slowly
    updates: jax.Array  # [] int32, of the critic


def begin(
    actor: Deterministic,
    critic: Twin,
    for_actor: optax.GradientTransformation,
    for_critic: optax.GradientTransformation,
) -> DeterministicState:
    told = {name: jnp.zeros(()) for name in (*TOLD, "actor_gradient")}
    return DeterministicState(
        critic,
        for_critic.init(critic),
        Slowly(actor, actor, critic, for_actor.init(actor), told),
        jnp.zeros((), jnp.int32),
    )


def noisy(action: jax.Array, key: jax.Array, deviation: float, clip: float) -> jax.Array:
    """Actions with noise of this deviation, clipped, within [-1, 1]."""
    noise = deviation * jax.random.normal(key, action.shape)
    return jnp.clip(action + jnp.clip(noise, -clip, clip), -1.0, 1.0)


def per_size(weight: float, value: jax.Array) -> jax.Array:
    """The weight over the mean size of values [B], as a constant."""
    size = jax.lax.stop_gradient(jnp.mean(jnp.abs(value)))
    return weight / jnp.maximum(size, 1e-8)  # a set may hold no reward at all


def critic_step(
    state: DeterministicState,
    here: jax.Array,
    target: jax.Array,
    optimiser: optax.GradientTransformation,
) -> tuple[DeterministicState, Metrics]:
    """One step towards targets [B] of the pairs `here` [B, D + A]."""
    critic, optimised, told = td_step(state.critic, state.critic_optimiser, optimiser, here, target)
    updates = state.updates + 1
    return state._replace(critic=critic, critic_optimiser=optimised, updates=updates), told


def actor_step(
    state: DeterministicState,
    loss: ActorLoss,
    optimiser: optax.GradientTransformation,
    every: int,
    rate: float,
) -> tuple[DeterministicState, Metrics]:
    """Where it is due, one step of the actor; then both slow copies follow at this rate.

    The updates between skip its computation.
    """
    before = state.slowly

    def step() -> Slowly:
        grads, told = jax.grad(loss, has_aux=True)(before.actor)
        updates, optimised = optimiser.update(grads, before.actor_optimiser)
        actor = eqx.apply_updates(before.actor, updates)
        return Slowly(
            actor,
            polyak(before.slow_actor, actor, rate),
            polyak(before.slow_critic, state.critic, rate),
            optimised,
            told | {"actor_gradient": norm(grads)},
        )

    slowly = jax.lax.cond(state.updates % every == 0, step, lambda: before)
    return state._replace(slowly=slowly), slowly.told
