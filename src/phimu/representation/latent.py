"""LV-Rep: dynamics with a latent variable, P(s'|s,a) = int p(z|s,a) p(s'|z) dz.

p(z|s,a), the prior, is a Gaussian of diagonal covariance, p(s'|z) another one around a decoder, and
both are learned through the evidence lower bound with a posterior q(z|s,a,s'). Q is linear in
p(.|s,a), Q = E_p[w(z)]. With w in random Fourier features that mean has a closed form:

    phi(s, a) = sqrt(2) E_p cos(W'z + b) = sqrt(2) exp(-|W deviation|^2 / 2) cos(W'mean + b).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.errors import at_least
from phimu.networks import MLP, Dense, cosine, norm, polyak, product
from phimu.normalisation import RunningNormaliser
from phimu.policies import LOG_STD_RANGE
from phimu.representation.seam import Phi
from phimu.types import Drawn, Feed, Metrics, Sample, Spec, Store


class LatentNetworks(eqx.Module):
    """Everything the loss trains."""

    prior: MLP  # of (s, a)
    posterior: MLP  # of (s, a, s')
    decoder: MLP  # s', of z
    reward: MLP  # r, of z


class LatentVariableState(NamedTuple):
    """Training state of the model."""

    networks: LatentNetworks
    slow: MLP  # the prior
    frequencies: jax.Array  # W [latent_dim, d], drawn once and never trained
    optimiser: optax.OptState
    spread: RunningNormaliser  # of observations: s' is decoded in units of their deviation


@dataclass(frozen=True)
class LatentVariable:
    """How the model is parametrised and learned."""

    latent_dim: int = 256
    """Size of z."""
    feature_dim: int = 256
    """d, the size of phi: random features of p(z|s,a)."""
    feature_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of prior, posterior and decoder."""
    feature_layer_norm: bool = True
    """LayerNorm in their hidden layers."""
    kl_weight: float = 0.1
    """Of KL(q || p), a mean over components of z, beside the mean squared error of s': a decoder
    whose variance is kl_weight * observation_dim / (2 latent_dim)."""
    reward_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward head on z."""
    reward_weight: float = 1.0
    """Weight of the reward head's squared error, which trains prior and posterior too."""
    feature_learning_rate: float = 3e-4
    """Adam's step for all networks."""
    feature_rate: float = 0.005
    """How fast the slow prior follows, whose features the planner reads."""

    def __post_init__(self) -> None:
        at_least(1, feature_dim=self.feature_dim, latent_dim=self.latent_dim)
        at_least(0, reward_weight=self.reward_weight, kl_weight=self.kl_weight)

    @property
    def bonus_prediction_weight(self) -> float:
        return 0.0

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.feature_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> LatentVariableState:
        keys = jax.random.split(key, 5)
        pair, observed, z = spec.pair_dim, spec.observation_dim, self.latent_dim

        def network(inputs: int, outputs: int, key: jax.Array) -> MLP:
            sizes = (inputs, *self.feature_sizes, outputs)
            return MLP(sizes, key, layer_norm=self.feature_layer_norm)

        networks = LatentNetworks(
            network(pair, 2 * z, keys[0]),
            network(pair + observed, 2 * z, keys[1]),
            network(z, observed, keys[2]),
            MLP((z, *self.reward_sizes, 1), keys[3]),
        )
        frequencies = Dense(z, self.feature_dim, keys[4]).weight
        optimiser, spread = self.optimiser().init(networks), RunningNormaliser(observed)
        return LatentVariableState(networks, networks.prior, frequencies, optimiser, spread)

    def draw(self, store: Store, sample: Sample, rng: Any) -> Drawn:
        return Drawn(sample.rows)

    def update(
        self,
        state: LatentVariableState,
        feed: Feed,
        key: jax.Array,
        bonus: jax.Array | None = None,
        pull: jax.Array | None = None,
    ) -> tuple[LatentVariableState, Metrics]:
        """One Adam step, and one step of the slow prior.

        `pull` [<= B, d] is the gradient of another loss with respect to phi of the first rows.
        """
        del bonus
        batch = feed.batch
        spread = state.spread.include(batch.observation)
        following = spread(batch.next_observation)
        noise = jax.random.normal(key, (following.shape[0], self.latent_dim))
        grads, metrics = jax.grad(self.objective, has_aux=True)(
            state.networks, feed, following, noise, state.frequencies, pull
        )
        metrics["feature_gradient"] = norm(grads)
        steps, optimiser = self.optimiser().update(grads, state.optimiser)
        networks = eqx.apply_updates(state.networks, steps)
        slow = polyak(state.slow, networks.prior, self.feature_rate)
        return LatentVariableState(networks, slow, state.frequencies, optimiser, spread), metrics

    def objective(
        self,
        networks: LatentNetworks,
        feed: Feed,
        following: jax.Array,
        noise: jax.Array,
        frequencies: jax.Array,
        pull: jax.Array | None = None,
    ) -> tuple[jax.Array, Metrics]:
        """Minus the evidence lower bound, scaled, with z = mean + deviation * noise [B, z]."""
        batch = feed.batch
        pair = jnp.concatenate([batch.observation, batch.action], axis=1)
        prior = gaussian(networks.prior(pair))
        posterior = gaussian(networks.posterior(jnp.concatenate([pair, following], axis=1)))
        z = posterior[0] + jnp.exp(posterior[1]) * noise
        following_loss = jnp.mean((networks.decoder(z) - following) ** 2)
        reward_loss = jnp.mean((networks.reward(z)[:, 0] - batch.reward) ** 2)
        kl = jnp.mean(divergence(posterior, prior))
        total = following_loss + self.kl_weight * kl + self.reward_weight * reward_loss
        if pull is not None:
            few = prior[0][: pull.shape[0]], prior[1][: pull.shape[0]]
            total += jnp.sum(pull * random_features(few, frequencies))
        return total, {
            "following_loss": following_loss,
            "latent_divergence": kl,
            "reward_loss": reward_loss,
            "latent_deviation": jnp.mean(jnp.exp(prior[1])),
        }

    def phi(self, state: LatentVariableState) -> Phi:
        """Random features of the slow prior, which the planner reads."""
        return _features(state.slow, state.frequencies)

    def current(self, state: LatentVariableState) -> Phi:
        """Those of the prior that is being trained."""
        return _features(state.networks.prior, state.frequencies)

    def unnormalised_phi(self, state: LatentVariableState) -> Phi:
        """W' mean without LayerNorm: waves are bounded, and hide what is far away."""

        def angles(observation: jax.Array, action: jax.Array) -> jax.Array:
            pair = jnp.concatenate([observation, action], axis=-1)
            return product(gaussian(state.slow.without_norm(pair))[0], state.frequencies)

        return angles


