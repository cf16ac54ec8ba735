"""TD3+BC (Fujimoto and Gu, 2021): TD3 whose actor is also drawn to the logged actions."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.agents import schedule
from phimu.agents.sac import concatenate
from phimu.agents.schedule import Preset, Presets
from phimu.errors import InputError, at_least
from phimu.networks import Deterministic, norm, polyak
from phimu.planning.critics import Twin, smaller, twin, values
from phimu.types import Batch, Feed, Metrics, Spec


class Slowly(NamedTuple):
    """What changes with the actor, at every `actor_every`th update."""

    actor: Deterministic
    slow_actor: Deterministic
    slow_critic: Twin
    actor_optimiser: optax.OptState
    told: Metrics  # of the last time


class Td3BcState(NamedTuple):
    critic: Twin
    critic_optimiser: optax.OptState
    slowly: Slowly
    updates: jax.Array  # [] int32, of the critic


@dataclass(frozen=True)
class Td3Bc:
    """TD3+BC, with the published values."""

    value_weight: float = 2.5
    """Of Q, divided by the mean of |Q|, against the squared distance to the logged action."""
    policy_noise: float = 0.2
    """Standard deviation of the noise of the next action in the target of Q."""
    noise_clip: float = 0.5
    """Bound of that noise."""
    actor_every: int = 2
    """Updates of the critic per update of the actor and of the slow copies."""
    actor_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor, with ReLU."""
    critic_width: int = 256
    """Units of the critic's two hidden layers, with ReLU."""
    discount: float = 0.99
    """gamma."""
    target_rate: float = 0.005
    """How fast the slow copies of actor and critic follow."""
    actor_learning_rate: float = 3e-4
    """Adam's step for the actor."""
    critic_learning_rate: float = 3e-4
    """Adam's step for the critic."""

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise InputError(f"discount is {self.discount}: give a number from 0 to below 1.")
        at_least(1, actor_every=self.actor_every)

    def optimisers(self) -> tuple[optax.GradientTransformation, ...]:
        return optax.adam(self.actor_learning_rate), optax.adam(self.critic_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> Td3BcState:
        actor_key, critic_key = jax.random.split(key)
        actor = Deterministic(spec.observation_dim, spec.action_dim, self.actor_sizes, actor_key)
        critic = twin("three_layer", spec.pair_dim, self.critic_width, critic_key, "relu", False)
        for_actor, for_critic = self.optimisers()
        told = {name: jnp.zeros(()) for name in ("policy_loss", "cloning_loss", "actor_gradient")}
        return Td3BcState(
            critic,
            for_critic.init(critic),
            Slowly(actor, actor, critic, for_actor.init(actor), told),
            jnp.zeros((), jnp.int32),
        )

    def policy(self, state: Td3BcState) -> Deterministic:
        return state.slowly.actor

    def update(
        self, phase: str, state: Td3BcState, feed: Feed, key: jax.Array
    ) -> tuple[Td3BcState, Metrics]:
        """One update of the critic, and each `actor_every`th time one of the actor."""
        batch = feed.batch
        state, metrics = self._critic_step(state, batch, key)
        actor = jax.lax.cond(
            state.updates % self.actor_every == 0,
            lambda: self._actor_step(state, batch),
            lambda: state.slowly,
        )
        return state._replace(slowly=actor), metrics | actor.told

    def _critic_step(
        self, state: Td3BcState, batch: Batch, key: jax.Array
    ) -> tuple[Td3BcState, Metrics]:
        noise = self.policy_noise * jax.random.normal(key, batch.action.shape)
        noise = jnp.clip(noise, -self.noise_clip, self.noise_clip)
        next_action = state.slowly.slow_actor.mode(batch.next_observation) + noise
        next_action = jnp.clip(next_action, -1.0, 1.0)
        inputs = concatenate(batch.next_observation, next_action)
        next_value = smaller(state.slowly.slow_critic, inputs)
        target = batch.reward + self.discount * (1.0 - batch.terminated) * next_value
        here = concatenate(batch.observation, batch.action)

        def loss(critic: Twin) -> tuple[jax.Array, jax.Array]:
            both = values(critic, here)  # [2, B]
            return jnp.mean((both - target[None, :]) ** 2), jnp.mean(both)

        (td_loss, value), grads = jax.value_and_grad(loss, has_aux=True)(state.critic)
        _, optimiser = self.optimisers()
        updates, optimised = optimiser.update(grads, state.critic_optimiser)
        state = state._replace(
            critic=eqx.apply_updates(state.critic, updates),
            critic_optimiser=optimised,
            updates=state.updates + 1,
        )
        return state, {"td_loss": td_loss, "value": value, "critic_gradient": norm(grads)}

    def _actor_step(self, state: Td3BcState, batch: Batch) -> Slowly:
        before = state.slowly

        def loss(actor: Deterministic) -> tuple[jax.Array, Metrics]:
            action = actor.mode(batch.observation)
            value = state.critic[0](concatenate(batch.observation, action))
            size = jax.lax.stop_gradient(jnp.mean(jnp.abs(value)))
            scale = self.value_weight / jnp.maximum(size, 1e-8)  # a set may hold no reward at all
            distance = jnp.mean((action - batch.action) ** 2)
            policy_loss = distance - scale * jnp.mean(value)
            return policy_loss, {"policy_loss": policy_loss, "cloning_loss": distance}

        grads, told = jax.grad(loss, has_aux=True)(before.actor)
        optimiser, _ = self.optimisers()
        updates, optimised = optimiser.update(grads, before.actor_optimiser)
        actor = eqx.apply_updates(before.actor, updates)
        return Slowly(
            actor,
            polyak(before.slow_actor, actor, self.target_rate),
            polyak(before.slow_critic, state.critic, self.target_rate),
            optimised,
            told | {"actor_gradient": norm(grads)},
        )

    def q_value(self, state: Td3BcState, observation: jax.Array, action: jax.Array) -> jax.Array:
        return smaller(state.critic, concatenate(observation, action))


LOGGED: Presets = {
    "paper-d4rl": Preset(Td3Bc(), schedule.LOGGED_NORMALISED),
    "small": Preset(Td3Bc(), schedule.LOGGED_NORMALISED),
}
