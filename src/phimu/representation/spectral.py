"""SPEDER: phi and mu are the leading singular functions of the ratio P(s'|s,a) / p(s').

    E_(s,a),p <phi, mu>^2 - 2 E_(s,a,s') <phi, mu>

is the squared error of <phi, mu> against the ratio, up to a constant, and takes samples only. Its
minimum is minus the sum of the d largest squared singular values of the ratio.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.errors import InputError, at_least
from phimu.networks import MLP, norm, polyak
from phimu.normalisation import RunningNormaliser
from phimu.representation.features import FeatureMap
from phimu.representation.losses import mu_norm_penalty
from phimu.representation.negatives import Negatives
from phimu.representation.perturbation import TOLD, blurred, tell
from phimu.representation.ratio import TINY, inner
from phimu.representation.seam import Phi
from phimu.types import Drawn, Feed, Metrics, Sample, Spec, Store


class SpectralNetworks(eqx.Module):
    """Everything the loss trains."""

    phi: FeatureMap
    mu: FeatureMap
    reward: MLP  # r, of phi(s, a)


class SpectralState(NamedTuple):
    """Training state of phi and mu."""

    networks: SpectralNetworks
    slow: tuple[FeatureMap, FeatureMap]  # phi and mu
    optimiser: optax.OptState
    spread: RunningNormaliser | None  # of observations, for `levels`


@dataclass(frozen=True)
class Spectral:
    """How phi and mu are parametrised and learned."""

    noise: Negatives = Negatives(negatives=0)
    loss: Literal["pairs", "orthonormal"] = "pairs"
    """pairs: the squared error, its second moment over all pairs of the batch; orthonormal: the
    paper's, half of the same for a phi whose second moment is held at the identity."""
    orthogonality_weight: float = 1.0
    """Of |E phi phi' - I|^2 / d^2, where the loss is orthonormal."""
    marginal_weight: float = 0.0
    """Of (E_p <phi, mu> - 1)^2, which holds every row's integral at one."""
    feature_dim: int = 256
    """d, the size of phi and mu."""
    feature_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of phi and of mu."""
    feature_layer_norm: bool = True
    """LayerNorm in the hidden layers of phi and mu."""
    phi_output: Literal["identity", "elu", "unit_variance"] = "unit_variance"
    """Last function of phi."""
    mu_output: Literal["identity", "tanh"] = "identity"
    """Last function of mu."""
    levels: tuple[float, ...] = ()
    """s' and the negatives are blurred by Gaussian noise of one of these levels, in deviations of
    each component of the observations so far; mu is told which."""
    reward_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward head on phi."""
    reward_weight: float = 1.0
    """Weight of the reward head's squared error, which trains phi too."""
    feature_learning_rate: float = 3e-4
    """Adam's step for phi, mu and the reward head."""
    feature_rate: float = 0.005
    """How fast the slow copies follow, which the planner reads."""

    def __post_init__(self) -> None:
        at_least(1, feature_dim=self.feature_dim)
        weights = ("orthogonality_weight", "marginal_weight", "reward_weight")
        at_least(0, **{name: getattr(self, name) for name in weights})
        if any(level <= 0 for level in self.levels):
            raise InputError(f"levels is {self.levels}: give positive numbers, 1.0 as a rule.")

    @property
    def bonus_prediction_weight(self) -> float:
        return 0.0

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.feature_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> SpectralState:
        for_phi, for_mu, for_reward = jax.random.split(key, 3)
        d, shape = self.feature_dim, (*self.feature_sizes, self.feature_dim)

        def feature_map(inputs: int, key: jax.Array, output: str, gain: float) -> FeatureMap:
            network = MLP((inputs, *shape), key, layer_norm=self.feature_layer_norm)
            return FeatureMap(None, network, output, gain)

        told = TOLD * bool(self.levels)
        networks = SpectralNetworks(
            feature_map(spec.pair_dim, for_phi, self.phi_output, 1.0),
            # A mu of length one makes <phi, mu> begin at the size of the ratio.
            feature_map(spec.observation_dim + told, for_mu, self.mu_output, float(1 / np.sqrt(d))),
            MLP((d, *self.reward_sizes, 1), for_reward),
        )
        spread = RunningNormaliser(spec.observation_dim) if self.levels else None
        slow = networks.phi, networks.mu
        return SpectralState(networks, slow, self.optimiser().init(networks), spread)

    def draw(self, store: Store, sample: Sample, rng: Any) -> Drawn:
        """A batch, and the samples of p that go with it."""
        return Drawn(sample.rows, {"negatives": self.noise.draw(store, rng)})

    def update(
        self,
        state: SpectralState,
        feed: Feed,
        key: jax.Array,
        bonus: jax.Array | None = None,
        pull: jax.Array | None = None,
    ) -> tuple[SpectralState, Metrics]:
        """One Adam step, and one step of the slow copies.

        `pull` [<= B, d] is the gradient of another loss with respect to phi of the first rows.
        """
        del bonus
        following, told, spread = feed.batch.next_observation, None, state.spread
        if "negatives" in feed.others:
            following = jnp.concatenate([following, feed.others["negatives"]])  # [B + K, D]
        if spread is not None:
            spread = spread.include(feed.batch.observation)
            following, level = blurred(following, self.levels, spread.variance, key)
            told = tell(following.shape[0], level)
        grads, metrics = jax.grad(self.objective, has_aux=True)(
            state.networks, feed, following, told, pull
        )
        metrics["feature_gradient"] = norm(grads)
        steps, optimiser = self.optimiser().update(grads, state.optimiser)
        networks = eqx.apply_updates(state.networks, steps)
        slow = polyak(state.slow, (networks.phi, networks.mu), self.feature_rate)
        return SpectralState(networks, slow, optimiser, spread), metrics

    def objective(
        self,
        networks: SpectralNetworks,
        feed: Feed,
        following: jax.Array,
        told: jax.Array | None = None,
        pull: jax.Array | None = None,
    ) -> tuple[jax.Array, Metrics]:
        """The whole loss; `following` is s' of the batch, then the samples of p."""
        batch = feed.batch
        phi = networks.phi(batch.observation, batch.action)  # [B, d]
        mu = networks.mu(following, told)  # [B + K, d]
        ratios = inner(phi, mu)  # [B, B + K]
        own = jnp.mean(jnp.diagonal(ratios))
        # With the rows' own s' among the samples of p the ratio of a batch is at most B + K, so
        # that the loss has a minimum where dynamics are deterministic too.
        first = 0 if self.noise.in_batch else phi.shape[0]
        if self.loss == "pairs":
            spectral = jnp.mean(ratios[:, first:] ** 2) - 2 * own
        else:
            spectral = 0.5 * mu_norm_penalty(mu[first:]) - own
            spectral += self.orthogonality_weight * orthogonality_penalty(phi)
        marginals = jnp.mean(ratios[:, first:], axis=1)
        reward_loss = jnp.mean((networks.reward(phi)[:, 0] - batch.reward) ** 2)
        total = spectral + self.reward_weight * reward_loss
        if self.marginal_weight:
            # Deviation: the paper has the square of the logarithm, which a ratio below 0 lacks.
            total += self.marginal_weight * jnp.mean((marginals - 1) ** 2)
        if pull is not None:
            total += jnp.sum(pull * phi[: pull.shape[0]])
        return total, {
            "spectral_loss": spectral,
            "mean_ratio": jnp.mean(marginals),
            "reward_loss": reward_loss,
        }

    def phi(self, state: SpectralState) -> Phi:
        """The slow phi, which the planner reads."""
        return state.slow[0]

    def current(self, state: SpectralState) -> Phi:
        """The phi that is being trained."""
        return state.networks.phi

    def unnormalised_phi(self, state: SpectralState) -> Phi:
        """The same network without LayerNorm and output function, for the bonus."""
        return state.slow[0].unnormalised

    def log_ratio(
        self, state: SpectralState, phi: jax.Array, next_observation: jax.Array
    ) -> jax.Array:
        """log P(s'|s,a)/p(s') of phi [B, d] with next observations [K], where below 0 tiny."""
        return jnp.log(jnp.maximum(inner(phi, self.mu(state, next_observation)), TINY))

    def mu(self, state: SpectralState, next_observation: jax.Array) -> jax.Array:
        """The slow mu(s') [K, d]; with `levels`, of s' blurred by the smallest of them."""
        level = jnp.float32(min(self.levels)) if self.levels else None
        return state.slow[1](next_observation, tell(next_observation.shape[0], level))

    def temperature(self, state: SpectralState) -> jax.Array:
        raise InputError("A spectral ratio has no temperature: it is <phi, mu> itself.")


def orthogonality_penalty(phi: jax.Array) -> jax.Array:
    """|E phi phi' - I|^2 / d^2 without bias: the square of E is over pairs of different rows.

    This is the paper's for a phi of length one, |E phi phi' - I / d|^2; ours has the length d^(1/2)
    and mu that of the paper's divided by it.
    """
    rows, d = phi.shape
    square = inner(phi, phi) ** 2
    different = (jnp.sum(square) - jnp.sum(jnp.diagonal(square))) / (rows * (rows - 1))
    return (different - 2 * jnp.mean(jnp.sum(phi**2, axis=1)) + d) / d**2
