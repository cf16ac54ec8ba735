"""One update of the representation: contrastive loss, regularisers, reward head, slow copies."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.errors import InputError
from phimu.networks import MLP, Dense, Fourier, norm, polyak
from phimu.representation.features import (
    FeatureMap,
    Features,
    MuOutput,
    PhiOutput,
    SlowFeatures,
)
from phimu.representation.losses import (
    LOSSES,
    balance_penalty,
    log_marginal,
    marginal_penalty,
    mu_norm_penalty,
    ranking_of_normalised,
)
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import RATIOS, TINY
from phimu.types import Batch, Metrics, Spec

ACCURACY_ROWS = 64
MEAN_RATE = 0.02  # of the running mean of the slow mu: over some fifty batches,
MEAN_STRIDE = 2  # of which every other row is enough
NON_NEGATIVE = {"softmax", "softplus", "sigmoid", "gaussian", "exponential"}


class Representation(NamedTuple):
    """Training state of phi and mu."""

    features: Features
    slow: SlowFeatures
    optimiser: optax.OptState


@dataclass(frozen=True)
class Contrastive:
    """How phi and mu are parametrised and learned."""

    loss: Literal["ranking", "binary"] = "ranking"
    """Which NCE objective: equation (ranking) or equation (binary)."""
    ratio: Literal["exponential", "linear"] = "exponential"
    """exp(<phi, mu> / temperature), or <phi, mu> itself (a true linear MDP)."""
    feature_dim: int = 2048
    """d, the size of phi and mu."""
    feature_sizes: tuple[int, ...] = (1024, 1024)
    """Hidden layers of phi and of mu."""
    phi_output: PhiOutput = "identity"
    """Last function of phi; the linear ratio wants softmax or softplus."""
    mu_output: MuOutput = "tanh"
    """Last function of mu; section 4.1 offers sigmoid, gaussian and tanh to bound it."""
    feature_layer_norm: bool = False
    """LayerNorm in the hidden layers of phi and mu."""
    fourier_features: int = 0
    """Random frequencies of the observation fed to phi and mu besides it; 0 is none."""
    fourier_scale: float = 0.5
    """Standard deviation of those frequencies, in cycles per normalised unit."""
    phi_gain: float = 1.0
    """Multiplies phi's last layer: above 1, soft clusters begin distinct and part faster."""
    mu_gain: float = 1.0
    """The same for mu's last layer."""
    temperature: float = 0.2
    """Divides <phi, mu> in the exponential ratio."""
    learn_temperature: bool = False
    """Whether the temperature is learned, starting from `temperature`."""
    marginal_weight: float = 0.0
    """Weight of (log int phi mu p)^2, section 4.2; where that is 0 by construction, no effect."""
    mu_norm_weight: float = 0.0
    """Weight of E_p |mu|^2, section 4.1."""
    balance_weight: float = 0.0
    """Weight of KL(E phi || uniform), which keeps all components of a softmax phi in use."""
    reward_weight: float = 0.0
    """Weight of the linear reward head's squared error."""
    bonus_prediction_weight: float = 0.0
    """Weight of CTRL-UCBL's loss: phi predicts the bonus linearly, appendix C."""
    feature_learning_rate: float = 3e-4
    """Adam's step for phi and mu ("Model lr")."""
    feature_decay: int | None = None
    """If given, Adam's step falls as 1 / (1 + update / feature_decay)."""
    feature_rate: float = 0.005
    """How fast the slow copies follow ("Model Update Tau")."""

    def __post_init__(self) -> None:
        if self.ratio == "linear":
            for field in ("phi_output", "mu_output"):
                if getattr(self, field) not in NON_NEGATIVE:
                    raise InputError(
                        f"{field} is {getattr(self, field)!r}, which can be negative: "
                        f"ratio=linear needs one of {', '.join(sorted(NON_NEGATIVE))}."
                    )
        if self.balance_weight and self.phi_output != "softmax":
            raise InputError(
                f"balance_weight is {self.balance_weight}, but phi_output is {self.phi_output!r}: "
                "only a softmax phi can be balanced."
            )
        if self.feature_dim < 1:
            raise InputError(f"feature_dim is {self.feature_dim}: give at least 1.")
        if self.temperature <= 0:
            raise InputError(f"temperature is {self.temperature}: give a positive number.")
        if self.feature_decay is not None and self.feature_decay < 1:
            raise InputError(f"feature_decay is {self.feature_decay}: give at least 1, or None.")

    def optimiser(self) -> optax.GradientTransformation:
        if self.feature_decay is None:
            return optax.adam(self.feature_learning_rate)
        rate, decay = self.feature_learning_rate, self.feature_decay
        return optax.adam(lambda update: rate / (1.0 + update / decay))

    def init(self, spec: Spec, key: jax.Array) -> Representation:
        fourier_key, phi_key, mu_key, reward_key, bonus_key = jax.random.split(key, 5)
        fourier, width = None, spec.observation_dim
        if self.fourier_features:
            fourier = Fourier(width, self.fourier_features, self.fourier_scale, fourier_key)
            width += 2 * self.fourier_features
        shape = (*self.feature_sizes, self.feature_dim)

        def feature_map(inputs: int, key: jax.Array, output: str, gain: float) -> FeatureMap:
            network = MLP((inputs, *shape), key, layer_norm=self.feature_layer_norm)
            return FeatureMap(fourier, network, output, gain)

        features = Features(
            phi=feature_map(width + spec.action_dim, phi_key, self.phi_output, self.phi_gain),
            mu=feature_map(width, mu_key, self.mu_output, self.mu_gain),
            reward_head=Dense(self.feature_dim, 1, reward_key),
            bonus_head=Dense(self.feature_dim, 1, bonus_key),
            log_temperature=jnp.asarray(np.log(self.temperature), jnp.float32),
            log_normaliser=jnp.zeros(()),
        )
        slow = SlowFeatures(features.phi, features.mu, jnp.ones(self.feature_dim))
        return Representation(features, slow, self.optimiser().init(features))

    def log_ratio(
        self, phi: jax.Array, mu: jax.Array, mu_mean: jax.Array, log_temperature: jax.Array
    ) -> jax.Array:
        """log P(s'|s,a)/p(s') of every pair: [B, K]."""
        if self.ratio == "linear":
            # With phi on the simplex and E_p mu = 1 in every component the integral is one.
            mu = mu / jnp.maximum(mu_mean, TINY)[None, :]
        return RATIOS[self.ratio](phi, mu, jnp.exp(log_temperature))

    def normalised_by(self, negatives: Negatives) -> bool:
        """Whether the candidates' ratios sum to their number by construction."""
        return (
            self.loss == "ranking"
            and self.ratio == "linear"
            and self.phi_output == "softmax"
            and negatives.in_batch
        )

    def update(
        self,
        state: Representation,
        batch: Batch,
        noise: jax.Array,
        negatives: Negatives,
        bonus: jax.Array | None = None,
    ) -> tuple[Representation, Metrics]:
        """One Adam step on the loss, and one step of the slow copies towards the result."""
        gradient = jax.grad(self.objective, has_aux=True)
        grads, metrics = gradient(state.features, batch, noise, negatives, bonus)
        metrics["feature_gradient"] = norm(grads)
        updates, optimiser = self.optimiser().update(grads, state.optimiser)
        features = eqx.apply_updates(state.features, updates)
        slow_phi = polyak(state.slow.phi, features.phi, self.feature_rate)
        slow_mu = polyak(state.slow.mu, features.mu, self.feature_rate)
        mu_mean = state.slow.mu_mean
        if self.ratio == "linear":
            some = jnp.concatenate([batch.next_observation, noise])[::MEAN_STRIDE]
            mu_mean = polyak(mu_mean, jnp.mean(slow_mu(some), axis=0), MEAN_RATE)
        return Representation(
            features, SlowFeatures(slow_phi, slow_mu, mu_mean), optimiser
        ), metrics

    def objective(
        self,
        features: Features,
        batch: Batch,
        noise: jax.Array,
        negatives: Negatives,
        bonus: jax.Array | None,
    ) -> tuple[jax.Array, Metrics]:
        """The whole loss and its metrics."""
        phi = features.phi(batch.observation, batch.action)  # [B, d]
        mu = features.mu(jnp.concatenate([batch.next_observation, noise]))  # [B + K, d]
        mu_mean = jnp.mean(mu, axis=0)
        log_temperature = features.log_temperature
        if not self.learn_temperature:
            log_temperature = jax.lax.stop_gradient(log_temperature)
        count = negatives.count(phi.shape[0])
        if self.normalised_by(negatives):
            own = mu[: phi.shape[0]] / jnp.maximum(mu_mean, TINY)[None, :]
            positive = jnp.log(jnp.sum(phi * own, axis=1) + TINY)
            nce = ranking_of_normalised(positive, count)
            few = jax.lax.stop_gradient(phi[:ACCURACY_ROWS])  # enough for a metric
            log_ratios = self.log_ratio(few, mu, mu_mean, log_temperature)
            positive, negative = negatives.split(jax.lax.stop_gradient(log_ratios))
            total = nce
        else:
            log_ratios = self.log_ratio(phi, mu, mu_mean, log_temperature)
            positive, negative = negatives.split(log_ratios)
            nce = LOSSES[self.loss](positive, negative, count, features.log_normaliser)
            total = nce
            if self.marginal_weight:
                total += self.marginal_weight * marginal_penalty(negative, count)
        metrics = {
            "nce_loss": nce,
            "nce_accuracy": jnp.mean(positive > jnp.max(negative, axis=1)),
            "log_normaliser": jnp.mean(log_marginal(negative, count)),
        }
        if self.mu_norm_weight:
            total += self.mu_norm_weight * mu_norm_penalty(mu)
        if self.balance_weight:
            total += self.balance_weight * balance_penalty(phi)
        if self.reward_weight:
            predicted = features.reward_head(phi)[:, 0]
            metrics["reward_loss"] = jnp.mean((predicted - batch.reward) ** 2)
            total += self.reward_weight * metrics["reward_loss"]
        if self.bonus_prediction_weight and bonus is not None:
            predicted = features.bonus_head(phi[: bonus.shape[0]])[:, 0]
            metrics["bonus_loss"] = jnp.mean((predicted - bonus) ** 2)
            total += self.bonus_prediction_weight * metrics["bonus_loss"]
        return total, metrics

    def slow_log_ratio(
        self, state: Representation, phi: jax.Array, next_observation: jax.Array
    ) -> jax.Array:
        """log ratio of slow phi [B, d] to every next observation [K, D]: [B, K]."""
        slow = state.slow
        shift = state.features.log_normaliser if self.loss == "binary" else jnp.zeros(())
        ratios = self.log_ratio(
            phi, slow.mu(next_observation), slow.mu_mean, state.features.log_temperature
        )
        return ratios - shift
