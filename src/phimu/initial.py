"""Random numbers that networks begin with.

They are NumPy's, drawn on the host: to compile JAX's own for every shape of a network takes
seconds, and this takes none. Philox with the words of a JAX key is the same on every machine.
"""

from collections.abc import Callable

import jax
import numpy as np


def normal(key: jax.Array, shape: tuple[int, ...], scale: float = 1.0) -> jax.Array:
    """Gaussian with mean 0 and deviation `scale`, in float32."""
    return _drawn(
        lambda rng: np.float32(scale) * rng.standard_normal(shape, np.float32), key, shape
    )


def uniform(key: jax.Array, shape: tuple[int, ...], high: float) -> jax.Array:
    """Uniform on [0, high), in float32."""
    return _drawn(lambda rng: np.float32(high) * rng.random(shape, np.float32), key, shape)


def zeros(*shape: int) -> jax.Array:
    return jax.device_put(np.zeros(shape, np.float32))


def _drawn(
    draw: Callable[[np.random.Generator], np.ndarray], key: jax.Array, shape: tuple[int, ...]
) -> jax.Array:
    def on_host(key: jax.Array) -> np.ndarray:
        words = np.asarray(key).view(np.uint64)[0]
        return draw(np.random.Generator(np.random.Philox(key=words)))

    if isinstance(key, jax.core.Tracer):  # within a compiled function: the same numbers
        like = jax.ShapeDtypeStruct(shape, np.float32)
        return jax.pure_callback(on_host, like, key, vmap_method="sequential")
    return jax.device_put(on_host(key))
