"""CPC: contrastive predictive coding of observations, then BRAC on the frozen embedding."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax

from phimu.agents import brac, schedule
from phimu.agents.brac import Brac, BracState
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Preset, Presets
from phimu.networks import MLP
from phimu.planning.soft_actor_critic import Actor
from phimu.representation.predictive import PredictiveCoding, PredictiveCodingState
from phimu.types import Drawn, Feed, Metrics, Spec, Store


class OnEmbedding(eqx.Module):
    """A policy that reads the embedding of what is observed."""

    network: MLP
    actor: Actor

    def mode(self, observation: jax.Array) -> jax.Array:
        return self.actor.mode(self.network(observation))

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.actor.sample(self.network(observation), key)


class CpcState(NamedTuple):
    coding: PredictiveCodingState
    planned: BracState  # of embeddings instead of observations


@dataclass(frozen=True)
class Cpc:
    """CPC. As in the published code the clone, the actor and the critic all read the embedding."""

    coding: PredictiveCoding = PredictiveCoding()
    brac: Brac = Brac()

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("representation", self.coding.representation_updates), *self.brac.phases

    def init(self, spec: Spec, key: jax.Array) -> CpcState:
        for_coding, for_brac = jax.random.split(key)
        embedded = spec._replace(observation_dim=self.coding.embedding_dim)
        return CpcState(self.coding.init(spec, for_coding), self.brac.init(embedded, for_brac))

    def policy(self, state: CpcState) -> OnEmbedding:
        return OnEmbedding(state.coding.embedding.network, self.brac.policy(state.planned))

    def draw(self, phase: str, store: Store, rng: Any) -> Drawn:
        """For the embedding also a later s of the same episode.

        Deviation: one offset per update, drawn anew, instead of all of them at once: the same loss
        in expectation for a fraction of the time.
        """
        if phase != "representation":
            return Drawn(store.sample(rng).rows)
        for_batch, for_offset = jax.random.split(rng)
        sample = store.sample(for_batch)
        offset = jax.random.randint(for_offset, (), 1, self.coding.window)
        later, valid = store.later(sample.index, offset - 1)
        return Drawn(sample.rows, {"later": later}, {"offset": offset, "valid": valid})

    def update(
        self, phase: str, state: CpcState, feed: Feed, key: jax.Array
    ) -> tuple[CpcState, Metrics]:
        """One update of the embedding, and after that of BRAC alone."""
        batch, columns = feed.batch, feed.columns
        if phase == "representation":
            coding, metrics = self.coding.update(
                state.coding,
                batch.observation,
                feed.others["later"],
                columns["offset"],
                columns["valid"],
            )
            return state._replace(coding=coding), metrics
        # Embeddings are not kept: of a million rows, s and s', they would take 2 GB.
        embedded = batch._replace(
            observation=self.embedding(state, batch.observation),
            next_observation=self.embedding(state, batch.next_observation),
        )
        planned, metrics = self.brac.update(phase, state.planned, Feed(embedded), key)
        return state._replace(planned=planned), metrics

    def embedding(self, state: CpcState, observation: jax.Array) -> jax.Array:
        return state.coding.embedding.network(observation)

    def q_value(self, state: CpcState, observation: jax.Array, action: jax.Array) -> jax.Array:
        return self.brac.q_value(state.planned, self.embedding(state, observation), action)

    def behaviour_log_density(
        self, state: CpcState, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        """Of the action under the clone: [B]."""
        return self.brac.behaviour_log_density(
            state.planned, self.embedding(state, observation), action
        )


LOGGED: Presets = {
    "paper-d4rl": Preset(
        Cpc(PredictiveCoding(representation_updates=200_000), brac.PAPER), schedule.LOGGED
    ),
    "small": Preset(
        Cpc(PredictiveCoding(representation_updates=20_000), brac.SMALL), schedule.LOGGED_NORMALISED
    ),
}
