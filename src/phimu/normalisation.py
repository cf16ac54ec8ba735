"""Observations as networks see them: as they are, or by the statistics of those seen so far."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phimu.types import Batch

CLIP = 10.0  # what far outliers are clipped to


def inverse_deviation(variance: jax.Array) -> jax.Array:
    """What observations are multiplied by; components that never vary by 1e3, not by infinity."""
    return jax.lax.rsqrt(variance + 1e-6)


class AsIs(eqx.Module):
    """Stands where nothing is normalised."""

    def include(self, observation: jax.Array) -> "AsIs":
        return self

    def of(self, observation: np.ndarray) -> "AsIs":
        return self

    def __call__(self, observation: jax.Array) -> jax.Array:
        return observation


class RunningNormaliser(eqx.Module):
    """Mean and variance of all observations seen so far (Chan's parallel update)."""

    mean: jax.Array  # [observation_dim]
    variance: jax.Array  # [observation_dim]
    count: jax.Array  # []

    def __init__(self, observation_dim: int):
        self.mean = jnp.zeros(observation_dim)
        self.variance = jnp.ones(observation_dim)
        self.count = jnp.zeros(())

    def of(self, observation: np.ndarray) -> "RunningNormaliser":
        """With the statistics of a whole set [N, observation_dim], which float32 cannot add up."""
        mean, variance = (
            jnp.asarray(f(np.asarray(observation), axis=0, dtype=np.float64).astype(np.float32))
            for f in (np.mean, np.var)
        )
        return self._with(mean, variance, jnp.asarray(len(observation), jnp.float32))

    def include(self, observation: jax.Array) -> "RunningNormaliser":
        """The normaliser that has also seen these [B, observation_dim]."""
        total = self.count + observation.shape[0]
        share = observation.shape[0] / total
        difference = jnp.mean(observation, axis=0) - self.mean
        spread = (1 - share) * self.variance + share * jnp.var(observation, axis=0)
        mean = self.mean + share * difference
        return self._with(mean, spread + share * (1 - share) * difference**2, total)

    def _with(self, *statistics: jax.Array) -> "RunningNormaliser":
        return eqx.tree_at(lambda n: (n.mean, n.variance, n.count), self, statistics)

    def __call__(self, observation: jax.Array) -> jax.Array:
        mean = jnp.broadcast_to(self.mean, observation.shape)
        variance = jnp.broadcast_to(self.variance, observation.shape)
        return jnp.clip((observation - mean) * inverse_deviation(variance), -CLIP, CLIP)


Normaliser = AsIs | RunningNormaliser


def begun(normaliser: Normaliser, observation: jax.Array) -> Normaliser:
    """As it is; if it has seen nothing yet, with the statistics of these [N, observation_dim].

    What is computed before the first update then sees observations as that will.
    """
    if isinstance(normaliser, RunningNormaliser) and not float(normaliser.count):
        return normaliser.include(observation)
    return normaliser


def normalise_batch(normaliser: Normaliser, batch: Batch) -> Batch:
    """The batch as phi, mu, actor and critic see it: both observations by the same statistics."""
    return batch._replace(
        observation=normaliser(batch.observation),
        next_observation=normaliser(batch.next_observation),
    )


class Acting(NamedTuple):
    """What acting needs of an agent's state: little, because each array makes a call slower."""

    normaliser: Normaliser
    policy: Any  # with `mode` and `sample`

    def act(self, observation: jax.Array, key: jax.Array, deterministic: bool) -> jax.Array:
        """Actions in [-1, 1] for observations [..., D]: the mode, or a sample."""
        seen = self.normaliser(observation)
        return self.policy.mode(seen) if deterministic else self.policy.sample(seen, key)[0]
