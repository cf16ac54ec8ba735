"""Policies as networks: tanh-Gaussian, categorical, deterministic, Gaussian."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phimu.networks import MLP, unit_columns

LOG_STD_RANGE = (-5.0, 2.0)
INSIDE = 1e-3  # how far within (-1, 1) an action is moved before atanh, as in published code


def before_tanh(action: jax.Array) -> jax.Array:
    """What tanh made an action of, or nearly so at the bounds."""
    return jnp.arctanh(jnp.clip(action, -1.0 + INSIDE, 1.0 - INSIDE))


class TanhGaussian(eqx.Module):
    """A policy on [-1, 1]^n: a Gaussian whose sample goes through tanh."""

    network: MLP

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        sizes: Sequence[int],
        key: jax.Array,
        activation: str = "elu",
        layer_norm: bool = False,
    ):
        widths = (observation_dim, *sizes, 2 * action_dim)
        self.network = MLP(widths, key, activation, layer_norm, last_gain=0.1)

    def __call__(self, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and log standard deviation before the tanh, each [..., action_dim]."""
        mean, raw = jnp.split(self.network(observation), 2, axis=-1)
        low, high = LOG_STD_RANGE
        return mean, low + 0.5 * (high - low) * (jnp.tanh(raw) + 1.0)

    def mode(self, observation: jax.Array) -> jax.Array:
        return jnp.tanh(self(observation)[0])

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """An action [..., action_dim] and its log density [...]."""
        mean, log_std = self(observation)
        return _squash(mean, log_std, jax.random.normal(key, mean.shape))

    def with_noise(self, observation: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The same from standard normal noise [..., action_dim] that the caller has drawn."""
        return _squash(*self(observation), noise)

    def log_density(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Of actions [..., action_dim], moved inside the bounds: [...]."""
        mean, log_std = self(observation)
        return _squash(mean, log_std, (before_tanh(action) - mean) * jnp.exp(-log_std))[1]


def _squash(mean: jax.Array, log_std: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    before = mean + jnp.exp(log_std) * noise
    # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)): no loss of digits for large |x|
    squash = 2.0 * (np.log(2.0) - before - jax.nn.softplus(-2.0 * before))
    log_density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - squash
    return jnp.tanh(before), jnp.sum(log_density, axis=-1)


class Categorical(eqx.Module):
    """A policy on n actions, each a one-hot vector [n]."""

    network: MLP

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        sizes: Sequence[int],
        key: jax.Array,
        activation: str = "elu",
        layer_norm: bool = False,
    ):
        widths = (observation_dim, *sizes, action_dim)
        self.network = MLP(widths, key, activation, layer_norm, last_gain=0.1)

    def __call__(self, observation: jax.Array) -> jax.Array:
        """log pi(a|s) of every action: [..., n]."""
        return jax.nn.log_softmax(self.network(observation))

    def mode(self, observation: jax.Array) -> jax.Array:
        logits = self.network(observation)
        return jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1])

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """An action [..., n] and the logarithm of its probability [...]."""
        logs = self(observation)
        action = jax.nn.one_hot(jax.random.categorical(key, logs), logs.shape[-1])
        return action, jnp.sum(action * logs, axis=-1)


class Deterministic(eqx.Module):
    """A policy on [-1, 1]^n that always chooses the same action: tanh of a network."""

    network: MLP

    def __init__(self, observation_dim: int, action_dim: int, sizes: Sequence[int], key: jax.Array):
        self.network = MLP((observation_dim, *sizes, action_dim), key, "relu", last_gain=0.1)

    def mode(self, observation: jax.Array) -> jax.Array:
        return jnp.tanh(self.network(observation))

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The mode too, for the policy has no noise of its own; its density has no logarithm."""
        action = self.mode(observation)
        return action, jnp.full(action.shape[:-1], jnp.inf)


class Gaussian(eqx.Module):
    """A policy whose noise is the same everywhere.

    Its samples may lie outside of [-1, 1]: there the task clips them, as a part of its dynamics, so
    that their density stays that of a Gaussian.
    """

    network: MLP
    log_std: jax.Array  # [action_dim]

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        sizes: Sequence[int],
        key: jax.Array,
        initial_log_std: float = 0.0,
    ):
        network = MLP((observation_dim, *sizes, action_dim), key, "tanh")
        self.network = unit_columns(network, last=0.01)
        self.log_std = jnp.full(action_dim, initial_log_std, jnp.float32)

    def __call__(self, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean [..., action_dim] and log standard deviation [action_dim]."""
        return self.network(observation), self.log_std

    def mode(self, observation: jax.Array) -> jax.Array:
        return jnp.clip(self.network(observation), -1.0, 1.0)

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """An action [..., action_dim], not clipped, and its log density [...]."""
        mean, log_std = self(observation)
        log_std = jnp.broadcast_to(log_std, mean.shape)
        noise = jax.random.normal(key, mean.shape)
        return mean + jnp.exp(log_std) * noise, _log_normal(noise, log_std)

    def log_density(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        """[...] of actions [..., action_dim] as `sample` gives them."""
        mean, log_std = self(observation)
        log_std = jnp.broadcast_to(log_std, mean.shape)
        return _log_normal((action - mean) * jnp.exp(-log_std), log_std)

    @property
    def entropy(self) -> jax.Array:
        return jnp.sum(self.log_std) + 0.5 * self.log_std.shape[0] * np.log(2 * np.pi * np.e)


def _log_normal(noise: jax.Array, log_std: jax.Array) -> jax.Array:
    """The log density of exp(log_std) noise."""
    return jnp.sum(-0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi), axis=-1)
