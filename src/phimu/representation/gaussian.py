"""SPEDE: dynamics with Gaussian noise, whose random Fourier features are phi.

An embedding g(s') is a Gaussian around f(s, a), so P(s'|s,a) / p(s') is exp(-|f - g|^2 / 2d) up to
a number of (s, a). That kernel is an expectation over cosines (Rahimi and Recht): with random W, b

    phi(s, a) = sqrt(2) cos(W f(s, a) + b),  mu(s') = sqrt(2) cos(W g(s') + b) / d

has <phi, mu> close to it, and Q is linear in phi. f and g are learned by telling s' from others.
With `waves_of_unit_variance` phi is a smoother function of the same f, and not that of the density.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu import initial
from phimu.errors import InputError, at_least
from phimu.networks import MLP, cosine, norm, polyak, product, standardise
from phimu.representation.features import FeatureMap
from phimu.representation.losses import ranking
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import inner
from phimu.representation.seam import Phi
from phimu.types import Drawn, Feed, Metrics, Sample, Spec, Store


class Waves(eqx.Module):
    """Random Fourier features, drawn once and never trained."""

    frequencies: jax.Array  # [d, d]
    phases: jax.Array  # [d]
    unit_variance: bool = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        angle = product(standardise(x) if self.unit_variance else x, self.frequencies)
        return np.sqrt(2.0) * cosine(angle + jnp.broadcast_to(self.phases, angle.shape))


class GaussianNetworks(eqx.Module):
    """Everything the loss trains."""

    f: FeatureMap  # of (s, a): the mean
    g: FeatureMap  # of s'
    reward: MLP  # r, of f(s, a)


class GaussianDynamicsState(NamedTuple):
    """Training state of f and g."""

    networks: GaussianNetworks
    slow: tuple[FeatureMap, FeatureMap]  # f and g
    waves: Waves
    optimiser: optax.OptState
    updates: jax.Array  # []


@dataclass(frozen=True)
class GaussianDynamics:
    """How f and g are parametrised and learned."""

    noise: Negatives = Negatives(negatives=0)
    feature_dim: int = 256
    """d, the size of f, g and phi."""
    feature_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of f and of g."""
    feature_layer_norm: bool = True
    """LayerNorm in the hidden layers of f and g."""
    feature_output: Literal["identity", "elu"] = "identity"
    """Last function of f."""
    frequency: float | None = None
    """Standard deviation of the random frequencies W; None: 1 / sqrt(feature_dim), which are those
    of the Gaussian itself."""
    waves_of_unit_variance: bool = True
    """Whether the cosines are of f at unit variance over its components. f grows where s' is easy
    to tell from others, and phi of f itself, whose <phi, mu> is the density, grows as rough."""
    reward_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward head on f."""
    reward_weight: float = 1.0
    """Weight of the reward head's squared error, which trains f too."""
    weight_noise: float = 0.0
    """Noise on the weights of f and g after update t, times (t + 1)^(-1/4): samples of a posterior
    instead of its mode."""
    feature_learning_rate: float = 3e-4
    """Adam's step for f, g and the reward head."""
    feature_rate: float = 0.005
    """How fast the slow copies follow, which the planner reads."""

    def __post_init__(self) -> None:
        at_least(1, feature_dim=self.feature_dim)
        at_least(0, weight_noise=self.weight_noise, reward_weight=self.reward_weight)
        if self.frequency is not None and self.frequency <= 0:
            raise InputError(f"frequency is {self.frequency}: give a positive number, or None.")

    @property
    def bonus_prediction_weight(self) -> float:
        return 0.0

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.feature_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> GaussianDynamicsState:
        for_f, for_g, for_reward, for_waves, for_phases = jax.random.split(key, 5)
        d, shape = self.feature_dim, (*self.feature_sizes, self.feature_dim)

        def feature_map(inputs: int, key: jax.Array, output: str) -> FeatureMap:
            network = MLP((inputs, *shape), key, layer_norm=self.feature_layer_norm)
            return FeatureMap(None, network, output, 1.0)

        networks = GaussianNetworks(
            feature_map(spec.pair_dim, for_f, self.feature_output),
            feature_map(spec.observation_dim, for_g, "identity"),
            MLP((d, *self.reward_sizes, 1), for_reward),
        )
        spread = 1 / np.sqrt(d) if self.frequency is None else self.frequency
        waves = Waves(
            initial.normal(for_waves, (d, d), spread),
            initial.uniform(for_phases, (d,), 2 * np.pi),
            self.waves_of_unit_variance,
        )
        slow, count = (networks.f, networks.g), jnp.zeros((), jnp.int32)
        return GaussianDynamicsState(networks, slow, waves, self.optimiser().init(networks), count)

    def draw(self, store: Store, sample: Sample, rng: Any) -> Drawn:
        """A batch, and the negatives that go with it."""
        return Drawn(sample.rows, {"negatives": self.noise.draw(store, rng)})

    def update(
        self,
        state: GaussianDynamicsState,
        feed: Feed,
        key: jax.Array,
        bonus: jax.Array | None = None,
        pull: jax.Array | None = None,
    ) -> tuple[GaussianDynamicsState, Metrics]:
        """One Adam step, noise on the weights, and one step of the slow copies.

        `pull` [<= B, d] is the gradient of another loss with respect to phi of the first rows.
        """
        del bonus
        grads, metrics = jax.grad(self.objective, has_aux=True)(
            state.networks, state.waves, feed, pull
        )
        metrics["feature_gradient"] = norm(grads)
        steps, optimiser = self.optimiser().update(grads, state.optimiser)
        networks = eqx.apply_updates(state.networks, steps)
        f, g = self._noised((networks.f, networks.g), state.updates, key)
        slow = polyak(state.slow, (f, g), self.feature_rate)
        networks = GaussianNetworks(f, g, networks.reward)
        return GaussianDynamicsState(
            networks, slow, state.waves, optimiser, state.updates + 1
        ), metrics

    def objective(
        self, networks: GaussianNetworks, waves: Waves, feed: Feed, pull: jax.Array | None = None
    ) -> tuple[jax.Array, Metrics]:
        """The ranking loss of the energy, and the reward's squared error."""
        batch = feed.batch
        following = batch.next_observation
        if "negatives" in feed.others:
            following = jnp.concatenate([following, feed.others["negatives"]])
        f = networks.f(batch.observation, batch.action)  # [B, d]
        positive, negative = self.noise.split(energy(f, networks.g(following)))
        nce = ranking(positive, negative, self.noise.count(f.shape[0]))
        reward_loss = jnp.mean((networks.reward(f)[:, 0] - batch.reward) ** 2)
        total = nce + self.reward_weight * reward_loss
        if pull is not None:
            total += jnp.sum(pull * waves(f[: pull.shape[0]]))
        return total, {
            "nce_loss": nce,
            "nce_accuracy": jnp.mean(positive > jnp.max(negative, axis=1)),
            "reward_loss": reward_loss,
        }

    def _noised(self, maps: Any, updates: jax.Array, key: jax.Array) -> Any:
        """SGLD of the authors' code: a step that shrinks slowly, cut at two deviations."""
        if not self.weight_noise:
            return maps
        scale = self.weight_noise * (updates + 1.0) ** -0.25
        leaves, tree = jax.tree.flatten(maps)
        keys = jax.random.split(key, len(leaves))
        noise = [
            jax.random.truncated_normal(k, -2.0, 2.0, leaf.shape)
            for k, leaf in zip(keys, leaves, strict=True)
        ]
        moved = [leaf + scale * each for leaf, each in zip(leaves, noise, strict=True)]
        return jax.tree.unflatten(tree, moved)

    def phi(self, state: GaussianDynamicsState) -> Phi:
        """The waves of the slow f, which the planner reads."""
        return lambda s, a: state.waves(state.slow[0](s, a))

    def current(self, state: GaussianDynamicsState) -> Phi:
        """Those of the f that is being trained."""
        return lambda s, a: state.waves(state.networks.f(s, a))

    def unnormalised_phi(self, state: GaussianDynamicsState) -> Phi:
        """f itself, without LayerNorm: waves are bounded, and hide what is far away."""
        return state.slow[0].unnormalised

    def compared(self, state: GaussianDynamicsState) -> Phi:
        """The slow f: the density is exact in it, and close to <phi, mu>."""
        return state.slow[0]

    def log_ratio(
        self, state: GaussianDynamicsState, compared: jax.Array, next_observation: jax.Array
    ) -> jax.Array:
        """log P(s'|s,a)/p(s') up to log Z(s, a), of f [B, d] with next observations [K]: [B, K]."""
        return energy(compared, state.slow[1](next_observation))

    def mu(self, state: GaussianDynamicsState, next_observation: jax.Array) -> jax.Array:
        """The waves of the slow g(s') over d: [K, d]."""
        return state.waves(state.slow[1](next_observation)) / self.feature_dim

    def temperature(self, state: GaussianDynamicsState) -> jax.Array:
        raise InputError("A Gaussian has no temperature: ask for the density ratio.")


def energy(f: jax.Array, g: jax.Array) -> jax.Array:
    """Minus half the mean over components of (f - g)^2, of f [B, d] with every g [K, d]: [B, K].

    The mean is that of the authors' code: a variance of d, to which f and g learn their own scale.
    """
    squares = jnp.sum(f**2, axis=1)[:, None] + jnp.sum(g**2, axis=1)[None, :]
    return (inner(f, g) - 0.5 * squares) / f.shape[1]
