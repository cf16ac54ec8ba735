"""Deep successor features: phi(s, a) is the discounted sum of what the policy will see after it.

g(s) is a feature of s that s' and the reward are predicted from, and

    psi(s, a) = E sum_k discount^k g(s_(k+1)),    learned by psi <- g(s') + discount psi(s', a'),

so that a reward linear in g(s') has a Q linear in psi. psi is what the planner reads as phi.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.errors import InputError, at_least
from phimu.networks import MLP, norm, polyak
from phimu.representation.features import FeatureMap
from phimu.representation.seam import Phi
from phimu.types import Drawn, Feed, Metrics, Sample, Spec, Store


class SuccessorNetworks(eqx.Module):
    """Everything the losses train."""

    psi: FeatureMap  # of (s, a)
    g: MLP  # of s
    following: MLP  # s', of (g(s), a)
    reward: MLP  # r, of g(s)


class SuccessorFeaturesState(NamedTuple):
    """Training state of psi and g."""

    features: SuccessorNetworks
    target: FeatureMap  # a slow psi for the targets of psi
    slow: FeatureMap  # another one, which the planner reads
    optimiser: optax.OptState


@dataclass(frozen=True)
class SuccessorFeatures:
    """How psi and g are parametrised and learned."""

    needs_next_action: ClassVar[bool] = True

    feature_dim: int = 256
    """d, the size of g and psi."""
    feature_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of g, of psi and of the prediction of s'."""
    feature_layer_norm: bool = True
    """LayerNorm in the hidden layers of g and psi."""
    feature_output: Literal["identity", "elu"] = "identity"
    """Last function of psi."""
    successor_discount: float = 0.99
    """Of the sum of later g."""
    successor_mean: bool = True
    """Whether psi is 1 - successor_discount times that sum, a mean that is as large as g."""
    bootstrap_terminated: bool = False
    """Whether psi goes on past the end of an episode."""
    successor_rate: float = 0.005
    """How fast the psi of its own targets follows."""
    reward_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward head on g."""
    reward_weight: float = 1.0
    """Weight of the reward head's squared error, which trains g too."""
    feature_learning_rate: float = 3e-4
    """Adam's step for all of them."""
    feature_rate: float = 0.005
    """How fast the psi that the planner reads follows."""

    def __post_init__(self) -> None:
        at_least(1, feature_dim=self.feature_dim)
        at_least(0, reward_weight=self.reward_weight)
        if not 0 <= self.successor_discount < 1:
            raise InputError(
                f"successor_discount is {self.successor_discount}: give a number from 0 to below 1."
            )

    @property
    def bonus_prediction_weight(self) -> float:
        return 0.0

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.feature_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> SuccessorFeaturesState:
        for_psi, for_g, for_following, for_reward = jax.random.split(key, 4)
        d, layer_norm = self.feature_dim, self.feature_layer_norm
        shape = (*self.feature_sizes, d)
        psi = MLP((spec.pair_dim, *shape), for_psi, layer_norm=layer_norm)
        features = SuccessorNetworks(
            FeatureMap(None, psi, self.feature_output, 1.0),
            MLP((spec.observation_dim, *shape), for_g, layer_norm=layer_norm),
            MLP((d + spec.action_dim, *self.feature_sizes, spec.observation_dim), for_following),
            MLP((d, *self.reward_sizes, 1), for_reward),
        )
        optimiser = self.optimiser().init(features)
        return SuccessorFeaturesState(features, features.psi, features.psi, optimiser)

    def draw(self, store: Store, sample: Sample, rng: Any) -> Drawn:
        return Drawn(sample.rows)

    def update(
        self,
        state: SuccessorFeaturesState,
        feed: Feed,
        key: jax.Array,
        bonus: jax.Array | None = None,
        pull: jax.Array | None = None,
    ) -> tuple[SuccessorFeaturesState, Metrics]:
        """One Adam step, and one step of both slow copies.

        `feed.columns["next_action"]` is a' of the policy at s'; `pull` [<= B, d] is the gradient of
        another loss with respect to psi of the first rows.
        """
        del key, bonus
        grads, metrics = jax.grad(self.objective, has_aux=True)(
            state.features, state.target, feed, pull
        )
        metrics["feature_gradient"] = norm(grads)
        steps, optimiser = self.optimiser().update(grads, state.optimiser)
        features = eqx.apply_updates(state.features, steps)
        target = polyak(state.target, features.psi, self.successor_rate)
        slow = polyak(state.slow, features.psi, self.feature_rate)
        return SuccessorFeaturesState(features, target, slow, optimiser), metrics

    def objective(
        self,
        features: SuccessorNetworks,
        target: FeatureMap,
        feed: Feed,
        pull: jax.Array | None = None,
    ) -> tuple[jax.Array, Metrics]:
        """The sum of three mean squared errors: of s', of the reward, of psi."""
        batch = feed.batch
        g = features.g(batch.observation)  # [B, d]
        predicted = features.following(jnp.concatenate([g, batch.action], axis=-1))
        following_loss = jnp.mean((predicted - batch.next_observation) ** 2)
        reward_loss = jnp.mean((features.reward(g)[:, 0] - batch.reward) ** 2)
        psi = features.psi(batch.observation, batch.action)  # [B, d]
        aim = self._aim(features, target, feed)
        successor_loss = jnp.mean((psi - aim) ** 2)
        total = following_loss + self.reward_weight * reward_loss + successor_loss
        if pull is not None:
            total += jnp.sum(pull * psi[: pull.shape[0]])
        return total, {
            "successor_loss": successor_loss,
            "following_loss": following_loss,
            "reward_loss": reward_loss,
            "psi_size": jnp.sqrt(jnp.mean(psi**2)),
        }

    def _aim(self, features: SuccessorNetworks, target: FeatureMap, feed: Feed) -> jax.Array:
        """What psi(s, a) is moved to: [B, d]; nothing of it is trained by that."""
        batch, discount = feed.batch, self.successor_discount
        later = target(batch.next_observation, feed.columns["next_action"])
        if not self.bootstrap_terminated:
            later = later * (1.0 - batch.terminated)[:, None]
        now = features.g(batch.next_observation)
        if self.successor_mean:
            now = (1.0 - discount) * now
        return jax.lax.stop_gradient(now + discount * later)

    def phi(self, state: SuccessorFeaturesState) -> Phi:
        """The slow psi, which the planner reads."""
        return state.slow

    def current(self, state: SuccessorFeaturesState) -> Phi:
        """The psi that is being trained."""
        return state.features.psi

    def unnormalised_phi(self, state: SuccessorFeaturesState) -> Phi:
        """The same network without LayerNorm, for the bonus."""
        return state.slow.unnormalised
