"""Generalised advantage estimation (Schulman et al., 2016) of environments side by side."""

import jax
import jax.numpy as jnp

from phimu.types import Batch


def gae(
    batch: Batch,
    value: jax.Array,
    next_value: jax.Array,
    discount: float,
    gae_lambda: float,
    bootstrap_time_limits: bool = True,
) -> jax.Array:
    """The advantages [T, envs] of rows in order, with V(s) and V(s') of each, all [T, envs].

    An episode that ends within them is not followed beyond its end, and one that is open at the
    last row goes on with V(s'). `terminated` leaves no value; what was only cut by a time limit has
    V(s'), or none without `bootstrap_time_limits`.
    """
    ended = jnp.maximum(batch.terminated, batch.truncated)
    no_future = batch.terminated if bootstrap_time_limits else ended
    error = batch.reward + discount * (1.0 - no_future) * next_value - value
    decay = discount * gae_lambda * (1.0 - ended)

    def backwards(
        later: jax.Array, row: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        own = row[0] + row[1] * later
        return own, own

    return jax.lax.scan(backwards, jnp.zeros_like(value[0]), (error, decay), reverse=True)[1]


def standardised(advantage: jax.Array) -> jax.Array:
    """With mean 0 and deviation 1 over all of them; all 0 where they do not differ."""
    centred = advantage - jnp.mean(advantage)
    return centred / (jnp.std(advantage) + 1e-8)
