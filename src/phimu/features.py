"""phi and mu from arrays of transitions, without an environment: a density, an uncertainty."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phimu.confidence import Elliptical, EllipticalState
from phimu.errors import InputError
from phimu.inputs import rows_of
from phimu.normalisation import RunningNormaliser, normalise_batch
from phimu.representation.contrastive import Contrastive, ContrastiveState
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import Exponential
from phimu.representation.seam import bonus_input
from phimu.training.base_measure import BaseMeasure, of_points
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
    """What `learn_features` found; every method takes and gives NumPy arrays.

    The words mean what they mean of a model: see `phimu.queries`. Actions are as the arrays had
    them.
    """

    def __init__(
        self,
        settings: Contrastive,
        normaliser: RunningNormaliser,
        representation: ContrastiveState,
        metrics: dict[str, float],
        spec: Spec,
        base: BaseMeasure,
    ):
        self.settings, self.metrics, self.spec = settings, metrics, spec
        self._normaliser, self._representation, self._base = normaliser, representation, base
        self._confidence: EllipticalState | None = None
        self._elliptical = NOVELTY

    def phi(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """phi(s, a): [B, d]."""
        return self._features("phi", observation, action)

    def _features(self, name: str, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        states = rows_of("observation", observation, (self.spec.observation_dim,))
        actions = rows_of("action", action, (self.spec.action_dim,), len(states))
        inputs = self._representation, self._normaliser, states, actions
        return np.asarray(_features(self.settings, name, *inputs))

    def mu(self, next_observation: np.ndarray) -> np.ndarray:
        """mu(s'): [K, d]. Of the linear ratio it has a mean of one under p."""
        following = self._normaliser(jnp.asarray(self._next(next_observation)))
        return np.asarray(self.settings.mu(self._representation, following))

    @property
    def temperature(self) -> float:
        """Of the exponential ratio; the linear one has none."""
        return float(self.settings.temperature(self._representation))

    def density_ratio(
        self, observation: np.ndarray, action: np.ndarray, next_observation: np.ndarray
    ) -> np.ndarray:
        """P(s'|s,a) / p(s') of every (s, a) [B] with every s' [K]: [B, K].

        Its mean over s' of the base measure is one.
        """
        phi, following = self.phi(observation, action), self._next(next_observation)
        log_z = self._base.log_mean_exp(partial(self._log_ratio, phi))
        return np.exp(self._log_ratio(phi, following) - log_z[:, None])

    def log_z(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """log Z(s, a): [B]; 0 where the learned ratio has a mean of one without being divided."""
        phi = self.phi(observation, action)
        return self._base.log_mean_exp(partial(self._log_ratio, phi))

    def base_measure(self) -> BaseMeasure:
        """p(s') as points: the next observations given, or a sample of them if there are many."""
        return self._base

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
        if self._elliptical.bonus_scale == 0:
            raise InputError("bonus_scale is 0, so the bonus is 0 everywhere: give more than 0.")
        phi = self._features(self._elliptical.bonus_features, observation, action)
        return np.asarray(self._elliptical.bonus(self._confidence, jnp.asarray(phi)))

    def _next(self, next_observation: np.ndarray) -> np.ndarray:
        return rows_of("next_observation", next_observation, (self.spec.observation_dim,))

    def _log_ratio(self, phi: np.ndarray, following: np.ndarray) -> np.ndarray:
        seen = self._normaliser(jnp.asarray(following))
        ratios = self.settings.log_ratio(self._representation, jnp.asarray(phi), seen)
        return np.asarray(ratios, np.float64)


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
    """Learn phi and mu from transitions [N, ...] by noise contrastive estimation.

    The base measure p is the data's own distribution of next observations.
    """
    data = _checked(observation, action, next_observation, reward)
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
    told = {name: float(value) for name, value in metrics.items()}
    base = of_points(data.next_observation, np.random.default_rng(seed))
    return LearnedFeatures(settings, normaliser, state, told, spec, base)


def _checked(observation: Any, action: Any, next_observation: Any, reward: Any) -> Batch:
    """N > 0 transitions whose sizes agree."""
    sizes = []
    for name, given in (("observation", observation), ("action", action)):
        shape = np.shape(given)
        if len(shape) != 2 or 0 in shape:
            raise InputError(f"{name} has shape {shape}: give a row per transition, [N, size].")
        sizes.append(shape[1:])
    states = rows_of("observation", observation, sizes[0])
    actions = rows_of("action", action, sizes[1], len(states))
    following = rows_of("next_observation", next_observation, sizes[0], len(states))
    zeros = np.zeros(len(states), np.float32)
    rewards = zeros if reward is None else rows_of("reward", reward, (), len(states))
    return Batch(states, actions, rewards, following, terminated=zeros, truncated=zeros)


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
    return bonus_input(settings, name, state)(normaliser(observation), action)
