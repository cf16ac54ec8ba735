"""The ratio P(s'|s,a) / p(s') as a function of phi and mu, in logarithms.

`linear` is the paper's text, <phi, mu>: a true linear MDP. `exponential` is what its
hyperparameter table and the group's code imply, exp(<phi, mu> / temperature).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

TINY = 1e-12  # floor of the linear ratio, so that its logarithm and gradient stay finite

Ratio = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def linear(phi: jax.Array, mu: jax.Array, temperature: jax.Array) -> jax.Array:
    """log <phi, mu> for non-negative phi [B, d] and mu [K, d]: [B, K]."""
    del temperature
    return jnp.log(phi @ mu.T + TINY)


def exponential(phi: jax.Array, mu: jax.Array, temperature: jax.Array) -> jax.Array:
    """<phi, mu> / temperature: [B, K]."""
    return phi @ mu.T / temperature


RATIOS: dict[str, Ratio] = {"linear": linear, "exponential": exponential}
