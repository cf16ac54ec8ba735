"""The KL divergence of a policy from logged actions in its dual form: without a behaviour policy.

KL(pi, b) >= E_pi[log g(s, a)] + 1 - E_b[g(s, a)] for every positive g, with equality at g = pi / b.
Here g = softplus(c), and c is a network that is trained to make the right side large.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.errors import InputError
from phimu.networks import MLP
from phimu.planning.soft_actor_critic import Regulariser
from phimu.types import Metrics, Spec

LEAST = 1e-8  # added under a logarithm and a root, as in the published code


class Dual(NamedTuple):
    """Training state of c(s, a)."""

    network: MLP
    optimiser: optax.OptState


@dataclass(frozen=True)
class DualKl:
    """How c is trained."""

    dual_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of c."""
    dual_learning_rate: float = 1e-3
    """Adam's step for c."""
    dual_steps: int = 3
    """Steps of c per step of the policy."""
    gradient_penalty: float = 5.0
    """Weight of max(|dc/da| - 1, 0)^2 between the policy's actions and logged ones."""

    def __post_init__(self) -> None:
        if self.dual_steps < 1:
            raise InputError(f"dual_steps is {self.dual_steps}: give at least 1.")

    def init(self, spec: Spec, key: jax.Array) -> Dual:
        network = MLP((sum(spec), *self.dual_sizes, 1), key, "relu")
        return Dual(network, optax.adam(self.dual_learning_rate).init(network))

    def update(
        self,
        state: Dual,
        observation: jax.Array,
        action: jax.Array,
        logged: jax.Array,
        share: jax.Array,
    ) -> tuple[Dual, Metrics]:
        """One step. `action` is the policy's, `logged` the set's; `share` [B] is uniform noise."""
        optimiser = optax.adam(self.dual_learning_rate)

        def loss(network: MLP) -> tuple[jax.Array, Metrics]:
            found = jnp.mean(estimate(network, observation, action, logged))
            between = action + share[:, None] * (logged - action)
            penalty = self.gradient_penalty * steepness(network, observation, between)
            return penalty - found, {"dual_estimate": found, "dual_penalty": penalty}

        grads, told = jax.grad(loss, has_aux=True)(state.network)
        updates, optimised = optimiser.update(grads, state.optimiser)
        return Dual(eqx.apply_updates(state.network, updates), optimised), told


def estimate(
    network: MLP, observation: jax.Array, action: jax.Array, logged: jax.Array
) -> jax.Array:
    """1 + log g(s, a) - g(s, logged a): [B]."""
    g = _ratio(network, observation, logged)
    return 1.0 + _log_ratio(network, observation, action) - g


def steepness(network: MLP, observation: jax.Array, action: jax.Array) -> jax.Array:
    """The mean of max(|dc/da| - 1, 0)^2."""
    slopes = jax.grad(lambda a: jnp.sum(_c(network, observation, a)))(action)
    slope = jnp.sqrt(LEAST + jnp.sum(slopes**2, axis=-1))
    return jnp.mean(jnp.maximum(slope - 1.0, 0.0) ** 2)


def kl_dual(network: MLP, observation: jax.Array, logged: jax.Array) -> Regulariser:
    """1 + log g(s, a) - E g, with E g over the logged pairs (s, a) of a batch.

    Deviation: the published code takes each row's own g(s, logged a), and for the target of Q that
    of the next logged action. Of g = pi / b the expectation is 1 in every state, so the mean of the
    batch says the same with less noise, and no next action is needed. The actor sees a constant.
    """
    mean = jnp.mean(_ratio(network, observation, logged))
    return lambda s, a, _: 1.0 + _log_ratio(network, s, a) - mean


def _c(network: MLP, observation: jax.Array, action: jax.Array) -> jax.Array:
    return network(jnp.concatenate([observation, action], axis=-1))[..., 0]


def _ratio(network: MLP, observation: jax.Array, action: jax.Array) -> jax.Array:
    return jax.nn.softplus(_c(network, observation, action))


def _log_ratio(network: MLP, observation: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.log(_ratio(network, observation, action) + LEAST)
