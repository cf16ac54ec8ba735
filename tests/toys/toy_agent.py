"""The least that is an agent: regression to the actions of a batch that were rewarded best."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from phimu.agents import schedule
from phimu.agents.schedule import Collection, Preset, Presets, Schedule
from phimu.types import Feed, Metrics, Spec

SPREAD = 0.1  # of sampled actions


class ToyState(NamedTuple):
    """A linear policy through tanh; it is its own training state."""

    weight: jax.Array  # [observation_dim, action_dim]
    bias: jax.Array  # [action_dim]

    def mode(self, observation: jax.Array) -> jax.Array:
        bias = jnp.broadcast_to(self.bias, (*observation.shape[:-1], *self.bias.shape))
        return jnp.tanh(observation @ self.weight + bias)

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        mode = self.mode(observation)
        noise = jax.random.normal(key, mode.shape)
        log_density = jnp.sum(jax.scipy.stats.norm.logpdf(noise) - jnp.log(SPREAD), axis=-1)
        return jnp.clip(mode + SPREAD * noise, -1.0, 1.0), log_density


@dataclass(frozen=True)
class Toy:
    """Each row counts by exp(reward / temperature)."""

    temperature: float = 0.1
    """Low: only the best of a batch counts."""
    learning_rate: float = 0.3
    """Of gradient descent."""

    def init(self, spec: Spec, key: jax.Array) -> ToyState:
        return ToyState(jnp.zeros((spec.observation_dim, spec.action_dim)), jnp.zeros(spec.action_dim))

    def policy(self, state: ToyState) -> ToyState:
        return state

    def update(
        self, phase: str, state: ToyState, feed: Feed, key: jax.Array
    ) -> tuple[ToyState, Metrics]:
        batch = feed.batch
        share = jax.nn.softmax(batch.reward / self.temperature)

        def distance(state: ToyState) -> jax.Array:
            error = state.mode(batch.observation) - batch.action
            return jnp.sum(share * jnp.sum(error**2, axis=-1))

        value, slope = jax.value_and_grad(distance)(state)
        state = jax.tree.map(lambda x, g: x - self.learning_rate * g, state, slope)
        return state, {"toy_loss": value}


ONLINE: Presets = {
    "small": Preset(Toy(), Schedule(Collection(learning_starts=50), batch_size=32)),
}
LOGGED: Presets = {"small": Preset(Toy(), schedule.LOGGED_NORMALISED)}
