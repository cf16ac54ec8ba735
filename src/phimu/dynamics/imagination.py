"""Episodes of a policy in a model of the dynamics, with the task's own reward where it is known."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phimu.dynamics.ensemble import Ensemble
from phimu.types import Batch, Known

FARTHEST = 1e5  # no number of an imagined observation is larger


class Imagination(NamedTuple):
    """Where episodes are imagined."""

    ensemble: Ensemble
    known: Known | None  # None: the reward is the networks', and nothing ends
    starts: jax.Array  # [M, observation_dim]
    limit: jax.Array  # []: steps after which an episode is cut


class Imagined(NamedTuple):
    """Transitions [T, N] in N places, each in order; a new episode follows one that has ended."""

    batch: Batch
    age: jax.Array  # [T, N], float: steps of the same episode before this one


def rollout(world: Imagination, policy: Any, places: int, steps: int, key: jax.Array) -> Imagined:
    """What a policy does, each step moved by the mean of one network, the same for all places.

    Actions are kept as they were sampled. The model sees them clipped, as an environment does.
    """

    def step(
        carried: tuple[jax.Array, jax.Array], own: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], Imagined]:
        observation, age = carried
        for_action, for_network, for_start = jax.random.split(own, 3)
        action, _ = policy.sample(observation, for_action)
        which = jax.random.randint(for_network, (), 0, world.ensemble.size)
        moved = _move(world.ensemble.only(which), world.known, observation[None], action[None])
        after, reward, terminated = (x[0] for x in moved)
        truncated = (1.0 - terminated) * (age + 1.0 >= world.limit)
        batch = Batch(observation, action, reward, after, terminated, truncated)
        ended = terminated + truncated > 0
        fresh = _starts(world, places, for_start)
        following = jnp.where(jnp.broadcast_to(ended[:, None], after.shape), fresh, after)
        return (following, jnp.where(ended, 0.0, age + 1.0)), Imagined(batch, age)

    for_starts, for_steps = jax.random.split(key)
    first = _starts(world, places, for_starts), jnp.zeros(places)
    return jax.lax.scan(step, first, jax.random.split(for_steps, steps))[1]


def returns(world: Imagination, policy: Any, steps: int, discount: float) -> jax.Array:
    """What the policy's modes earn from every start in each network alone, on average: [E]."""

    def step(carried: Any, number: jax.Array) -> tuple[Any, None]:
        observation, alive, total = carried
        moved = _move(world.ensemble, world.known, observation, policy.mode(observation))
        after, reward, terminated = moved
        alive = alive * (number < world.limit)
        total = total + alive * discount**number * reward
        return (after, alive * (1.0 - terminated), total), None

    shape = world.ensemble.size, world.starts.shape[0]
    starts = jnp.broadcast_to(world.starts, (*shape, world.starts.shape[1]))
    first = starts, jnp.ones(shape), jnp.zeros(shape)
    (_, _, total), _ = jax.lax.scan(step, first, jnp.arange(steps, dtype=jnp.float32))
    return jnp.mean(total, axis=1)


def _starts(world: Imagination, count: int, key: jax.Array) -> jax.Array:
    return world.starts[jax.random.randint(key, (count,), 0, world.starts.shape[0])]


def _move(
    ensemble: Ensemble, known: Known | None, observation: jax.Array, action: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """s', reward and whether it ends there, of [E, N, .]: each network moves its own."""
    action = jnp.clip(action, -1.0, 1.0)
    after, _, reward = ensemble.predict(observation, action)
    after = jnp.clip(after, -FARTHEST, FARTHEST)
    never = jnp.zeros(after.shape[:-1])
    if known is None:
        return after, never if reward is None else reward, never
    terminated = never if known.terminated is None else known.terminated(after) * 1.0
    return after, known.reward(observation, action, after), terminated
