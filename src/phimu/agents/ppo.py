"""Proximal policy optimisation: passes over what the policy has just done, with clipped ratios."""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.agents.protocol import Phase
from phimu.agents.schedule import Collection, Preset, Presets, Schedule
from phimu.errors import InputError, at_least
from phimu.networks import norm
from phimu.planning.advantages import standardised
from phimu.planning.minibatches import passes
from phimu.planning.trust_region import divergence
from phimu.planning.value_function import ValueFunction, ValueFunctionState
from phimu.policies import Gaussian
from phimu.types import Feed, Metrics, Spec


class PpoState(NamedTuple):
    actor: Gaussian
    actor_optimiser: optax.OptState
    critic: ValueFunctionState
    steps: jax.Array  # [] int32: transitions that were learned from


class Rows(NamedTuple):
    """What the policy is updated by."""

    observation: jax.Array  # [B, observation_dim]
    action: jax.Array  # [B, action_dim]
    advantage: jax.Array  # [B], standardised
    log_density: jax.Array  # [B], of the policy that acted


@dataclass(frozen=True)
class Ppo:
    """PPO with a clipped surrogate and a Gaussian policy (Schulman et al., 2017)."""

    actor_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the policy's mean."""
    initial_log_std: float = 0.0
    """Log standard deviation of the actions at the start, the same for all observations."""
    actor_learning_rate: float = 3e-4
    """Adam's step for the policy."""
    actor_epsilon: float = 1e-8
    """Adam's epsilon for the policy."""
    decay_steps: int = 0
    """Environment steps over which actor_learning_rate falls to 0; 0: it stays."""
    epochs: int = 10
    """Passes over the rows of an update for the policy."""
    minibatches: int = 32
    """Gradient steps in each of them."""
    ratio_clip: float = 0.2
    """How far from 1 the ratio of new and old density still counts."""
    gradient_clip: float | None = None
    """Largest norm of the policy's gradient."""
    critic: ValueFunction = ValueFunction()

    phases: ClassVar[tuple[Phase, ...]] = (Phase(updates=1, on_policy=True),)

    def __post_init__(self) -> None:
        at_least(1, epochs=self.epochs, minibatches=self.minibatches)
        at_least(0, decay_steps=self.decay_steps)
        if not 0 < self.ratio_clip < 1:
            raise InputError(f"ratio_clip is {self.ratio_clip}: give a number between 0 and 1.")

    def optimiser(self) -> optax.GradientTransformation:
        """Without its step size, which may change from update to update."""
        adam = optax.scale_by_adam(eps=self.actor_epsilon)
        if self.gradient_clip is None:
            return adam
        return optax.chain(optax.clip_by_global_norm(self.gradient_clip), adam)

    def init(self, spec: Spec, key: jax.Array) -> PpoState:
        for_actor, for_critic = jax.random.split(key)
        actor = Gaussian(*spec[:2], self.actor_sizes, for_actor, self.initial_log_std)
        critic = self.critic.init(spec, for_critic)
        return PpoState(actor, self.optimiser().init(actor), critic, jnp.zeros((), jnp.int32))

    def policy(self, state: PpoState) -> Gaussian:
        return state.actor

    def update(
        self, phase: str, state: PpoState, feed: Feed, key: jax.Array
    ) -> tuple[PpoState, Metrics]:
        """All passes over the rows [T, envs] of the last round."""
        for_actor, for_critic = jax.random.split(key)
        advantage, target = self.critic.advantages(state.critic, feed.batch)
        observation, action = (
            x.reshape(-1, x.shape[-1]) for x in (feed.batch.observation, feed.batch.action)
        )
        # The policy has not changed since it acted, nor has what it sees: nobody had to keep this.
        log_density = state.actor.log_density(observation, action)
        rows = Rows(observation, action, standardised(advantage).reshape(-1), log_density)
        rate, optimiser = self._learning_rate(state.steps), self.optimiser()

        def step(
            carried: tuple[Gaussian, optax.OptState], rows: Rows
        ) -> tuple[tuple[Gaussian, optax.OptState], tuple[jax.Array, jax.Array]]:
            actor, moments = carried
            loss, slope = jax.value_and_grad(self.loss)(actor, rows)
            updates, moments = optimiser.update(slope, moments)
            updates = jax.tree.map(lambda x: -rate * x, updates)
            return (eqx.apply_updates(actor, updates), moments), (loss, norm(slope))

        (actor, moments), (losses, slopes) = passes(
            step,
            (state.actor, state.actor_optimiser),
            rows,
            for_actor,
            self.epochs,
            self.minibatches,
        )
        critic, value_loss = self.critic.fit(
            state.critic, observation, target.reshape(-1), for_critic
        )
        ratio = jnp.exp(actor.log_density(observation, action) - log_density)
        metrics = {
            "policy_loss": jnp.mean(losses[-self.minibatches :]),
            "value_loss": value_loss,
            "value": jnp.mean(target),
            "entropy": actor.entropy,
            "divergence": divergence(state.actor(observation), actor(observation)),
            "clipped": jnp.mean(jnp.abs(ratio - 1.0) > self.ratio_clip),
            "actor_gradient": slopes[-1],
        }
        return PpoState(actor, moments, critic, state.steps + target.size), metrics

    def loss(self, actor: Gaussian, rows: Rows) -> jax.Array:
        """-min(r A, clip(r) A), mean over the rows."""
        ratio = jnp.exp(actor.log_density(rows.observation, rows.action) - rows.log_density)
        clipped = jnp.clip(ratio, 1.0 - self.ratio_clip, 1.0 + self.ratio_clip)
        return -jnp.mean(jnp.minimum(ratio * rows.advantage, clipped * rows.advantage))

    def _learning_rate(self, steps: jax.Array) -> jax.Array:
        left = 1.0 - steps / self.decay_steps if self.decay_steps else jnp.ones(())
        return self.actor_learning_rate * jnp.maximum(left, 0.0)

    def value(self, state: PpoState, observation: jax.Array) -> jax.Array:
        return self.critic(state.critic, observation)


# MBBL's own code, from which the paper has its numbers; deviations are in docs/ppo.md.
MBBL_VALUE = ValueFunction(
    critic_betas=(0.5, 0.99),
    critic_epsilon=1e-4,
    critic_epochs=20,
    critic_minibatches=10,
    bootstrap_time_limits=False,
)
ROUNDS = Schedule(
    Collection(learning_starts=0, buffer_size=10_000), batch_size=2_000, normalise_observations=True
)
SIDE_BY_SIDE = replace(
    ROUNDS,
    collection=Collection(learning_starts=0, buffer_size=10_000, envs=8),
    batch_size=1_024,
)
ONLINE: Presets = {
    "mbbl": Preset(
        Ppo(decay_steps=200_000, minibatches=10, ratio_clip=0.1, critic=MBBL_VALUE), ROUNDS
    ),
    "original": Preset(
        Ppo(
            actor_epsilon=1e-5,
            decay_steps=1_000_000,
            gradient_clip=0.5,
            critic=ValueFunction(critic_epsilon=1e-5),
        ),
        replace(ROUNDS, batch_size=2_048),
    ),
    "small": Preset(
        Ppo(gradient_clip=0.5, critic=ValueFunction(critic_learning_rate=3e-3)), SIDE_BY_SIDE
    ),
}
