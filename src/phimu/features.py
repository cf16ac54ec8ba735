"""phi and mu from arrays of transitions, without an environment: a density, an uncertainty."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phimu.confidence import Elliptical, EllipticalState
from phimu.errors import InputError
from phimu.normalisation import RunningNormaliser, normalise_batch
from phimu.representation.contrastive import Contrastive, ContrastiveState
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import Exponential
from phimu.representation.seam import bonus_input
from phimu.types import Batch, Feed, Spec

# Ranking alone leaves the scale of each row free; a density wants it held at one.
DENSITY = Contrastive(
    ratio=Exponential(
        phi_output="unit_variance", temperature=1.0, learn_temperature=True, marginal_weight=0.1
    ),
    noise=Negatives(random_share=0.0),
    feature_sizes=(256, 256),
    feature_dim=256,
    feature_layer_norm=True,
)
# That phi has always the same length: what is new is seen by the network without what makes it so.
NOVELTY = Elliptical(bonus_features="unnormalised_phi", bonus_kernel=(512, 0.45))


class LearnedFeatures:
    """What `learn_features` found; every method takes and gives NumPy arrays."""

    def __init__(
        self,
        settings: Contrastive,
        normaliser: RunningNormaliser,
        representation: ContrastiveState,
        metrics: dict[str, float],
    ):
        self.settings, self.metrics = settings, metrics
        self._normaliser, self._representation = normaliser, representation
        self._confidence: EllipticalState | None = None
        self._elliptical = NOVELTY

    def phi(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """phi(s, a): [B, d]."""
        return self._features("phi", observation, action)

    def _features(self, name: str, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        inputs = self._representation, self._normaliser, observation, action
        return np.asarray(_features(self.settings, name, *inputs))

    def mu(self, next_observation: np.ndarray) -> np.ndarray:
        """mu(s'), with the mean of one under p that the linear ratio has: [K, d]."""
        slow = self._representation.slow
        mu = slow.mu(self._normaliser(jnp.asarray(next_observation, jnp.float32)))
        return np.asarray(mu if slow.mu_mean is None else mu / slow.mu_mean)

    def density_ratio(
        self, observation: np.ndarray, action: np.ndarray, next_observation: np.ndarray
    ) -> np.ndarray:
        """P(s'|s,a) / p(s') of every (s, a) [B] with every s' [K]: [B, K]."""
        ratios = self.settings.log_ratio(
            self._representation,
            jnp.asarray(self.phi(observation, action)),
            self._normaliser(jnp.asarray(next_observation, jnp.float32)),
        )
        return np.exp(np.asarray(ratios, np.float64))

    def fit_confidence(
        self, observation: np.ndarray, action: np.ndarray, elliptical: Elliptical = NOVELTY
    ) -> "LearnedFeatures":
        """Take the covariance of these pairs; `bonus` then measures distance from them."""
        self._elliptical = elliptical
        phi = self._features(elliptical.bonus_features, observation, action)
        rewards = np.ones(len(action), np.float32)  # none are given: the unit is one
        self._confidence = elliptical.refresh(phi, rewards)
        return self

    def bonus(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """min(bonus_scale sqrt(phi' Sigma^-1 phi), 2): [B]."""
        if self._confidence is None:
            raise InputError("bonus needs data to measure from: call fit_confidence first.")
        phi = self._features(self._elliptical.bonus_features, observation, action)
        return np.asarray(self._elliptical.bonus(self._confidence, jnp.asarray(phi)))


def learn_features(
    observation: np.ndarray,
    action: np.ndarray,
    next_observation: np.ndarray,
    reward: np.ndarray | None = None,
    *,
    settings: Contrastive = DENSITY,
    batch_size: int = 256,
    updates: int = 5_000,
    seed: int = 0,
) -> LearnedFeatures:
    """Learn phi and mu of transitions [N, ...] by contrast; p is the data's distribution of s'."""
    columns = {"observation": observation, "action": action, "next_observation": next_observation}
    arrays = {name: _checked(name, value, len(observation)) for name, value in columns.items()}
    width, next_width = (arrays[n].shape[1] for n in ("observation", "next_observation"))
    if next_width != width:
        raise InputError(
            f"next_observation has {next_width} columns: give {width}, as observation has."
        )
    zeros = np.zeros(len(observation), np.float32)
    rewards = zeros if reward is None else _checked("reward", reward, len(observation), ndim=1)
    data = Batch(**arrays, reward=rewards, terminated=zeros, truncated=zeros)
    if settings.noise.random_share:
        raise InputError(
            f"random_share is {settings.noise.random_share}: arrays have no random trajectories "
            "apart from them; give 0."
        )
    spec = Spec(data.observation.shape[1], data.action.shape[1])
    state = jax.tree.map(jnp.copy, settings.init(spec, jax.random.PRNGKey(seed)))
    normaliser = RunningNormaliser(spec.observation_dim).include(jnp.asarray(data.observation))
    rng = np.random.default_rng(seed)
    metrics: dict[str, Any] = {}
    for update in range(updates):
        rows = rng.integers(0, len(observation), batch_size)
        others = rng.integers(0, len(observation), settings.noise.negatives)
        batch = Batch(*(column[rows] for column in data))
        negatives = data.next_observation[others]
        state, metrics = _update(settings, state, normaliser, batch, negatives, seed, update)
    return LearnedFeatures(
        settings, normaliser, state, {name: float(value) for name, value in metrics.items()}
    )


def _checked(name: str, value: np.ndarray, rows: int, ndim: int = 2) -> np.ndarray:
    array = np.asarray(value, np.float32)
    if array.ndim != ndim or len(array) != rows or rows == 0:
        wanted = "[N, size]" if ndim == 2 else "[N]"
        raise InputError(f"{name} has shape {array.shape}: give a row per transition, {wanted}.")
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise InputError(f"{name} is not finite in row {row}: drop or mend that transition.")
    return array


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _update(
    settings: Contrastive,
    state: ContrastiveState,
    normaliser: RunningNormaliser,
    batch: Batch,
    negatives: jax.Array,
    seed: int,
    update: int,
) -> Any:
    key = jax.random.fold_in(jax.random.PRNGKey(seed), update)
    feed = Feed(normalise_batch(normaliser, batch), {"negatives": normaliser(negatives)})
    return settings.update(state, feed, key)


@partial(jax.jit, static_argnums=(0, 1))
def _features(
    settings: Contrastive,
    name: str,
    state: ContrastiveState,
    normaliser: RunningNormaliser,
    observation: Any,
    action: Any,
) -> jax.Array:
    observation = jnp.asarray(observation, jnp.float32)
    phi = bonus_input(settings, name, state)
    return phi(normaliser(observation), jnp.asarray(action, jnp.float32))
