"""Imagined episodes in models whose dynamics are known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.dynamics.ensemble import Ensemble, Networks
from phimu.dynamics.imagination import rollout
from phimu.types import Known

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.PRNGKey(0)


def exact(matrix, networks=5, reward=None):
    """An ensemble whose networks all have s' - s = matrix (s, a), and are certain of it."""
    outputs = matrix.shape[0] + (reward is not None)
    weight = np.zeros((networks, matrix.shape[1], 2 * outputs), np.float32)
    weight[:, :, : matrix.shape[0]] = matrix.T
    if reward is not None:
        weight[:, :, outputs - 1] = reward
    bias = np.zeros((networks, 1, 2 * outputs), np.float32)
    bias[..., outputs:] = -50.0
    bounds = jnp.full(outputs, -50.0), jnp.full(outputs, 0.5)
    layers = Networks((jnp.asarray(weight),), (jnp.asarray(bias),), *bounds)
    return Ensemble(layers, jnp.zeros(matrix.shape[1]), jnp.ones(matrix.shape[1]))


class Proportional:
    """a = -s / 2."""

    def sample(self, observation, key):
        return -0.5 * observation, jnp.zeros(observation.shape[:-1])


MOVE = np.float32([[0.0, 0.5]])  # s' = s + a / 2
STARTS = np.float32([[1.0], [-0.4], [0.1]])


def test_imagined_episodes_are_those_of_the_system():
    known = Known(lambda s, a, after: -(s[..., 0] ** 2) + a[..., 0])
    found = rollout(exact(MOVE), known, Proportional(), STARTS, 6, KEY)
    s = STARTS
    for step in range(6):
        a, after = -0.5 * s, 0.75 * s
        np.testing.assert_allclose(found.batch.observation[step], s, atol=1e-6)
        np.testing.assert_allclose(found.batch.action[step], a, atol=1e-6)
        np.testing.assert_allclose(found.batch.next_observation[step], after, atol=1e-6)
        np.testing.assert_allclose(found.batch.reward[step], (-(s**2) + a)[:, 0], atol=1e-6)
        s = after
    assert (found.alive == 1).all()
    assert not np.any(found.batch.terminated)


def test_imagined_episodes_end_where_the_task_says_so():
    known = Known(lambda s, a, after: s[..., 0], lambda after: jnp.abs(after[..., 0]) < 0.25)
    found = rollout(exact(MOVE), known, Proportional(), STARTS, 8, KEY)
    lengths = np.sum(np.asarray(found.alive), axis=0)
    np.testing.assert_array_equal(lengths, [5, 2, 1])  # 0.75^5 < 0.25, 0.4 * 0.75^2, 0.1 * 0.75
    first = np.argmax(np.asarray(found.batch.terminated), axis=0)
    np.testing.assert_array_equal(first + 1, lengths)


def test_imagined_rewards_are_learned_where_they_are_not_known():
    ensemble = exact(MOVE, reward=np.float32([2.0, -1.0]))
    found = rollout(ensemble, None, Proportional(), STARTS, 3, KEY)
    s, a = found.batch.observation[..., 0], found.batch.action[..., 0]
    np.testing.assert_allclose(found.batch.reward, 2 * s - a, atol=1e-5)


def test_each_step_of_imagined_episodes_is_by_one_network():
    """Networks that move by 1, 2, ... 5: every chain makes the same steps, and all occur."""
    ensemble = exact(np.float32([[0.0, 0.0]]))
    bias = ensemble.networks.biases[0].at[:, 0, 0].set(jnp.arange(1.0, 6.0))
    ensemble = replace(ensemble, networks=replace(ensemble.networks, biases=(bias,)))
    found = rollout(ensemble, Known(lambda s, a, _: s[..., 0]), Proportional(), STARTS, 60, KEY)
    moved = np.asarray(found.batch.next_observation - found.batch.observation)[..., 0]
    assert np.allclose(moved, moved[:, :1], atol=1e-4)
    assert set(np.round(moved[:, 0]).astype(int)) == {1, 2, 3, 4, 5}
