"""The behaviour policy of a set as a conditional variational autoencoder, to sample actions from.

Its density is not known, unlike that of the clone in `planning.behaviour`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.errors import InputError
from phimu.networks import MLP, norm
from phimu.types import Metrics, Spec

LATENT_LOG_STD = (-4.0, 15.0)  # bounds, as published


class Autoencoder(eqx.Module):
    """Actions as tanh of a network of s and a latent vector z of twice their size."""

    encoder: MLP
    decoder: MLP

    def __init__(self, spec: Spec, sizes: Sequence[int], key: jax.Array):
        for_encoder, for_decoder = jax.random.split(key)
        latent_dim = 2 * spec.action_dim
        self.encoder = MLP((spec.pair_dim, *sizes, 2 * latent_dim), for_encoder, "relu")
        widths = (spec.observation_dim + latent_dim, *sizes, spec.action_dim)
        self.decoder = MLP(widths, for_decoder, "relu")

    def encode(self, observation: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and log standard deviation of z, each [..., latent_dim]."""
        out = self.encoder(jnp.concatenate([observation, action], axis=-1))
        mean, log_std = jnp.split(out, 2, axis=-1)
        return mean, jnp.clip(log_std, *LATENT_LOG_STD)

    def decode(self, observation: jax.Array, latent: jax.Array) -> jax.Array:
        """Actions before the tanh: [..., action_dim]."""
        return self.decoder(jnp.concatenate([observation, latent], axis=-1))


class GenerativeCloningState(NamedTuple):
    """Training state of the autoencoder."""

    model: Autoencoder
    model_optimiser: optax.OptState


@dataclass(frozen=True)
class GenerativeCloning:
    """How the behaviour policy is learned to be sampled from."""

    behaviour_sizes: tuple[int, ...] = (750, 750)
    """Hidden layers of encoder and decoder."""
    behaviour_learning_rate: float = 1e-3
    """Adam's step for both."""
    latent_weight: float = 0.5
    """Of the KL divergence of z, a mean over its dimensions, beside the squared error."""
    latent_clip: float = 0.5
    """Bound of z where actions are sampled: less of it, and only typical actions come."""

    def __post_init__(self) -> None:
        for name in ("latent_weight", "latent_clip"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}: give 0 or more.")

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.behaviour_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> GenerativeCloningState:
        model = Autoencoder(spec, self.behaviour_sizes, key)
        return GenerativeCloningState(model, self.optimiser().init(model))

    def update(
        self,
        state: GenerativeCloningState,
        observation: jax.Array,
        action: jax.Array,
        key: jax.Array,
    ) -> tuple[GenerativeCloningState, Metrics]:
        """One step down the squared error of actions and the KL divergence of z from N(0, I)."""

        def loss(model: Autoencoder) -> tuple[jax.Array, Metrics]:
            mean, log_std = model.encode(observation, action)
            latent = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
            error = jnp.mean((jnp.tanh(model.decode(observation, latent)) - action) ** 2)
            spread = jnp.exp(2.0 * log_std)
            divergence = 0.5 * jnp.mean(mean**2 + spread - 1.0 - 2.0 * log_std)
            told = {"reconstruction_error": error, "latent_divergence": divergence}
            return error + self.latent_weight * divergence, told

        grads, told = jax.grad(loss, has_aux=True)(state.model)
        updates, optimised = self.optimiser().update(grads, state.model_optimiser)
        model = eqx.apply_updates(state.model, updates)
        told |= {"behaviour_gradient": norm(grads)}
        return GenerativeCloningState(model, optimised), told

    def sample(
        self, model: Autoencoder, observation: jax.Array, count: int, key: jax.Array
    ) -> jax.Array:
        """`count` actions at each observation [B, D], before the tanh: [B, count, action_dim]."""
        rows = jnp.repeat(observation, count, axis=0)
        latent_dim = model.encoder.layers[-1].bias.shape[0] // 2
        latent = jax.random.normal(key, (len(rows), latent_dim))
        clipped = jnp.clip(latent, -self.latent_clip, self.latent_clip)
        return model.decode(rows, clipped).reshape(len(observation), count, -1)
