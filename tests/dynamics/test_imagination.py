"""Imagined episodes in models whose dynamics are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.dynamics.ensemble import Ensemble, Networks
from phimu.dynamics.imagination import FARTHEST, Imagination, returns, rollout
from phimu.types import Known

KEY = jax.random.PRNGKey(0)
NEVER = jnp.float32(1e6)  # a limit that no episode here reaches


def exact(matrix, drift=(0.0,) * 5, reward=None):
    """An ensemble whose networks have s' - s = matrix (s, a) + drift, each with its own drift."""
    rows = matrix if reward is None else np.concatenate([matrix, reward[None]])
    weight = jnp.broadcast_to(jnp.asarray(rows.T), (len(drift), *rows.T.shape))
    bias = np.zeros((len(drift), 1, len(rows)), np.float32)
    bias[:, 0, : len(matrix)] = np.asarray(drift)[:, None]
    networks = Networks((weight,), (jnp.asarray(bias),), None, None)
    return Ensemble(networks, jnp.zeros(rows.shape[1]), jnp.ones(rows.shape[1]))


class Proportional:
    """a = -s / 2."""

    def mode(self, observation):
        return -0.5 * observation

    def sample(self, observation, key):
        return self.mode(observation), jnp.zeros(observation.shape[:-1])


MOVE = np.float32([[0.0, 0.5]])  # s' = s + a / 2
STARTS = np.float32([[1.0], [-0.4], [0.1]])


def episodes(world, steps, places=3):
    """The batch and ages, in NumPy."""
    world = world._replace(starts=jnp.asarray(world.starts))
    found = rollout(world, Proportional(), places, steps, KEY)
    return jax.tree.map(np.asarray, found)


def test_imagined_episodes_are_those_of_the_system():
    known = Known(lambda s, a, after: -(s[..., 0] ** 2) + a[..., 0])
    batch, age = episodes(Imagination(exact(MOVE), known, STARTS, NEVER), 6)
    s = batch.observation[0]
    assert set(s[:, 0]) <= set(STARTS[:, 0])
    for step in range(6):
        a, after = -0.5 * s, 0.75 * s
        np.testing.assert_allclose(batch.observation[step], s, atol=1e-6)
        np.testing.assert_allclose(batch.action[step], a, atol=1e-6)
        np.testing.assert_allclose(batch.next_observation[step], after, atol=1e-6)
        np.testing.assert_allclose(batch.reward[step], (-(s**2) + a)[:, 0], atol=1e-6)
        s = after
    np.testing.assert_array_equal(age, np.broadcast_to(np.arange(6)[:, None], (6, 3)))
    assert not np.any(batch.terminated)
    assert not np.any(batch.truncated)


def test_another_episode_begins_where_one_ends():
    """0.75^5 < 0.25, 0.4 * 0.75^2 < 0.25 and 0.1 at once: so long does each start last."""
    known = Known(lambda s, a, after: s[..., 0], lambda after: jnp.abs(after[..., 0]) < 0.25)
    batch, age = episodes(Imagination(exact(MOVE), known, STARTS, NEVER), 40, places=8)
    lasts = {np.float32(1.0): 5, np.float32(-0.4): 2, np.float32(0.1): 1}
    assert batch.terminated.sum() > 40
    for place in range(8):
        at = 0
        while at + 5 <= 40:
            length = lasts[batch.observation[at, place, 0]]
            ended = batch.terminated[at : at + length, place]
            np.testing.assert_array_equal(ended, [0.0] * (length - 1) + [1.0])
            np.testing.assert_array_equal(age[at : at + length, place], np.arange(length))
            at += length


def test_an_episode_is_cut_at_the_limit_and_not_ended():
    world = Imagination(exact(MOVE), Known(lambda s, a, _: s[..., 0]), STARTS, jnp.float32(4.0))
    batch, age = episodes(world, 11)
    np.testing.assert_array_equal(batch.truncated[:, 0], np.arange(11) % 4 == 3)
    np.testing.assert_array_equal(age[:, 0], np.arange(11) % 4)
    assert set(batch.observation[[0, 4, 8]].ravel()) <= set(STARTS[:, 0])
    # s' of a row that was cut is where the model went, not the next start.
    np.testing.assert_allclose(batch.next_observation, 0.75 * batch.observation, atol=1e-6)


