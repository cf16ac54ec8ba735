"""Rewards of the Control Suite as JAX functions, where the observation determines them.

The suite pays for the state after a step and for the control of that step. None of these tasks
ends by itself. Of planar bodies the observation has all angles and velocities, so the velocity of
the centre of mass follows from lengths and masses of the model, which are the numbers below.
"""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp

from phimu.types import Known

_Reward = Callable[[jax.Array, jax.Array], jax.Array]  # of the action and s'

# Of each body, how far the centre of mass of the whole lies from its joint along its own x and z,
# as a share of the whole mass: the centre is the sum of these, each turned with its body.
_CHEETAH = (
    (0.04292887, 0.01133891),
    *((0.04168619, -0.06224059), (-0.03778243, -0.01889121), (0.00234728, -0.00758954)),
    *((-0.02804393, -0.04807531), (0.0137887, -0.01909205), (0.002843096, -0.004422594)),
)
_WALKER_LEG = ((0.0, -0.1088675), (0.0, -0.06105526), (0.004403023, 0.0))
_WALKER = ((0.0, -0.187811), *_WALKER_LEG, *_WALKER_LEG)
_HOPPER = (
    *((0.002893936, 2.989664e-05), (0.0, -0.09080101), (0.0, -0.09301161)),
    *((0.0, -0.0523163), (0.00551584, 0.0)),
)


def _tolerance(x: jax.Array, low: float, high: float, margin: float = 0.0) -> jax.Array:
    """1 within the bounds; beyond them it falls as a Gaussian, to 0.1 at `margin`."""
    beyond = jnp.maximum(jnp.maximum(low - x, x - high), 0.0)
    if not margin:
        return (beyond == 0.0) * 1.0
    return jnp.exp(jnp.log(0.1) * (beyond / margin) ** 2)


def _ramp(x: jax.Array, to: float, length: float) -> jax.Array:
    """1 from `to` on, and 0 at `length` below it."""
    return jnp.clip(1.0 - (to - x) / length, 0.0, 1.0)


def _gentle(action: jax.Array) -> jax.Array:
    """From 1 without control to 0.8 at its limits."""
    return (4.0 + jnp.mean(1.0 - action**2, axis=-1)) / 5.0


def _length(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(x**2, axis=-1))


def _drift(
    shares: tuple[tuple[float, float], ...],
    cosines: list[jax.Array],
    sines: list[jax.Array],
    turns: list[jax.Array],
) -> jax.Array:
    """The velocity along x of the centre of mass, relative to the root's.

    Each list has an entry per body: its angle's cosine and sine, and how fast it turns.
    """
    bodies = zip(shares, cosines, sines, turns, strict=True)
    return sum((z * cos - x * sin) * turn for (x, z), cos, sin, turn in bodies)  # type: ignore[return-value]


def _chain(root: jax.Array, *joints: jax.Array) -> list[jax.Array]:
    """Angles, or velocities, of bodies that hang on one another."""
    found = [root]
    for joint in joints:
        found.append(found[-1] + joint)
    return found


def _cheetah_run(action: jax.Array, s: jax.Array) -> jax.Array:
    def bodies(first: int) -> list[jax.Array]:
        root, *joints = (s[..., first + n] for n in range(7))
        return [*_chain(root, *joints[:3]), *_chain(root, *joints[3:])[1:]]

    angles, turns = bodies(1), bodies(10)
    drift = _drift(_CHEETAH, [jnp.cos(x) for x in angles], [jnp.sin(x) for x in angles], turns)
    return _ramp(s[..., 8] + drift, 10.0, 10.0)


def _walker(speed: float) -> _Reward:
    def reward(action: jax.Array, s: jax.Array) -> jax.Array:
        standing = _tolerance(s[..., 14], 1.2, jnp.inf, 0.6)
        stand = (3.0 * standing + (1.0 + s[..., 0]) / 2.0) / 4.0
        if not speed:
            return stand
        root, *joints = (s[..., 17 + n] for n in range(7))
        backwards = [-joint for joint in joints]  # the axes of the legs point the other way
        turns = [*_chain(root, *backwards[:3]), *_chain(root, *backwards[3:])[1:]]
        cosines, sines = ([s[..., 2 * n + at] for n in range(7)] for at in (0, 1))
        velocity = s[..., 16] + _drift(_WALKER, cosines, sines, turns)
        return stand * (5.0 * _ramp(velocity, speed, speed) + 1.0) / 6.0

    return reward


def _hopper(hop: bool) -> _Reward:
    def reward(action: jax.Array, s: jax.Array) -> jax.Array:
        angles = _chain(*(s[..., 1 + n] for n in range(5)))
        cosines, sines = [jnp.cos(x) for x in angles], [jnp.sin(x) for x in angles]
        torso, pelvis, thigh, calf, _ = cosines
        # From the torso's centre down to the foot's.
        height = 0.12888984 * torso - 0.00745552 * sines[0] + 0.2 * pelvis + 0.33 * thigh
        height += 0.32 * calf + 0.045 * sines[4]
        standing = _tolerance(height, 0.6, 2.0)
        if not hop:
            return standing * _gentle(action)
        turns = _chain(*(s[..., 8 + n] for n in range(5)))
        velocity = s[..., 6] + _drift(_HOPPER, cosines, sines, turns)
        return standing * _ramp(velocity, 2.0, 2.0)

    return reward


