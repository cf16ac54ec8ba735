"""phi and mu by noise contrastive estimation: the losses of section 2.2, sections 4.1 to 4.4."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.errors import InputError
from phimu.networks import MLP, Dense, Fourier, copied, norm, polyak
from phimu.normalisation import RunningNormaliser
from phimu.representation.features import FeatureMap, Features, SlowFeatures
from phimu.representation.losses import (
    LOSSES,
    balance_penalty,
    log_marginal,
    marginal_penalty,
    mu_norm_penalty,
    ranking_of_normalised,
)
from phimu.representation.negatives import Negatives
from phimu.representation.perturbation import TOLD, blurred, tell
from phimu.representation.ratio import (
    RATIOS,
    TINY,
    Exponential,
    Linear,
    log_ratio,
    own_log_ratio,
)
from phimu.representation.seam import Phi
from phimu.settings import part
from phimu.types import Drawn, Feed, Metrics, Sample, Spec, Store

ACCURACY_ROWS = 64
MEAN_RATE = 0.02  # of the running mean of the slow mu: over some fifty batches,
MEAN_STRIDE = 2  # of which every other row is enough


class Held(NamedTuple):
    """What `feature_every` adds: the phi that the planner read before, and a count of updates."""

    phi: FeatureMap
    updates: jax.Array  # []


class ContrastiveState(NamedTuple):
    """Training state of phi and mu."""

    features: Features
    slow: SlowFeatures
    optimiser: optax.OptState
    spread: RunningNormaliser | None  # of observations, for `levels` and `normalise_inputs`
    held: Held | None  # with `feature_every`


@dataclass(frozen=True)
class Contrastive:
    """How phi and mu are parametrised and learned."""

    loss: Literal["ranking", "binary"] = "ranking"
    """Which NCE objective: equation (ranking) or equation (binary)."""
    ratio: Exponential | Linear = part(Exponential(), RATIOS)
    """exponential: exp(<phi, mu> / temperature); linear: <phi, mu> itself (a true linear MDP)."""
    noise: Negatives = Negatives()
    feature_dim: int = 2048
    """d, the size of phi and mu."""
    feature_sizes: tuple[int, ...] = (1024, 1024)
    """Hidden layers of phi and of mu."""
    feature_layer_norm: bool = False
    """LayerNorm in the hidden layers of phi and mu."""
    fourier: tuple[int, float] | None = None
    """Random frequencies of the observation fed to phi and mu besides it: how many, and their
    standard deviation in cycles per normalised unit."""
    phi_gain: float = 1.0
    """Multiplies phi's last layer: above 1, soft clusters begin distinct and part faster."""
    mu_gain: float = 1.0
    """The same for mu's last layer."""
    next_noise: float = 0.0
    """Standard deviation of noise added to s' and to the negatives, in the units phi sees.

    It blurs deterministic dynamics, whose ratio would be a spike: phi then changes smoothly with a.
    """
    levels: tuple[float, ...] = ()
    """Perturbed contrast: s' and the negatives are blurred by Gaussian noise of one of these
    levels, in deviations of each component of the observations so far; mu is told which.

    Nearly deterministic dynamics make the plain contrast so easy that phi is hardly trained by it.
    Blurred by a Gaussian, their log ratio is exactly <phi, mu> with d = D + 2.
    """
    normalise_inputs: bool = False
    """Whether phi and mu read observations by the mean and deviation of those so far, whatever the
    planner reads: a contrast in units of each component wants to see them in these units."""
    multi_step: float = 0.0
    """Multi-step contrast: the chance that the positive is not s' but one step later, and so on;
    mu is told how many. In a linear MDP all k-step transitions are linear in the same phi."""
    contrast_weight: float = 1.0
    """Weight of the contrastive loss; 0 is a control, a phi that only other losses train."""
    mu_norm_weight: float = 0.0
    """Weight of E_p |mu|^2, section 4.1."""
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
    feature_every: int = 0
    """If above 0, the slow copies do not follow but are made anew every so many updates: between
    two copies the planner's phi stands still, and its targets read the phi before that."""

    def __post_init__(self) -> None:
        if self.feature_dim < 1:
            raise InputError(f"feature_dim is {self.feature_dim}: give at least 1.")
        if self.feature_decay is not None and self.feature_decay < 1:
            raise InputError(f"feature_decay is {self.feature_decay}: give at least 1, or None.")
        if self.feature_every < 0:
            raise InputError(f"feature_every is {self.feature_every}: give 0, or how many updates.")
        if self.fourier is not None and self.fourier[0] < 1:
            raise InputError(f"fourier is {self.fourier}: give at least 1 frequency, or None.")
        if any(level <= 0 for level in self.levels):
            raise InputError(f"levels is {self.levels}: give positive numbers, 1.0 as a rule.")
        if not 0 <= self.multi_step < 1:
            raise InputError(f"multi_step is {self.multi_step}: give a chance from 0 to below 1.")

    def optimiser(self) -> optax.GradientTransformation:
        if self.feature_decay is None:
            return optax.adam(self.feature_learning_rate)
        rate, decay = self.feature_learning_rate, self.feature_decay
        return optax.adam(lambda update: rate / (1.0 + update / decay))

    def init(self, spec: Spec, key: jax.Array) -> ContrastiveState:
        fourier_key, phi_key, mu_key, reward_key, bonus_key = jax.random.split(key, 5)
        fourier, width = None, spec.observation_dim
        if self.fourier is not None:
            fourier = Fourier(width, *self.fourier, fourier_key)
            width += 2 * self.fourier[0]
        shape = (*self.feature_sizes, self.feature_dim)

        def feature_map(inputs: int, key: jax.Array, output: str, gain: float) -> FeatureMap:
            network = MLP((inputs, *shape), key, layer_norm=self.feature_layer_norm)
            return FeatureMap(fourier, network, output, gain)

        ratio, linear = self.ratio, isinstance(self.ratio, Linear)
        features = Features(
            phi=feature_map(width + spec.action_dim, phi_key, ratio.phi_output, self.phi_gain),
            mu=feature_map(width + self._told, mu_key, ratio.mu_output, self.mu_gain),
            reward_head=Dense(self.feature_dim, 1, reward_key),
            bonus_head=Dense(self.feature_dim, 1, bonus_key),
            log_temperature=None
            if isinstance(ratio, Linear)
            else jnp.asarray(np.log(ratio.temperature), jnp.float32),
            log_normaliser=jnp.zeros(()) if self.loss == "binary" else None,
        )
        slow = SlowFeatures(
            features.phi, features.mu, jnp.ones(self.feature_dim) if linear else None
        )
        needed = self.levels or self.normalise_inputs
        spread = RunningNormaliser(spec.observation_dim) if needed else None
        held = Held(features.phi, jnp.zeros((), jnp.int32)) if self.feature_every else None
        return ContrastiveState(features, slow, self.optimiser().init(features), spread, held)

    @property
    def _told(self) -> int:
        """How many numbers mu is told besides the observation."""
        return TOLD * (bool(self.levels) + bool(self.multi_step))

    def draw(self, store: Store, sample: Sample, rng: Any) -> Drawn:
        """A batch, the negatives that go with it, and with `multi_step` later observations."""
        others = {"negatives": self.noise.draw(store, rng)}
        if not self.multi_step:
            return Drawn(sample.rows, others)
        steps = store.geometric(self.multi_step, rng)
        later, valid = store.later(sample.index, steps - 1)
        return Drawn(sample.rows, others | {"later": later}, {"steps": steps, "valid": valid})

    def phi(self, state: ContrastiveState) -> Phi:
        """The slow phi, which the planner reads."""
        return self._read(state, state.slow.phi)

    def target_phi(self, state: ContrastiveState) -> Phi:
        """The phi of the planner's targets: the slow one, or the one before it."""
        return self._read(state, state.slow.phi if state.held is None else state.held.phi)

    def current(self, state: ContrastiveState) -> Phi:
        """The phi that is being trained."""
        return self._read(state, state.features.phi)

    def _read(self, state: ContrastiveState, phi: Phi) -> Phi:
        """phi as a function of observations that are not normalised yet."""
        seen = state.spread
        if seen is None or not self.normalise_inputs:
            return phi
        return lambda observation, action: phi(seen(observation), action)

    def unnormalised_phi(self, state: ContrastiveState) -> Phi:
        """The same network without LayerNorm and output function, for the bonus."""
        return self._read(state, state.slow.phi.unnormalised)

    def update(
        self,
        state: ContrastiveState,
        feed: Feed,
        key: jax.Array,
        bonus: jax.Array | None = None,
        pull: jax.Array | None = None,
    ) -> tuple[ContrastiveState, Metrics]:
        """One Adam step on the loss, and one step of the slow copies towards the result.

        `bonus` [<= B] of the first rows is what CTRL-UCBL has phi predict; `pull` [<= B, d] is
        the gradient of another loss with respect to phi of the first rows.
        """
        positive = feed.others["later"] if self.multi_step else feed.batch.next_observation
        following = jnp.concatenate([positive, feed.others["negatives"]])  # [B + K, D]
        level, spread = None, state.spread
        if self.next_noise:
            following = following + self.next_noise * jax.random.normal(key, following.shape)
        if spread is not None:
            spread = spread.include(feed.batch.observation)
        if spread is not None and self.levels:
            following, level = blurred(following, self.levels, spread.variance, key)
        if spread is not None and self.normalise_inputs:
            following, observation = spread(following), spread(feed.batch.observation)
            feed = feed._replace(batch=feed.batch._replace(observation=observation))
        told = tell(following.shape[0], level, feed.columns.get("steps"))
        grads, metrics = jax.grad(self.objective, has_aux=True)(
            state.features, feed, following, told, bonus, pull
        )
        metrics["feature_gradient"] = norm(grads)
        updates, optimiser = self.optimiser().update(grads, state.optimiser)
        features = eqx.apply_updates(state.features, updates)
        slow_phi, slow_mu, held = self._slowly(state, features)
        mu_mean = state.slow.mu_mean
        if mu_mean is not None:
            some = told if told is None else told[::MEAN_STRIDE]
            mean = jnp.mean(slow_mu(following[::MEAN_STRIDE], some), axis=0)
            mu_mean = polyak(mu_mean, mean, MEAN_RATE)
        slow = SlowFeatures(slow_phi, slow_mu, mu_mean)
        return ContrastiveState(features, slow, optimiser, spread, held), metrics

    def _slowly(
        self, state: ContrastiveState, features: Features
    ) -> tuple[FeatureMap, FeatureMap, Held | None]:
        """The slow copies after a step, and what is held beside them."""
        slow, held = state.slow, state.held
        if held is None:
            rate = self.feature_rate
            return polyak(slow.phi, features.phi, rate), polyak(slow.mu, features.mu, rate), None
        updates = held.updates + 1
        due = updates % self.feature_every == 0
        before = Held(copied(due, held.phi, slow.phi), updates)
        return copied(due, slow.phi, features.phi), copied(due, slow.mu, features.mu), before

    def objective(
        self,
        features: Features,
        feed: Feed,
        following: jax.Array,
        told: jax.Array | None,
        bonus: jax.Array | None,
        pull: jax.Array | None = None,
    ) -> tuple[jax.Array, Metrics]:
        """The whole loss and its metrics; `following` is the positives, then the negatives."""
        batch = feed.batch
        phi = features.phi(batch.observation, batch.action)  # [B, d]
        mu = features.mu(following, told)  # [B + K, d]
        total, metrics = self._contrast(features, phi, mu, feed.columns.get("valid"))
        if self.contrast_weight != 1:
            total = self.contrast_weight * total
        if pull is not None:
            total += jnp.sum(pull * phi[: pull.shape[0]])
        if self.mu_norm_weight:
            total += self.mu_norm_weight * mu_norm_penalty(mu)
        if isinstance(self.ratio, Linear) and self.ratio.balance_weight:
            total += self.ratio.balance_weight * balance_penalty(phi)
        if self.reward_weight:
            predicted = features.reward_head(phi)[:, 0]
            metrics["reward_loss"] = jnp.mean((predicted - batch.reward) ** 2)
            total += self.reward_weight * metrics["reward_loss"]
        if self.bonus_prediction_weight and bonus is not None:
            predicted = features.bonus_head(phi[: bonus.shape[0]])[:, 0]
            metrics["bonus_loss"] = jnp.mean((predicted - bonus) ** 2)
            total += self.bonus_prediction_weight * metrics["bonus_loss"]
        return total, metrics

    def _contrast(
        self, features: Features, phi: jax.Array, mu: jax.Array, valid: jax.Array | None
    ) -> tuple[jax.Array, Metrics]:
        """The NCE loss, of the rows that are `valid`, with what the ratio adds to it."""
        count = self.noise.count(phi.shape[0])
        mu_mean = jnp.mean(mu, axis=0)
        log_temperature = features.log_temperature
        if isinstance(self.ratio, Exponential) and not self.ratio.learn_temperature:
            log_temperature = jax.lax.stop_gradient(log_temperature)
        if isinstance(self.ratio, Linear) and self.loss == "ranking" and self.noise.in_batch:
            # The candidates' ratios sum to their number by construction.
            own = own_log_ratio(phi, mu[: phi.shape[0]], mu_mean)
            total = nce = ranking_of_normalised(own, count, valid)
            few = jax.lax.stop_gradient(phi[:ACCURACY_ROWS])  # enough for a metric
            log_ratios = log_ratio(self.ratio, few, mu, mu_mean, None)
            positive, negative = self.noise.split(jax.lax.stop_gradient(log_ratios))
        else:
            log_ratios = log_ratio(self.ratio, phi, mu, mu_mean, log_temperature)
            positive, negative = self.noise.split(log_ratios)
            loss = LOSSES[self.loss]
            total = nce = loss(positive, negative, count, features.log_normaliser, valid)
            if isinstance(self.ratio, Exponential) and self.ratio.marginal_weight:
                total += self.ratio.marginal_weight * marginal_penalty(negative, count)
        return total, {
            "nce_loss": nce,
            "nce_accuracy": jnp.mean(positive > jnp.max(negative, axis=1)),
            "log_normaliser": jnp.mean(log_marginal(negative, count)),
        }

    def log_ratio(
        self, state: ContrastiveState, phi: jax.Array, next_observation: jax.Array
    ) -> jax.Array:
        """log P(s'|s,a)/p(s') of slow phi [B, d] with every next observation [K, D]: [B, K].

        Up to log Z(s, a), which the losses leave free or hold near zero.
        """
        slow, features = state.slow, state.features
        mu = self._slow_mu(state, next_observation)
        ratios = log_ratio(self.ratio, phi, mu, slow.mu_mean, features.log_temperature)
        return ratios if features.log_normaliser is None else ratios - features.log_normaliser

    def mu(self, state: ContrastiveState, next_observation: jax.Array) -> jax.Array:
        """The slow mu(s') [K, d]; of the linear ratio divided by its mean under the noise."""
        mu, mean = self._slow_mu(state, next_observation), state.slow.mu_mean
        return mu if mean is None else mu / jnp.maximum(mean, TINY)[None, :]

    def _slow_mu(self, state: ContrastiveState, next_observation: jax.Array) -> jax.Array:
        """With `levels`, of s' blurred by the smallest of them."""
        level = jnp.float32(min(self.levels)) if self.levels else None
        steps = jnp.float32(1) if self.multi_step else None
        if state.spread is not None and self.normalise_inputs:
            next_observation = state.spread(next_observation)
        return state.slow.mu(next_observation, tell(next_observation.shape[0], level, steps))

    def temperature(self, state: ContrastiveState) -> jax.Array:
        """Of the exponential ratio: []."""
        if state.features.log_temperature is None:
            raise InputError("The linear ratio has no temperature: it is <phi, mu> itself.")
        return jnp.exp(state.features.log_temperature)
