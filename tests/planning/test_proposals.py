"""The best of several proposed actions, against all of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phimu.planning.critics import sized_twin
from phimu.planning.proposals import ROWS, BestOf, best_value

KEY = jax.random.PRNGKey(3)


class Uniform(eqx.Module):
    """Proposes anything."""

    bound: jax.Array

    def propose(self, observation, count, key):
        shape = (len(observation), count, 2)
        return self.bound * jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


def concatenate(observation, action):
    return jnp.concatenate([observation, action], axis=-1)


CRITIC = sized_twin((8,), 5, jax.random.PRNGKey(0), "relu", False)
OBSERVATIONS = np.random.default_rng(0).normal(size=(ROWS + 3, 3)).astype(np.float32)


def heads(observation, action):
    """Both Q in float64: [2, ...]."""
    found, x = [], np.concatenate([observation, action], axis=-1).astype(np.float64)
    for head in CRITIC:
        first, last = ((np.asarray(y.weight), np.asarray(y.bias)) for y in head.network.layers)
        found.append((np.maximum(x @ first[0] + first[1], 0) @ last[0] + last[1])[..., 0])
    return np.stack(found)


def test_takes_the_proposal_that_the_first_q_likes_best():
    policy = BestOf(Uniform(jnp.ones(())), CRITIC[0], concatenate, 20)
    actions = policy.mode(OBSERVATIONS)
    assert actions.shape == (ROWS + 3, 2)
    proposed = np.asarray(policy.proposal.propose(OBSERVATIONS[:1], 20, jax.random.PRNGKey(0)))[0]
    everywhere = np.tile(proposed, (len(OBSERVATIONS), 1, 1))  # the same at all observations
    value = heads(np.repeat(OBSERVATIONS[:, None], 20, axis=1), everywhere)[0]
    np.testing.assert_allclose(actions, proposed[value.argmax(axis=1)], rtol=1e-6)
    np.testing.assert_allclose(policy.mode(OBSERVATIONS[4]), actions[4], rtol=1e-6)
    by_envs = policy.mode(OBSERVATIONS[None])
    np.testing.assert_allclose(by_envs[0], actions, rtol=1e-6)


def test_samples_differ_from_row_to_row_and_from_key_to_key():
    policy = BestOf(Uniform(jnp.ones(())), CRITIC[0], concatenate, 2)
    same = np.tile(OBSERVATIONS[:1], (10, 1))
    first, density = policy.sample(same, KEY)
    assert len(np.unique(np.asarray(first)[:, 0])) == 10
    assert density.shape == (10,)
    assert not np.array_equal(first, policy.sample(same, jax.random.PRNGKey(4))[0])
    np.testing.assert_array_equal(first, policy.sample(same, KEY)[0])


def test_the_value_is_the_largest_of_weighted_means():
    """The mean of both Q comes first, the largest over actions after it."""
    actions = np.random.default_rng(1).uniform(-1, 1, (ROWS + 3, 7, 2)).astype(np.float32)
    both = heads(np.repeat(OBSERVATIONS[:, None], 7, axis=1), actions)
    for weight in (0.0, 0.75, 1.0):
        wanted = (weight * both.min(axis=0) + (1 - weight) * both.max(axis=0)).max(axis=1)
        found = best_value(CRITIC, concatenate, OBSERVATIONS, actions, weight)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
