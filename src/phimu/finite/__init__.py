"""Finite linear MDPs, where every quantity of the paper has an exact value.

s is an observation index 0 .. S - 1, as elsewhere in phimu; the word state is kept for the latent
states of locks. Everything is float64: models are NumPy arrays, and compiled
functions are wrapped in `exact`.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap


def exact(function: Callable[..., Any], static: tuple[str, ...] = ()) -> Callable[..., Any]:
    """`function` compiled in float64: NumPy arrays go in and come out.

    JAX's own arrays do not leave, because outside they would meet float32 settings. Within
    another `exact` function it is the plain function, so `exact(jax.vmap(policy_iteration))` and
    scans over planning steps are compiled as one program. `static` arguments go by name.
    """
    program = jax.jit(function, static_argnames=static)

    @wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        with jax.enable_x64(True):
            result = program(*arguments, **named)
            traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result))
            return result if traced else jax.device_get(result)

    return run


# Linear systems one after the other, also under `vmap`: jaxlib (0.10 and before) divides a batch of
# LAPACK calls among the very threads that carry the program out and waits for them there, so that
# two batches at once can wait for each other for ever. One by one small ones take no longer.


@sequential_vmap
def solve(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """x of matrix [n, n] x = right [n] or [n, k]."""
    return jnp.linalg.solve(matrix, right)


@sequential_vmap
def whiten(matrix: jax.Array, columns: jax.Array) -> jax.Array:
    """L^-1 columns [d, n], where matrix [d, d] = L L': their squares add up to x' matrix^-1 x."""
    lower = jnp.linalg.cholesky(matrix)
    return jax.scipy.linalg.solve_triangular(lower, columns, lower=True)
