"""Contrastive predictive coding: an embedding of s that tells what follows it from other s."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.errors import InputError
from phimu.networks import MLP, norm, product
from phimu.types import Metrics, Spec


class Embedding(eqx.Module):
    """The embedding, and one bilinear form per offset that compares an s with a later one."""

    network: MLP
    forms: jax.Array  # [window - 1, d, d]

    def logits(self, observation: jax.Array, later: jax.Array, offset: jax.Array) -> jax.Array:
        """How well each s [B] goes with each s' [K] that is `offset` steps later: [B, K]."""
        form = self.forms[offset - 1]
        return product(product(self.network(observation), form), self.network(later).T)


class PredictiveCodingState(NamedTuple):
    """Training state of the embedding."""

    embedding: Embedding
    optimiser: optax.OptState


@dataclass(frozen=True)
class PredictiveCoding:
    """How the embedding is learned, before anything is planned."""

    representation_updates: int = 200_000
    """Updates of the embedding; it is frozen after them."""
    embedding_dim: int = 256
    """Size of the embedding."""
    embedding_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the embedding, with swish."""
    window: int = 8
    """Observations in a row that are compared: the first with one of the 1 to window - 1 later."""
    embedding_learning_rate: float = 3e-4
    """Adam's step."""

    def __post_init__(self) -> None:
        for name, least in (("representation_updates", 1), ("embedding_dim", 1), ("window", 2)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}: give at least {least}.")

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.embedding_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> PredictiveCodingState:
        widths = (spec.observation_dim, *self.embedding_sizes, self.embedding_dim)
        same = jnp.eye(self.embedding_dim)[None]
        forms = jnp.tile(same, (self.window - 1, 1, 1))
        embedding = Embedding(MLP(widths, key, "swish"), forms)
        return PredictiveCodingState(embedding, self.optimiser().init(embedding))

    def update(
        self,
        state: PredictiveCodingState,
        observation: jax.Array,
        later: jax.Array,
        offset: jax.Array,
        valid: jax.Array,
    ) -> tuple[PredictiveCodingState, Metrics]:
        """One step of InfoNCE: pick each row's own later s out of the batch's.

        `later` is `offset` steps after `observation` where `valid` [B] says so; the other rows,
        whose episode ends before, are not asked, but serve as negatives.
        """
        asked = valid.astype(jnp.float32)

        def loss(embedding: Embedding) -> tuple[jax.Array, jax.Array]:
            logits = embedding.logits(observation, later, offset)
            own = jnp.diagonal(logits)
            each = jax.nn.logsumexp(logits, axis=1) - own
            right = (own >= jnp.max(logits, axis=1)).astype(jnp.float32)
            count = jnp.maximum(jnp.sum(asked), 1.0)
            return jnp.sum(asked * each) / count, jnp.sum(asked * right) / count

        (value, accuracy), grads = jax.value_and_grad(loss, has_aux=True)(state.embedding)
        updates, optimised = self.optimiser().update(grads, state.optimiser)
        embedding = eqx.apply_updates(state.embedding, updates)
        return PredictiveCodingState(embedding, optimised), {
            "nce_loss": value,
            "nce_accuracy": accuracy,
            "feature_gradient": norm(grads),
        }