Parameters = tuple[jax.Array, jax.Array]  # mean and log standard deviation, each [B, z]


def gaussian(outputs: jax.Array) -> Parameters:
    """A network's outputs [..., 2 z] as those of a Gaussian."""
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    # Deviation: from -5, where published code has -20; narrower ones are never of use here.
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def divergence(one: Parameters, other: Parameters) -> jax.Array:
    """KL(one || other) of every component: [B, z]."""
    ratio = jnp.exp(2 * (one[1] - other[1]))
    distance = (one[0] - other[0]) ** 2 * jnp.exp(-2 * other[1])
    return 0.5 * (ratio + distance - 1) - one[1] + other[1]


def random_features(z: Parameters, frequencies: jax.Array) -> jax.Array:
    """sqrt(2) E cos(W'z + b) [B, d] of a Gaussian z; b is 0, or a quarter turn."""
    # Deviation: published critics average a trained function over 20 fixed draws of z.
    angle = product(z[0], frequencies)
    turns = np.arange(angle.shape[-1]) % 2 * np.float32(np.pi / 2)
    blur = jnp.exp(-0.5 * product(jnp.exp(2 * z[1]), frequencies**2))
    return np.float32(np.sqrt(2)) * blur * cosine(angle + jnp.broadcast_to(turns, angle.shape))


def _features(prior: MLP, frequencies: jax.Array) -> Phi:
    return lambda observation, action: random_features(
        gaussian(prior(jnp.concatenate([observation, action], axis=-1))), frequencies
    )