def test_imagined_rewards_are_learned_where_they_are_not_known():
    ensemble = exact(MOVE, reward=np.float32([2.0, -1.0]))
    batch, _ = episodes(Imagination(ensemble, None, STARTS, NEVER), 3)
    s, a = batch.observation[..., 0], batch.action[..., 0]
    np.testing.assert_allclose(batch.reward, 2 * s - a, atol=1e-5)


def test_the_model_sees_clipped_actions_and_nothing_runs_away():
    """Actions are kept as they were, for their density is that of what was sampled."""
    known = Known(lambda s, a, after: a[..., 0])
    starts = np.float32([[6.0]])
    batch, _ = episodes(Imagination(exact(MOVE), known, starts, NEVER), 2, places=1)
    np.testing.assert_allclose(batch.action[:, 0, 0], [-3.0, -2.75])
    np.testing.assert_allclose(batch.reward[:, 0], -1.0)
    np.testing.assert_allclose(batch.next_observation[:, 0, 0], [5.5, 5.0])
    away = exact(np.float32([[1e3, 0.0]]))
    batch, _ = episodes(Imagination(away, known, starts, NEVER), 30, places=1)
    assert batch.next_observation[-1] == FARTHEST


def test_each_step_of_imagined_episodes_is_by_one_network():
    """Networks that move by 1, 2, ... 5: every chain makes the same steps, and all occur."""
    ensemble = exact(np.float32([[0.0, 0.0]]), drift=(1.0, 2.0, 3.0, 4.0, 5.0))
    known = Known(lambda s, a, _: s[..., 0])
    batch, _ = episodes(Imagination(ensemble, known, STARTS, NEVER), 60)
    moved = (batch.next_observation - batch.observation)[..., 0]
    assert np.allclose(moved, moved[:, :1], atol=1e-4)
    assert set(np.round(moved[:, 0]).astype(int)) == {1, 2, 3, 4, 5}


def test_five_networks_are_wrong_by_less_than_one():
    """Each is wrong in its own direction; the task pays s."""
    drift = (0.4, -0.4, 0.2, -0.2, 0.0)
    gaps = []
    for own in (drift[:1], drift):
        known = Known(lambda s, a, _: s[..., 0])
        batch, _ = episodes(Imagination(exact(MOVE, own), known, STARTS, NEVER), 40, places=30)
        first = batch.observation[0, :, 0]
        real = np.sum(first * 0.75 ** np.arange(40)[:, None])
        gaps.append(abs(batch.reward.sum() - real) / 30)
    assert gaps[1] < gaps[0] / 3


@pytest.mark.parametrize(("limit", "ends"), [(1e6, False), (4.0, False), (1e6, True)])
def test_returns_are_of_each_network_alone(limit, ends):
    """By hand, one network and one start after the other, in float64."""
    drift, discount, steps = (0.1, -0.2), 0.9, 7
    over = (lambda after: after[..., 0] > 0.8) if ends else None  # 0.85 from the start at 1
    known = Known(lambda s, a, after: s[..., 0] ** 2 + a[..., 0] + after[..., 0], over)
    expected = []
    for own in drift:
        totals = []
        for start in np.float64(STARTS[:, 0]):
            s, total = start, 0.0
            for step in range(min(steps, int(limit))):
                a = -0.5 * s
                after = s + a / 2 + own
                total += discount**step * (s**2 + a + after)
                s = after
                if ends and after > 0.8:
                    break
            totals.append(total)
        expected.append(np.mean(totals))
    world = Imagination(exact(MOVE, drift), known, jnp.asarray(STARTS), jnp.float32(limit))
    found = returns(world, Proportional(), steps, discount)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    if (
        ends
    ):  # the start at 1 moves to 0.85 with the one drift, which is no end; 0.55 with the other
        assert found.shape == (2,)
