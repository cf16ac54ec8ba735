"""An ensemble of networks that each predict s' - s: a Gaussian over it, or one value.

The networks' parameters are stacked, so that all of them are one batched product.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from phimu.networks import ACTIVATIONS, multiply, transposed


@jax.custom_vjp
def stacked_product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """[E, B, inputs] times [E, inputs, outputs], with a backward pass of fast products."""
    return multiply(x, weight)


def _forward(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, Any]:
    return multiply(x, weight), (x, weight)


def _backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, weight = saved
    return multiply(gradient, jnp.swapaxes(weight, -1, -2)), multiply(transposed(x), gradient)


stacked_product.defvjp(_forward, _backward)


class Networks(eqx.Module):
    """What is trained: the layers of E networks, and bounds of log variances that they share.

    Without bounds they have no variances: half as many outputs, and the mean alone.
    """

    weights: tuple[jax.Array, ...]  # [E, inputs, outputs] each
    biases: tuple[jax.Array, ...]  # [E, 1, outputs] each
    lowest: jax.Array | None  # [outputs]
    highest: jax.Array | None  # [outputs]
    activation: str = eqx.field(static=True, default="swish")

    def __call__(self, inputs: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """Mean and log variance, each [E, B, outputs], of normalised inputs [E, B, inputs]."""
        x, function = inputs, ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = function(x) if x is not inputs else x
            x = stacked_product(x, weight)
            x = x + jnp.broadcast_to(bias, x.shape)
        if self.lowest is None or self.highest is None:
            return x, None
        mean, raw = jnp.split(x, 2, axis=-1)
        return mean, bounded(raw, self.lowest, self.highest)


def bounded(raw: jax.Array, lowest: jax.Array, highest: jax.Array) -> jax.Array:
    """A log variance pressed softly between its bounds, which are [outputs]."""
    low, high = (jnp.broadcast_to(bound, raw.shape) for bound in (lowest, highest))
    below = high - jax.nn.softplus(high - raw)
    return low + jax.nn.softplus(below - low)


class Ensemble(eqx.Module):
    """E networks and what their inputs, and maybe their targets, are normalised by. It predicts the
    reward where it has an output more than the observation has numbers."""

    networks: Networks
    mean: jax.Array  # [inputs]
    deviation: jax.Array  # [inputs]
    target_mean: jax.Array | None = None  # [outputs]; None: targets are as they are
    target_deviation: jax.Array | None = None  # [outputs]

    @property
    def size(self) -> int:
        return self.networks.weights[0].shape[0]

    def normalised(self, inputs: jax.Array) -> jax.Array:
        return _normalised(inputs, self.mean, self.deviation)

    def normalised_targets(self, targets: jax.Array) -> jax.Array:
        return _normalised(targets, self.target_mean, self.target_deviation)

    def predict(
        self, observation: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Mean and deviation of s', and the reward if it is learned, by each network.

        Inputs are [E, B, .], each network's own, or [B, .], the same for all. The deviation is 0
        of networks without variances.
        """
        inputs = self.normalised(jnp.concatenate([observation, action], axis=-1))
        size = observation.shape[-1]
        if inputs.ndim == 2:
            inputs = jnp.broadcast_to(inputs, (self.size, *inputs.shape))
            observation = jnp.broadcast_to(observation, (self.size, *observation.shape))
        mean, log_variance = self.networks(inputs)
        deviation = jnp.zeros_like(mean) if log_variance is None else jnp.exp(0.5 * log_variance)
        if self.target_mean is not None and self.target_deviation is not None:
            shift, scale = (
                jnp.broadcast_to(x, mean.shape) for x in (self.target_mean, self.target_deviation)
            )
            mean, deviation = shift + scale * mean, scale * deviation
        reward = mean[..., size] if mean.shape[-1] > size else None
        return observation + mean[..., :size], deviation[..., :size], reward

    def only(self, which: jax.Array) -> "Ensemble":
        """The network of this number, as an ensemble of one."""
        weights, biases = (
            tuple(jax.lax.dynamic_slice_in_dim(x, which, 1) for x in part)
            for part in (self.networks.weights, self.networks.biases)
        )
        networks = replace(self.networks, weights=weights, biases=biases)
        return replace(self, networks=networks)


def _normalised(x: jax.Array, mean: jax.Array | None, deviation: jax.Array | None) -> jax.Array:
    if mean is None or deviation is None:
        return x
    return (x - jnp.broadcast_to(mean, x.shape)) / jnp.broadcast_to(deviation, x.shape)
