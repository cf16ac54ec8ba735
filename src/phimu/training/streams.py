"""Randomness is counted, not carried: every draw comes from (seed, stream, step), so that a
resumed run continues the same streams without having saved any."""

import jax
import numpy as np

from phimu.errors import InputError

WARM_UP, BATCH, RESET, ACT, UPDATE, REFRESH, EVALUATE, INIT, COLLECT, BASE = range(10)


def stream(seed: int, name: int, step: int) -> np.random.Generator:
    """The stream of the host."""
    return np.random.default_rng((seed, name, step))


def key(seed: int, name: int, step: int | jax.Array) -> jax.Array:
    """The stream of a compiled step."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.PRNGKey(seed), name), step)


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**31:
        raise InputError(f"seed is {seed}: give a number from 0 to 2147483647.")
