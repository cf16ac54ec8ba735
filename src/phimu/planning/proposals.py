"""The best of several proposed actions, to act by and to learn from, as in BCQ and BEAR."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from phimu.planning.critics import Head, Twin, of_actions
from phimu.planning.soft_actor_critic import Phi

ROWS = 32  # of a batch of observations at a time: all at once could take gigabytes


class Proposal(Protocol):
    """A pytree that proposes actions."""

    def propose(self, observation: jax.Array, count: int, key: jax.Array) -> jax.Array:
        """`count` actions at each observation [B, D]: [B, count, action_dim]."""


class BestOf(eqx.Module):
    """Acts by that of several proposed actions whose Q is the largest."""

    proposal: Any  # a Proposal
    head: Head  # on phi(s, a)
    phi: Phi = eqx.field(static=True)
    count: int = eqx.field(static=True)

    def mode(self, observation: jax.Array) -> jax.Array:
        """By draws that are always the same, so that it depends on the observation alone.

        Deviation: published code draws anew in every step.
        """
        count = observation.size // observation.shape[-1]
        return self._each(observation, jnp.tile(jax.random.PRNGKey(0), (count, 1)))

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """By draws of its own for each observation; the density has no simple form."""
        count = observation.size // observation.shape[-1]
        action = self._each(observation, jax.random.split(key, count))
        return action, jnp.full(action.shape[:-1], jnp.inf)

    def _each(self, observation: jax.Array, keys: jax.Array) -> jax.Array:
        rows = observation.reshape(-1, observation.shape[-1])
        if len(rows) == 1:
            actions = self._one((rows[0], keys[0]))
        else:
            actions = jax.lax.map(self._one, (rows, keys), batch_size=ROWS)
        return actions.reshape(*observation.shape[:-1], -1)

    def _one(self, given: tuple[jax.Array, jax.Array]) -> jax.Array:
        observation, key = given[0][None], given[1]
        actions = self.proposal.propose(observation, self.count, key)
        value = of_actions((self.head,), self.phi, observation, actions)[0, 0]
        return actions[0, jnp.argmax(value)]


def best_value(
    critic: Twin, phi: Phi, observation: jax.Array, actions: jax.Array, smaller_weight: float
) -> jax.Array:
    """The largest over N actions [B, N, A] of a mean of both Q, the smaller weighted so: [B]."""
    both = of_actions(critic, phi, observation, actions)  # [2, B, N]
    low, high = jnp.min(both, axis=0), jnp.max(both, axis=0)
    return jnp.max(smaller_weight * low + (1.0 - smaller_weight) * high, axis=-1)
