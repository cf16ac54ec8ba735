"""Finite linear MDPs, where every quantity of the paper has an exact value.

s is an observation index 0 .. S - 1, as elsewhere in phimu; the word state is kept for the latent
states of locks. Everything is float64: models are NumPy arrays, and compiled
functions are wrapped in `exact`.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax


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
