"""Linear systems one after the other, also under `vmap`.

jaxlib (0.10 and before) divides a batch of LAPACK calls among the very threads that carry the
program out and waits for them there: two batches at once can wait for each other for ever. For
matrices as small as these one by one takes no longer.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap


@sequential_vmap
def solve(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """x of matrix [n, n] x = right [n] or [n, k]."""
    return jnp.linalg.solve(matrix, right)


@sequential_vmap
def whiten(matrix: jax.Array, columns: jax.Array) -> jax.Array:
    """L^-1 columns [d, n], where matrix [d, d] = L L': their squares add up to x' matrix^-1 x."""
    lower = jnp.linalg.cholesky(matrix)
    return jax.scipy.linalg.solve_triangular(lower, columns, lower=True)
