"""The two feature maps phi(s, a) and mu(s'), and what their last layers may be."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from phimu.networks import MLP, Dense, Fourier, standardise

OUTPUTS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "identity": lambda x: x,
    "elu": jax.nn.elu,
    "unit_variance": standardise,
    "unit_norm": lambda x: x * jax.lax.rsqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-12),
    # non-negative ones, for the linear ratio
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "softplus": jax.nn.softplus,
    "exponential": lambda x: jnp.exp(jnp.minimum(x, 80.0)),
    # the bounded ones of section 4.1
    "sigmoid": jax.nn.sigmoid,
    "gaussian": lambda x: jnp.exp(-(x**2)),
    "tanh": jnp.tanh,
}


class FeatureMap(eqx.Module):
    """An ELU MLP, on Fourier features of the observation if asked for, with its output function."""

    fourier: Fourier | None
    network: MLP
    output: str = eqx.field(static=True)
    gain: float = eqx.field(static=True)

    def __call__(self, observation: jax.Array, beside: jax.Array | None = None) -> jax.Array:
        """Of [B, D]; beside the observation phi has the action, mu what it is told of s'."""
        return OUTPUTS[self.output](self.gain * self.network(self._inputs(observation, beside)))

    def unnormalised(self, observation: jax.Array, beside: jax.Array) -> jax.Array:
        """The same layers without LayerNorm and without the output function.

        What those divide by grows away from the data, and with it what this gives.
        """
        return self.gain * self.network.without_norm(self._inputs(observation, beside))

    def _inputs(self, observation: jax.Array, beside: jax.Array | None) -> jax.Array:
        inputs = observation if self.fourier is None else self.fourier(observation)
        if beside is not None:
            inputs = jnp.concatenate([inputs, beside], axis=-1)
        return inputs


class Features(eqx.Module):
    """Everything the contrastive loss trains."""

    phi: FeatureMap
    mu: FeatureMap
    reward_head: Dense  # r(s, a) = <phi, theta>, section 2.1
    bonus_head: Dense  # CTRL-UCBL's linear prediction of the bonus, appendix C
    log_temperature: jax.Array | None  # [], of the exponential ratio
    log_normaliser: jax.Array | None  # [], the scalar of the binary loss


class SlowFeatures(eqx.Module):
    """Slowly following copies: what the planner reads, and what density queries use."""

    phi: FeatureMap
    mu: FeatureMap
    mu_mean: jax.Array | None  # [d], running mean of mu under the base measure; the linear ratio's
