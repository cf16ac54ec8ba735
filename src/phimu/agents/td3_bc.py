"""TD3+BC (Fujimoto and Gu, 2021): TD3 whose actor is also drawn to the logged actions."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from phimu.agents import schedule
from phimu.agents.sac import concatenate
from phimu.agents.schedule import Preset, Presets
from phimu.errors import InputError, at_least
from phimu.planning.critics import smaller, twin
from phimu.planning.deterministic import (
    DeterministicState,
    actor_step,
    begin,
    critic_step,
    noisy,
    per_size,
)
from phimu.policies import Deterministic
from phimu.types import Batch, Feed, Metrics, Spec


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

    def init(self, spec: Spec, key: jax.Array) -> DeterministicState:
        actor_key, critic_key = jax.random.split(key)
        actor = Deterministic(spec.observation_dim, spec.action_dim, self.actor_sizes, actor_key)
        critic = twin("three_layer", spec.pair_dim, self.critic_width, critic_key, "relu", False)
        return begin(actor, critic, *self.optimisers())

    def policy(self, state: DeterministicState) -> Deterministic:
        return state.slowly.actor

    def update(
        self, phase: str, state: DeterministicState, feed: Feed, key: jax.Array
    ) -> tuple[DeterministicState, Metrics]:
        """One update of the critic, and each `actor_every`th time one of the actor."""
        batch = feed.batch
        for_actor, for_critic = self.optimisers()
        here = concatenate(batch.observation, batch.action)
        state, metrics = critic_step(state, here, self._target(state, batch, key), for_critic)

        def loss(actor: Deterministic) -> tuple[jax.Array, Metrics]:
            action = actor.mode(batch.observation)
            value = state.critic[0](concatenate(batch.observation, action))
            distance = jnp.mean((action - batch.action) ** 2)
            policy_loss = distance - per_size(self.value_weight, value) * jnp.mean(value)
            return policy_loss, {"policy_loss": policy_loss, "cloning_loss": distance}

        state, told = actor_step(state, loss, for_actor, self.actor_every, self.target_rate)
        return state, metrics | told

    def _target(self, state: DeterministicState, batch: Batch, key: jax.Array) -> jax.Array:
        slow = state.slowly
        next_action = slow.slow_actor.mode(batch.next_observation)
        next_action = noisy(next_action, key, self.policy_noise, self.noise_clip)
        next_value = smaller(slow.slow_critic, concatenate(batch.next_observation, next_action))
        return batch.reward + self.discount * (1.0 - batch.terminated) * next_value

    def q_value(
        self, state: DeterministicState, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return smaller(state.critic, concatenate(observation, action))


LOGGED: Presets = {
    "paper-d4rl": Preset(Td3Bc(), schedule.LOGGED_NORMALISED),
    "small": Preset(Td3Bc(), schedule.LOGGED_NORMALISED),
}
