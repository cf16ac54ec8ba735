"""Diff-SR: phi predicts, linearly, the noise that was added to s'.

With x = sqrt(k) s' + sqrt(1 - k) noise, where k is the share of s' that is kept at a level,

    E[noise | x, s, a] = K(x, k)' phi(s, a),   K a matrix [d, D],

is sqrt(1 - k) times minus the score of x, the gradient of log P(x|s,a). Where P(s'|s,a) is an
exponential family with the natural parameters phi, the score is linear in phi. There is no density.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.errors import at_least
from phimu.networks import MLP, norm, polyak
from phimu.normalisation import RunningNormaliser
from phimu.representation.features import FeatureMap
from phimu.representation.perturbation import TOLD, kept_signal, waves
from phimu.representation.seam import Phi
from phimu.types import Drawn, Feed, Metrics, Sample, Spec, Store


class ScoreNetworks(eqx.Module):
    """Everything the loss trains."""

    phi: FeatureMap
    kernel: MLP  # K, of x and what it is told of its level: [B, d * D]
    reward: MLP  # r, of phi(s, a)

    def noise(self, phi: jax.Array, x: jax.Array, kept: jax.Array) -> jax.Array:
        """What is expected in x [B, D], of which a share `kept` [B] is s': [B, D]."""
        told = waves(jnp.sqrt(1 / kept - 1))  # noise over signal
        kernel = self.kernel(jnp.concatenate([x, told], axis=1))
        return jnp.sum(phi[:, :, None] * kernel.reshape(*phi.shape, x.shape[1]), axis=1)


class ScoreMatchingState(NamedTuple):
    """Training state of phi and K."""

    networks: ScoreNetworks
    slow: FeatureMap  # phi
    optimiser: optax.OptState
    spread: RunningNormaliser  # of observations: s' is noised in units of their deviation


@dataclass(frozen=True)
class ScoreMatching:
    """How phi and K are parametrised and learned."""

    noise_levels: int = 50
    """Of the schedule, from hardly any noise to hardly any s'; each row of a batch has its own."""
    feature_dim: int = 256
    """d, the size of phi."""
    feature_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of phi and of K."""
    feature_layer_norm: bool = True
    """LayerNorm in the hidden layers of phi and K."""
    phi_output: Literal["identity", "elu", "unit_variance"] = "unit_variance"
    """Last function of phi."""
    reward_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward head on phi."""
    reward_weight: float = 1.0
    """Weight of the reward head's squared error, which trains phi too."""
    feature_learning_rate: float = 3e-4
    """Adam's step for phi, K and the reward head."""
    feature_rate: float = 0.005
    """How fast the slow phi follows, which the planner reads."""

    def __post_init__(self) -> None:
        at_least(1, feature_dim=self.feature_dim, noise_levels=self.noise_levels)
        at_least(0, reward_weight=self.reward_weight)

    @property
    def bonus_prediction_weight(self) -> float:
        return 0.0

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.feature_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> ScoreMatchingState:
        for_phi, for_kernel, for_reward = jax.random.split(key, 3)
        d, observed = self.feature_dim, spec.observation_dim
        phi = MLP((spec.pair_dim, *self.feature_sizes, d), for_phi, "elu", self.feature_layer_norm)
        networks = ScoreNetworks(
            FeatureMap(None, phi, self.phi_output, 1.0),
            MLP(
                (observed + TOLD, *self.feature_sizes, d * observed),
                for_kernel,
                layer_norm=self.feature_layer_norm,
                last_gain=float(1 / np.sqrt(d)),  # so that K' phi begins at the size of noise
            ),
            MLP((d, *self.reward_sizes, 1), for_reward),
        )
        optimiser, spread = self.optimiser().init(networks), RunningNormaliser(observed)
        return ScoreMatchingState(networks, networks.phi, optimiser, spread)

    def draw(self, store: Store, sample: Sample, rng: Any) -> Drawn:
        return Drawn(sample.rows)

    def update(
        self,
        state: ScoreMatchingState,
        feed: Feed,
        key: jax.Array,
        bonus: jax.Array | None = None,
        pull: jax.Array | None = None,
    ) -> tuple[ScoreMatchingState, Metrics]:
        """One Adam step, and one step of the slow phi.

        `pull` [<= B, d] is the gradient of another loss with respect to phi of the first rows.
        """
        del bonus
        for_level, for_noise = jax.random.split(key)
        rows, batch = feed.batch.reward.shape[0], feed.batch
        level = jax.random.randint(for_level, (rows,), 0, self.noise_levels)
        kept = self.kept()[level]
        noise = jax.random.normal(for_noise, batch.next_observation.shape)
        spread = state.spread.include(batch.observation)
        grads, metrics = jax.grad(self.objective, has_aux=True)(
            state.networks, feed, spread(batch.next_observation), kept, noise, pull
        )
        metrics["feature_gradient"] = norm(grads)
        steps, optimiser = self.optimiser().update(grads, state.optimiser)
        networks = eqx.apply_updates(state.networks, steps)
        slow = polyak(state.slow, networks.phi, self.feature_rate)
        return ScoreMatchingState(networks, slow, optimiser, spread), metrics

    def objective(
        self,
        networks: ScoreNetworks,
        feed: Feed,
        following: jax.Array,
        kept: jax.Array,
        noise: jax.Array,
        pull: jax.Array | None = None,
    ) -> tuple[jax.Array, Metrics]:
        """The squared error of the noise [B, D] in s' [B, D] at levels [B], and of the reward."""
        phi = networks.phi(feed.batch.observation, feed.batch.action)  # [B, d]
        x = jnp.sqrt(kept)[:, None] * following + jnp.sqrt(1 - kept)[:, None] * noise
        error = jnp.sum((networks.noise(phi, x, kept) - noise) ** 2, axis=1)
        score_loss = jnp.mean(error)
        reward_loss = jnp.mean((networks.reward(phi)[:, 0] - feed.batch.reward) ** 2)
        total = score_loss + self.reward_weight * reward_loss
        if pull is not None:
            total += jnp.sum(pull * phi[: pull.shape[0]])
        return total, {
            "score_loss": score_loss / noise.shape[1],
            "reward_loss": reward_loss,
            "phi_size": jnp.sqrt(jnp.mean(phi**2)),
        }

    def kept(self) -> jax.Array:
        """Share of variance that is still s' at each level: [noise_levels]."""
        return jnp.asarray(kept_signal(self.noise_levels), jnp.float32)

    def score(
        self,
        state: ScoreMatchingState,
        observation: jax.Array,
        action: jax.Array,
        x: jax.Array,
        level: jax.Array,
    ) -> jax.Array:
        """The gradient of log P(x|s,a) at x [B, D], an s' in deviations noised at a level [B]."""
        kept = self.kept()[level]
        phi = state.networks.phi(observation, action)
        return -state.networks.noise(phi, x, kept) / jnp.sqrt(1 - kept)[:, None]

    def phi(self, state: ScoreMatchingState) -> Phi:
        """The slow phi, which the planner reads."""
        return state.slow

    def current(self, state: ScoreMatchingState) -> Phi:
        """The phi that is being trained."""
        return state.networks.phi

    def unnormalised_phi(self, state: ScoreMatchingState) -> Phi:
        """The same network without LayerNorm and output function, for the bonus."""
        return state.slow.unnormalised
