"""CPC: contrastive predictive coding of observations, then BRAC on the frozen embedding."""

from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from phimu.agents.brac import Brac, BracState, Draw
from phimu.agents.sac import concatenate
from phimu.data.device_set import DeviceSet
from phimu.data.replay import split
from phimu.networks import MLP, Precision, TanhGaussian, in_own_precision
from phimu.normalisation import Acting, Normaliser, normaliser
from phimu.planning.critics import smaller
from phimu.representation.predictive import Coding, PredictiveCoding
from phimu.types import Batch, Metrics, Spec


class OnEmbedding(eqx.Module):
    """A policy that reads the embedding of what is observed."""

    network: MLP
    actor: TanhGaussian

    def mode(self, observation: jax.Array) -> jax.Array:
        return self.actor.mode(self.network(observation))

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.actor.sample(self.network(observation), key)


class CpcState(NamedTuple):
    normaliser: Normaliser
    coding: Coding
    planned: BracState  # of embeddings instead of observations

    @property
    def acting(self) -> Acting:
        actor = OnEmbedding(self.coding.embedding.network, self.planned.planner.actor)
        return Acting(self.normaliser, actor)


@dataclass(frozen=True)
class Cpc:
    """CPC. As in the published code the clone, the actor and the critic all read the embedding."""

    coding: PredictiveCoding = field(default_factory=PredictiveCoding)
    brac: Brac = field(default_factory=Brac)

    @property
    def phases(self) -> tuple[tuple[str, int], ...]:
        return (("representation", self.coding.representation_updates), *self.brac.phases)

    @property
    def precision(self) -> Precision:
        return self.brac.precision

    def init(self, spec: Spec, key: jax.Array) -> CpcState:
        for_coding, for_brac = jax.random.split(key)
        embedded = spec._replace(observation_dim=self.coding.embedding_dim)
        state = CpcState(
            normaliser(self.brac.normalise_observations, spec.observation_dim),
            self.coding.init(spec, for_coding),
            self.brac.init(embedded, for_brac),
        )
        return jax.tree.map(jnp.copy, state)

    def begin(self, phase: str, state: CpcState, data: DeviceSet) -> tuple[CpcState, DeviceSet]:
        """Embeddings are not kept: of a million rows, s and s', they would take 2 GB."""
        return state._replace(normaliser=state.normaliser.of(data.observations)), data

    @in_own_precision
    def learn(
        self, phase: str, state: CpcState, data: DeviceSet, key: jax.Array
    ) -> tuple[CpcState, Metrics]:
        """One update of the embedding, and after that of BRAC alone."""
        if phase == "representation":
            coding, told = self._code(state, data, key)
            return state._replace(coding=coding), told
        planned, told = self.brac.update(phase, state.planned, self._embedded(state, data), key)
        return state._replace(planned=planned), told

    def _code(self, state: CpcState, data: DeviceSet, key: jax.Array) -> tuple[Coding, Metrics]:
        """InfoNCE on s and a later s of the same episode.

        Deviation: one offset per update, drawn anew, instead of all of them at once: the same loss
        in expectation for a fraction of the time.
        """
        for_batch, for_offset = jax.random.split(key)
        drawn = data.sample(for_batch)
        offset = jax.random.randint(for_offset, (), 1, self.coding.window)
        left = data.following[drawn.index]
        row = drawn.index + jnp.minimum(offset - 1, left)
        later = split(data.rows[row], data.spec).next_observation
        return self.coding.update(
            state.coding,
            state.normaliser(drawn.batch.observation),
            state.normaliser(later),
            offset,
            left >= offset - 1,
        )

    def _embedded(self, state: CpcState, data: DeviceSet) -> Draw:
        """Batches with embeddings in the place of observations."""

        def draw(key: jax.Array) -> Batch:
            batch = data.sample(key).batch
            return batch._replace(
                observation=self.embedding(state, batch.observation),
                next_observation=self.embedding(state, batch.next_observation),
            )

        return draw

    def embedding(self, state: CpcState, observation: jax.Array) -> jax.Array:
        """Of observations as the set has them: [B, embedding_dim]."""
        return state.coding.embedding.network(state.normaliser(observation))

    def act(
        self, acting: Acting, observation: jax.Array, key: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Actions in [-1, 1] for observations [..., D]."""
        return acting.act(observation, key, deterministic)

    def q_value(self, state: CpcState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The smaller of the twin Q values: [B]."""
        inputs = concatenate(self.embedding(state, observation), action)
        return smaller(state.planned.planner.critic, inputs)
