"""Passes over the same rows in minibatches, as one compiled scan."""

from collections.abc import Callable
from typing import Any

import jax

from phimu.errors import InputError


def passes(
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    rows: Any,
    key: jax.Array,
    epochs: int,
    minibatches: int,
) -> tuple[Any, Any]:
    """`step(state, minibatch)` for each minibatch of each pass, every pass in an order of its own.

    `rows` is a tree of arrays [B, ...]. Minibatches have one size; what is left over of B is left
    out of that pass. It gives the state and what the steps said, stacked.
    """
    count = jax.tree.leaves(rows)[0].shape[0]
    size = count // minibatches
    if not size:
        raise InputError(f"minibatches is {minibatches}, but batch_size {count}: give fewer.")
    if minibatches == 1:
        return jax.lax.scan(lambda state, _: step(state, rows), state, length=epochs)
    keys = jax.random.split(key, epochs)
    order = jax.vmap(lambda key: jax.random.permutation(key, count))(keys)
    order = order[:, : size * minibatches].reshape(epochs * minibatches, size)

    def one(state: Any, index: jax.Array) -> tuple[Any, Any]:
        return step(state, jax.tree.map(lambda column: column[index], rows))

    return jax.lax.scan(one, state, order)
