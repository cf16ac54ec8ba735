"""Small networks: dense layers, MLPs, Fourier inputs."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phimu import initial


def elu(x: jax.Array) -> jax.Array:
    """ELU by exp: expm1 takes twice as long, for digits that an activation does not need."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0.0)) - 1.0)


@jax.custom_jvp
def sine(x: jax.Array) -> jax.Array:
    """sin(x) to 1e-7 or the last bit of x: a polynomial on [-pi/2, pi/2], on a CPU five times as
    fast as XLA's, and thirty times where the cosine of x is wanted as well."""
    half_turns = jnp.round(x * (1 / np.pi))
    rest = (x - half_turns * 3.140625) - half_turns * (np.pi - 3.140625)  # exact, then the rest
    squared = rest * rest
    series: jax.Array | float = 1.0
    for n in (11, 9, 7, 5, 3):
        series = 1.0 - squared / (n * (n - 1)) * series
    sign = 1.0 - 2.0 * (half_turns - 2.0 * jnp.floor(half_turns * 0.5))
    return sign * rest * series


@jax.custom_jvp
def cosine(x: jax.Array) -> jax.Array:
    """cos(x), in the same way."""
    return sine(x + np.float32(np.pi / 2))


sine.defjvp(lambda x, tangent: (sine(*x), cosine(*x) * tangent[0]))
cosine.defjvp(lambda x, tangent: (cosine(*x), -sine(*x) * tangent[0]))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "elu": elu,
    "relu": jax.nn.relu,
    "swish": jax.nn.silu,
    "tanh": jnp.tanh,
}


def standardise(x: jax.Array) -> jax.Array:
    """Zero mean and unit variance over the last axis: LayerNorm without learned scale and shift."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """a b in float32; of bfloat16 operands if `jax.default_matmul_precision` says bfloat16."""
    if getattr(jax.config, "jax_default_matmul_precision", None) == "bfloat16":
        a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


Precision = Literal["float32", "bfloat16"]


def transposed(x: jax.Array) -> jax.Array:
    """x' as an array of its own. XLA multiplies a b and a b' fast on a CPU, but not a' b."""
    return jax.lax.optimization_barrier(jnp.swapaxes(x, -1, -2))


@jax.custom_vjp
def product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x W for x [..., inputs], with a backward pass whose products are all fast ones."""
    return multiply(x, weight)


def _product_forward(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, Any]:
    return multiply(x, weight), (x, weight)


def _product_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, weight = saved
    rows, by_row = (array.reshape(-1, array.shape[-1]) for array in (x, gradient))
    if by_row.shape[1] == 1:  # a sum of rows, not worth a transposition
        for_weight = jnp.sum(rows * by_row, axis=0)[:, None]
    else:
        for_weight = multiply(transposed(rows), by_row)
    return multiply(gradient, weight.T), for_weight


product.defvjp(_product_forward, _product_backward)


class Dense(eqx.Module):
    """x W + b on the last axis, so that one vector and a batch are the same call."""

    weight: jax.Array  # [inputs, outputs]
    bias: jax.Array  # [outputs]

    def __init__(self, inputs: int, outputs: int, key: jax.Array, gain: float = 1.0):
        self.weight = initial.normal(key, (inputs, outputs), gain / np.sqrt(inputs))
        self.bias = initial.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        out = product(x, self.weight)
        return out + jnp.broadcast_to(self.bias, out.shape)


class Fourier(eqx.Module):
    """x beside sines and cosines of random projections of it; the frequencies are never trained.

    Sharp structure (a wall) is out of reach of a smooth MLP on raw coordinates; a few
    frequencies put it within reach.
    """

    frequencies: jax.Array  # [inputs, count]

    def __init__(self, inputs: int, count: int, scale: float, key: jax.Array):
        self.frequencies = initial.normal(key, (inputs, count), 2 * np.pi * scale)

    def __call__(self, x: jax.Array) -> jax.Array:
        angle = x @ jax.lax.stop_gradient(self.frequencies)
        return jnp.concatenate([x, sine(angle), cosine(angle)], axis=-1)


class MLP(eqx.Module):
    """Dense layers with an activation between them, LayerNorm before it if asked for."""

    layers: tuple[Dense, ...]
    activation: str = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)

    def __init__(
        self,
        sizes: Sequence[int],
        key: jax.Array,
        activation: str = "elu",
        layer_norm: bool = False,
        last_gain: float = 1.0,
    ):
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [1.0] * (len(sizes) - 2) + [last_gain]
        self.layers = tuple(
            Dense(m, n, k, gain)
            for m, n, k, gain in zip(sizes[:-1], sizes[1:], keys, gains, strict=True)
        )
        self.activation = activation
        self.layer_norm = layer_norm

    def __call__(self, x: jax.Array) -> jax.Array:
        return self._forward(x, self.layer_norm)

    def without_norm(self, x: jax.Array) -> jax.Array:
        """The same layers without LayerNorm, so that the length of x is not forgotten."""
        return self._forward(x, False)

    def _forward(self, x: jax.Array, layer_norm: bool) -> jax.Array:
        for layer in self.layers[:-1]:
            x = layer(x)
            x = ACTIVATIONS[self.activation](standardise(x) if layer_norm else x)
        return self.layers[-1](x)


def unit_columns(network: MLP, last: float = 1.0) -> MLP:
    """With weights whose columns have the length 1, those of the last layer the length `last`."""
    lengths = [1.0] * (len(network.layers) - 1) + [last]
    weights = [
        length * layer.weight / jnp.linalg.norm(layer.weight, axis=0, keepdims=True)
        for length, layer in zip(lengths, network.layers, strict=True)
    ]
    return eqx.tree_at(lambda n: [layer.weight for layer in n.layers], network, weights)


def norm(tree: Any) -> jax.Array:
    """The Euclidean norm of all arrays of a tree together."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(tree)))


Tree = TypeVar("Tree")


def polyak(slow: Tree, fast: Tree, rate: float) -> Tree:
    """slow + rate (fast - slow) on every array of a tree."""
    return jax.tree.map(
        lambda s, f: s + rate * (f - s) if eqx.is_inexact_array(s) else s, slow, fast
    )


def copied(when: jax.Array, slow: Tree, fast: Tree) -> Tree:
    """`fast` on every array of a tree when [] is true, else `slow`."""
    return jax.tree.map(
        lambda s, f: jnp.where(when, f, s) if eqx.is_inexact_array(s) else s, slow, fast
    )
