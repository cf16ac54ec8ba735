"""The least that is a representation: one layer, from which s' and r are predicted linearly."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phimu.networks import Dense
from phimu.representation.seam import Phi
from phimu.types import Drawn, Feed, Metrics, Sample, Spec, Store


class ToyState(NamedTuple):
    layer: Dense
    head: Dense


@dataclass(frozen=True)
class Toy:
    """phi(s, a) = tanh(W (s, a) + b)."""

    feature_dim: int = 8
    """d."""
    toy_rate: float = 0.1
    """Of gradient descent."""

    @property
    def bonus_prediction_weight(self) -> float:
        return 0.0

    def init(self, spec: Spec, key: jax.Array) -> ToyState:
        for_layer, for_head = jax.random.split(key)
        outputs = spec.observation_dim + 1
        return ToyState(
            Dense(spec.pair_dim, self.feature_dim, for_layer),
            Dense(self.feature_dim, outputs, for_head),
        )

    def draw(self, store: Store, sample: Sample, rng: Any) -> Drawn:
        return Drawn(sample.rows)  # nothing is told apart from anything

    def update(
        self, state: ToyState, feed: Feed, key: jax.Array, bonus: jax.Array | None = None
    ) -> tuple[ToyState, Metrics]:
        batch = feed.batch
        wanted = jnp.concatenate([batch.next_observation, batch.reward[:, None]], axis=1)

        def error(state: ToyState) -> jax.Array:
            found = state.head(self.phi(state)(batch.observation, batch.action))
            return jnp.mean((found - wanted) ** 2)

        value, slope = jax.value_and_grad(error)(state)
        state = jax.tree.map(lambda x, g: x - self.toy_rate * g, state, slope)
        return state, {"toy_loss": value}

    def phi(self, state: ToyState) -> Phi:
        return lambda s, a: jnp.tanh(state.layer(jnp.concatenate([s, a], axis=-1)))
