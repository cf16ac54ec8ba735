"""Episodes of a policy in a model of the dynamics."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phimu.dynamics.ensemble import Ensemble
from phimu.types import Batch, Known


class Imagined(NamedTuple):
    """Transitions [T, N] of N episodes in a model, and whether each was still going on."""

    batch: Batch
    alive: jax.Array  # [T, N], float


def rollout(
    ensemble: Ensemble, known: Known | None, policy: Any, starts: jax.Array, horizon: int, key: Any
) -> Imagined:
    """Episodes of a policy from `starts` [N, D], each step by the mean of one network for all.

    Rewards and ends are the task's own where they are known; else the reward is the network's, and
    nothing ends.
    """

    def step(carried: Any, own: jax.Array) -> tuple[Any, tuple[Batch, jax.Array]]:
        observation, alive = carried
        for_action, for_network = jax.random.split(own)
        action, _ = policy.sample(observation, for_action)
        which = jax.random.randint(for_network, (), 0, ensemble.size)
        after, _, learned = ensemble.only(which).predict(observation, action)
        after = after[0]
        reward = learned[0] if known is None and learned is not None else jnp.zeros(alive.shape)
        terminated = jnp.zeros(alive.shape)
        if known is not None:
            reward = known.reward(observation, action, after)
            if known.terminated is not None:
                terminated = known.terminated(after).astype(jnp.float32)
        never = jnp.zeros(alive.shape)
        batch = Batch(observation, action, reward, after, terminated, never)
        return (after, alive * (1.0 - terminated)), (batch, alive)

    first = starts, jnp.ones(starts.shape[0])
    _, found = jax.lax.scan(step, first, jax.random.split(key, horizon))
    return Imagined(*found)
