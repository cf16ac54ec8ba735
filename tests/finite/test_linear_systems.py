import os
import subprocess
import sys

import jax
import numpy as np

from phimu.finite import solve, whiten

# Several batches of systems at once, each behind an operation that is divided among threads. With
# jnp.linalg.solve this hangs within seconds (ten rounds: 2 of 2 times) on jaxlib 0.10.2.
CONGESTION = """
import jax, jax.numpy as jnp
from phimu.finite import solve

def one(n, part):
    matrix = jnp.tanh(part[:n, :n]) + 10 * jnp.eye(n)
    return jnp.sin(part).at[:n, :n].add(0.1 * solve(matrix, matrix.T + 1))

def several(start):
    def step(_, parts):
        return [one(n, part) for n, part in enumerate(parts, 30)]

    return jax.lax.fori_loop(0, 10, step, [start + shift for shift in range(6)])

start = jax.random.normal(jax.random.PRNGKey(0), (10, 128, 128))
print(all(bool(jnp.isfinite(part).all()) for part in jax.jit(jax.vmap(several))(start)))
"""


def test_batches_of_systems_do_not_wait_for_each_other() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONGESTION],
        env=os.environ | {"PJRT_NPROC": "2"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "True\n", done.stderr


def test_systems_under_vmap_are_numpys() -> None:
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((3, 2, 4, 4)).astype(np.float32)
    matrix = factor @ factor.swapaxes(2, 3) + np.eye(4, dtype=np.float32)
    right = rng.standard_normal((3, 2, 4, 5)).astype(np.float32)
    twice = jax.vmap(jax.vmap(solve))(matrix, right)
    expected = np.linalg.solve(matrix.astype(np.float64), right.astype(np.float64))
    np.testing.assert_allclose(twice, expected, atol=1e-4)
    white = np.asarray(jax.vmap(jax.vmap(whiten))(matrix, right), np.float64)
    norms = np.einsum("...ik,...ik->...k", right, expected)
    np.testing.assert_allclose((white**2).sum(axis=-2), norms, rtol=1e-4)
