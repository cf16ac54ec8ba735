"""Soft actor-critic: the same planner with phi = concatenation, so method and baseline share it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from phimu.data.device_set import DeviceSet
from phimu.networks import Precision, in_own_precision
from phimu.normalisation import Acting, Normaliser, normalise_batch, normaliser
from phimu.planning.critics import smaller
from phimu.planning.soft_actor_critic import Planner, SoftActorCritic
from phimu.types import Batch, Metrics, Spec


class SacState(NamedTuple):
    normaliser: Normaliser
    planner: Planner

    @property
    def acting(self) -> Acting:
        return Acting(self.normaliser, self.planner.actor)


def concatenate(observation: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.concatenate([observation, action], axis=-1)


@dataclass(frozen=True)
class Sac:
    """SAC, with a two- or three-layer critic."""

    planner: SoftActorCritic = field(default_factory=lambda: SoftActorCritic(critic="three_layer"))
    normalise_observations: bool = False
    """Running normalisation of observations for actor and critic."""
    precision: Precision = "float32"
    """Of the operands of matrix products in an update; bfloat16 gains on hardware that has it."""

    def __post_init__(self) -> None:
        self.planner.refuse_behaviour()

    def init(self, spec: Spec, key: jax.Array) -> SacState:
        state = SacState(
            normaliser(self.normalise_observations, spec.observation_dim),
            self.planner.init(spec, sum(spec), key),
        )
        return jax.tree.map(jnp.copy, state)

    def act(
        self, acting: Acting, observation: jax.Array, key: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Actions in [-1, 1] for observations [..., D]."""
        return acting.act(observation, key, deterministic)

    @in_own_precision
    def update(self, state: SacState, batch: Batch, key: jax.Array) -> tuple[SacState, Metrics]:
        seen = state.normaliser.include(batch.observation)
        batch = normalise_batch(seen, batch)
        planner, metrics = self.planner.update(state.planner, concatenate, batch, key)
        return SacState(seen, planner), metrics

    # Offline

    @property
    def phases(self) -> tuple[tuple[str, int], ...]:
        return (("policy", 0),)

    def begin(self, phase: str, state: SacState, data: DeviceSet) -> tuple[SacState, DeviceSet]:
        return state, data

    def learn(
        self, phase: str, state: SacState, data: DeviceSet, key: jax.Array
    ) -> tuple[SacState, Metrics]:
        """The same update on a batch of a set, with nothing that holds the policy near it."""
        return self.update(state, data.sample(key).batch, key)

    def q_value(self, state: SacState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The smaller of the twin Q values: [B]."""
        return smaller(state.planner.critic, concatenate(state.normaliser(observation), action))
