"""The rewards and ends of MBBL's tasks as JAX functions of what is observed.

All of them are known: MBBL chose rewards that are functions of the observation before the step and
of the action. `environments.mbbl.bodies` and `.classic` pay them from the simulator's own state.
"""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp

from phimu.types import Known

_Alive = Callable[[jax.Array], jax.Array]


def _within(low: float, high: float) -> _Alive:
    """The height of the torso, which all bodies observe first."""
    return lambda s: (s[..., 0] >= low) & (s[..., 0] <= high)


def _hopper_alive(s: jax.Array) -> jax.Array:
    return (s[..., 0] > 0.7) & (jnp.abs(s[..., 1]) < 0.2)


def _walker_alive(s: jax.Array) -> jax.Array:
    return (s[..., 0] > 0.8) & (s[..., 0] < 2.0) & (jnp.abs(s[..., 1]) < 1.0)


_ANT_ALIVE, _HUMANOID_ALIVE = _within(0.2, 1.0), _within(1.0, 2.0)


def _squared(x: jax.Array) -> jax.Array:
    return jnp.sum(x**2, axis=-1)


def _cheetah(s: jax.Array, a: jax.Array, after: jax.Array) -> jax.Array:
    return s[..., 8] - 0.1 * _squared(a)


def _reacher(s: jax.Array, a: jax.Array, after: jax.Array) -> jax.Array:
    return -jnp.sqrt(_squared(s[..., 8:])) - _squared(a)


def _inverted_pendulum(s: jax.Array, a: jax.Array, after: jax.Array) -> jax.Array:
    return -(s[..., 1] ** 2)


def _pendulum(s: jax.Array, a: jax.Array, after: jax.Array) -> jax.Array:
    lean = s[..., 0] + 0.1 * jnp.abs(s[..., 1])
    return -(lean + 0.1 * s[..., 2] ** 2 + 0.001 * 4.0 * _squared(a))


def _cartpole(s: jax.Array, a: jax.Array, after: jax.Array) -> jax.Array:
    return jnp.cos(s[..., 2]) - 0.01 * s[..., 0] ** 2


def _runner(speed: int, height: float, alive: _Alive | None, ends: bool) -> Known:
    """Runs with its torso at a height; 1 while alive, or always where nothing is asked."""

    def reward(s: jax.Array, a: jax.Array, after: jax.Array) -> jax.Array:
        paid = s[..., speed] - 3.0 * (s[..., 0] - height) ** 2 - 0.1 * _squared(a)
        return paid + (1.0 if alive is None else alive(s))

    return Known(reward, _not(alive) if ends and alive else None)


def _humanoid(forces: bool, ends: bool, motor: float) -> Known:
    """`motor` is how far an action of 1 turns a motor up."""

    def reward(s: jax.Array, a: jax.Array, after: jax.Array) -> jax.Array:
        paid = 0.25 / 0.015 * s[..., 22] - 0.1 * motor**2 * _squared(a) + 5.0 * _HUMANOID_ALIVE(s)
        return paid - jnp.minimum(5e-7 * _squared(s[..., -84:]), 10.0) if forces else paid

    return Known(reward, _not(_HUMANOID_ALIVE) if ends else None)


def _not(alive: _Alive) -> _Alive:
    return lambda after: ~alive(after)


@cache  # one object each, so that what is compiled for it is compiled once
def known(task: str, raw_actions: bool = False) -> Known:
    """Of a task by its name in `mbbl.bodies` or `mbbl.classic`."""
    motor = 1.0 if raw_actions else 0.4  # of the humanoids; the others' is 1, or of no account
    return {
        "HalfCheetah": Known(_cheetah),
        "Reacher": Known(_reacher),
        "IPendulum": Known(_inverted_pendulum),
        "Pendulum": Known(_pendulum),
        "CartPole": Known(_cartpole),
        "HopperET": _runner(5, 1.3, _hopper_alive, ends=True),
        "Hopper": _runner(5, 1.3, None, ends=False),
        "WalkerET": _runner(8, 1.3, _walker_alive, ends=True),
        "Walker": _runner(8, 1.3, None, ends=False),
        "AntET": _runner(13, 0.57, _ANT_ALIVE, ends=True),
        "Ant": _runner(13, 0.57, None, ends=False),
        "HumanoidET": _humanoid(forces=True, ends=True, motor=motor),
        "SHumanoidET": _humanoid(forces=False, ends=True, motor=motor),
        "SHumanoid": _humanoid(forces=False, ends=False, motor=motor),
    }[task]
