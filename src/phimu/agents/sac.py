"""Soft actor-critic: the same planner with phi = concatenation, so method and baseline share it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from phimu.data.on_device import DeviceSet
from phimu.networks import (
    Acting,
    Precision,
    RunningNormaliser,
    in_own_precision,
    normalise_batch,
)
from phimu.planning.critics import values
from phimu.planning.soft_actor_critic import Planner, SoftActorCritic
from phimu.types import Batch, Metrics, Spec


class SacState(NamedTuple):
    normaliser: RunningNormaliser
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
            RunningNormaliser(spec.observation_dim), self.planner.init(spec, sum(spec), key)
        )
        return jax.tree.map(jnp.copy, state)

    def act(
        self, acting: Acting, observation: jax.Array, key: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Actions in [-1, 1] for observations [..., D]."""
        actor = acting.actor
        observation = self.normalise(acting, observation)
        return actor.mode(observation) if deterministic else actor.sample(observation, key)[0]

    @in_own_precision
    def update(self, state: SacState, batch: Batch, key: jax.Array) -> tuple[SacState, Metrics]:
        normaliser = state.normaliser
        if self.normalise_observations:
            normaliser = normaliser.include(batch.observation)
            batch = normalise_batch(normaliser, batch)
        planner, metrics = self.planner.update(state.planner, concatenate, batch, key)
        return SacState(normaliser, planner), metrics

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
        inputs = concatenate(self.normalise(state, observation), action)
        return jnp.min(values(state.planner.critic, inputs), axis=0)

    def normalise(self, state: SacState | Acting, observation: jax.Array) -> jax.Array:
        return state.normaliser(observation) if self.normalise_observations else observation
