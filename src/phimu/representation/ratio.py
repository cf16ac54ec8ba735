"""The ratio P(s'|s,a) / p(s') as a function of phi and mu, in logarithms.

`linear` is the paper's text, <phi, mu>: a true linear MDP. `exponential` is what its
hyperparameter table and the group's code imply, exp(<phi, mu> / temperature).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from phimu.networks import multiply, transposed

TINY = 1e-12  # floor of the linear ratio, so that its logarithm and gradient stay finite

Ratio = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


@jax.custom_vjp
def inner(phi: jax.Array, mu: jax.Array) -> jax.Array:
    """<phi, mu> of every pair: [B, K]. As in `networks.product`, all its products are fast ones."""
    return multiply(phi, mu.T)


def _inner_forward(phi: jax.Array, mu: jax.Array) -> tuple[jax.Array, Any]:
    return multiply(phi, mu.T), (phi, mu)


def _inner_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    phi, mu = saved
    return multiply(gradient, mu), multiply(transposed(gradient), phi)


inner.defvjp(_inner_forward, _inner_backward)


def linear(phi: jax.Array, mu: jax.Array, temperature: jax.Array) -> jax.Array:
    """log <phi, mu> for non-negative phi [B, d] and mu [K, d]: [B, K]."""
    del temperature
    return jnp.log(inner(phi, mu) + TINY)


def exponential(phi: jax.Array, mu: jax.Array, temperature: jax.Array) -> jax.Array:
    """<phi, mu> / temperature: [B, K]."""
    return inner(phi, mu) / temperature


RATIOS: dict[str, Ratio] = {"linear": linear, "exponential": exponential}