def _humanoid(speed: float) -> _Reward:
    def reward(action: jax.Array, s: jax.Array) -> jax.Array:
        upright = _ramp(s[..., 36], 0.9, 1.9)
        stand = _tolerance(s[..., 21], 1.4, jnp.inf, 0.35) * upright * _gentle(action)
        velocity = s[..., 37:39]
        if not speed:
            return stand * jnp.mean(_tolerance(velocity, 0.0, 0.0, 2.0), axis=-1)
        return stand * (5.0 * _ramp(_length(velocity), speed, speed) + 1.0) / 6.0

    return reward


def _cartpole(poles: int, sparse: bool = False) -> _Reward:
    def reward(action: jax.Array, s: jax.Array) -> jax.Array:
        cart, upright, turns = s[..., 0], s[..., 1 : 2 * poles : 2], s[..., 2 * poles + 2 :]
        if sparse:
            balanced = jnp.prod(_tolerance(upright, 0.995, 1.0), axis=-1)
            return _tolerance(cart, -0.25, 0.25) * balanced
        centred = (1.0 + _tolerance(cart, 0.0, 0.0, 2.0)) / 2.0
        still = (1.0 + jnp.min(_tolerance(turns, 0.0, 0.0, 5.0), axis=-1)) / 2.0
        return jnp.mean((upright + 1.0) / 2.0, axis=-1) * _gentle(action) * still * centred

    return reward


def _acrobot(margin: float) -> _Reward:
    def reward(action: jax.Array, s: jax.Array) -> jax.Array:
        across, up = s[..., 0] + s[..., 1], s[..., 2] + s[..., 3]
        away = jnp.sqrt(across**2 + (2.0 - up) ** 2)
        return _tolerance(away, 0.0, 0.2, margin)

    return reward


def _catch(action: jax.Array, s: jax.Array) -> jax.Array:
    across = jnp.abs(s[..., 0] - s[..., 2])
    up = jnp.abs(0.35 + s[..., 1] - s[..., 3])  # the cup's opening hangs that far above the ball
    return ((across < 0.025) & (up < 0.025)) * 1.0


def _point_mass(action: jax.Array, s: jax.Array) -> jax.Array:
    return _tolerance(_length(s[..., :2]), 0.0, 0.015, 0.015) * _gentle(action)


def _reach(target: float) -> _Reward:
    return lambda action, s: _tolerance(_length(s[..., 2:4]), 0.0, target + 0.01)


_TASKS: dict[str, _Reward] = {
    "acrobot-swingup": _acrobot(1.0),
    "acrobot-swingup_sparse": _acrobot(0.0),
    "ball_in_cup-catch": _catch,
    "cartpole-balance": _cartpole(1),
    "cartpole-balance_sparse": _cartpole(1, sparse=True),
    "cartpole-swingup": _cartpole(1),
    "cartpole-swingup_sparse": _cartpole(1, sparse=True),
    "cartpole-two_poles": _cartpole(2),
    "cartpole-three_poles": _cartpole(3),
    "cheetah-run": _cheetah_run,
    "finger-spin": lambda action, s: (s[..., 6] <= -15.0) * 1.0,
    "finger-turn_easy": lambda action, s: (s[..., 11] <= 0.0) * 1.0,
    "finger-turn_hard": lambda action, s: (s[..., 11] <= 0.0) * 1.0,
    "hopper-stand": _hopper(hop=False),
    "hopper-hop": _hopper(hop=True),
    "humanoid-stand": _humanoid(0.0),
    "humanoid-walk": _humanoid(1.0),
    "humanoid-run": _humanoid(10.0),
    "pendulum-swingup": lambda action, s: _tolerance(s[..., 0], 0.99026807, 1.0),  # 8 degrees
    "point_mass-easy": _point_mass,
    "point_mass-hard": _point_mass,
    "reacher-easy": _reach(0.05),
    "reacher-hard": _reach(0.015),
    "walker-stand": _walker(0.0),
    "walker-walk": _walker(1.0),
    "walker-run": _walker(8.0),
}


@cache  # one object each, so that what is compiled for it is compiled once
def known(task: str, sparse_below: float = 0.0) -> Known | None:
    """Of a task by domain and name, `cheetah-run`; None where it has to be learned."""
    dense = _TASKS.get(task)
    if dense is None:
        return None

    def reward(s: jax.Array, a: jax.Array, after: jax.Array) -> jax.Array:
        paid = dense(a, after)
        return jnp.where(paid < sparse_below, 0.0, paid) if sparse_below else paid

    return Known(reward)
