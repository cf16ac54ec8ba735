"""Noise on s': blurred, the ratio of nearly deterministic dynamics is a smooth function of s'."""

import jax
import jax.numpy as jnp
import numpy as np

TOLD = 8  # numbers that a network is told a level by, or a number of steps


def blurred(
    following: jax.Array, levels: tuple[float, ...], variance: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """[K, D] with Gaussian noise of one of these levels, in deviations of each component; and it.

    The level [] is drawn once for all rows.
    """
    for_level, for_noise = jax.random.split(key)
    level = jax.random.choice(for_level, jnp.array(levels))
    noise = level * jax.random.normal(for_noise, following.shape)
    return following + noise * jnp.sqrt(variance)[None, :], level


def kept_signal(count: int) -> np.ndarray:
    """Share of variance that is still s' at each level of a variance-preserving schedule: [count].

    The published one of CTRL-SR and Diff-SR: x = sqrt(kept) s' + sqrt(1 - kept) noise.
    """
    u = np.arange(1, count + 1) / count
    return np.exp(-0.1 * u - 4.95 * u**2)


def waves(numbers: jax.Array) -> jax.Array:
    """What a network is told of positive numbers [n]: waves of their logarithms, [n, TOLD]."""
    angles = jnp.outer(jnp.log(numbers), 0.5 * 2.0 ** jnp.arange(TOLD // 2))
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def tell(rows: int, *numbers: jax.Array | None) -> jax.Array | None:
    """The same for every row: waves of each number [], side by side, or None."""
    given = [number for number in numbers if number is not None]
    if not given:
        return None
    told = waves(jnp.array(given, jnp.float32)).reshape(1, -1)
    return jnp.broadcast_to(told, (rows, told.shape[1]))
