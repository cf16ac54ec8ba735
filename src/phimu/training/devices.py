"""Several devices for one learner: each has the whole state and its part of the batch.

The compiler inserts what they tell each other, so that negatives, means and gradients are those of
the whole batch: N devices compute the update of one.
"""

import contextlib
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from phimu.errors import InputError, at_least

ROWS = "rows"


def use_devices(count: int) -> None:
    """See to it that there are so many: on the CPU virtual ones, made before JAX starts."""
    at_least(1, devices=count)
    if count == 1:
        return
    with contextlib.suppress(RuntimeError):  # JAX has started: there are those that there are
        jax.config.update("jax_num_cpu_devices", count)
    if len(jax.devices()) < count:
        raise InputError(
            f"devices is {count}, but JAX has {len(jax.devices())} here: give at most that many; "
            "more virtual ones on the CPU need a new process."
        )


def check_sizes(count: int, sizes: dict[str, int]) -> None:
    """Whether each of these can be divided among `count` devices."""
    for name, size in sizes.items():
        if size % count:
            raise InputError(f"{name} is {size}: with {count} devices give a multiple of {count}.")


class Placement(NamedTuple):
    """Where arrays lie on several devices."""

    whole: NamedSharding  # on each of them
    rows: NamedSharding  # [B, ...] in parts
    stacked: NamedSharding  # [updates, B, ...] in parts of B


def placement(count: int) -> Placement | None:
    """That of the first `count` devices; None where one is enough."""
    if count == 1:
        return None
    mesh = Mesh(np.array(jax.devices()[:count]), (ROWS,))
    specs = PartitionSpec(), PartitionSpec(ROWS), PartitionSpec(None, ROWS)
    return Placement(*(NamedSharding(mesh, spec) for spec in specs))


def on_first(leaves: list[Any]) -> list[Any]:
    """The first device's own copy of arrays that each has; nothing is moved."""
    return [leaf.addressable_data(0) for leaf in leaves]
