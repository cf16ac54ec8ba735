"""GAE against a plain float64 loop, and the values that it takes at the ends of lambda."""

import jax.numpy as jnp
import numpy as np
import pytest

from phimu.planning.advantages import gae, standardised
from phimu.types import Batch

STEPS, ENVS = 40, 3


def rows(seed=0, ends=0.15):
    """(batch, V(s), V(s')) of several environments, with ends of both kinds."""
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, STEPS, ENVS)).astype(np.float32)
    kind = rng.uniform(size=(STEPS, ENVS))
    terminated, truncated = kind < ends, (kind > ends) & (kind < 2 * ends)
    assert ends == 0 or (terminated.any(axis=0) & truncated.any(axis=0)).all()
    nothing = np.zeros((STEPS, ENVS, 1), np.float32)
    columns = nothing, nothing, reward, nothing, terminated, truncated
    return Batch(*(np.asarray(x, np.float32) for x in columns)), value, next_value


def by_loop(batch, value, next_value, discount, gae_lambda, bootstrap_time_limits):
    """One environment at a time, from its last row to its first, in float64."""
    out = np.zeros((STEPS, ENVS))
    for env in range(ENVS):
        later = 0.0
        for t in reversed(range(STEPS)):
            terminated, truncated = batch.terminated[t, env] > 0, batch.truncated[t, env] > 0
            after = float(next_value[t, env])
            if terminated or (truncated and not bootstrap_time_limits):
                after = 0.0
            error = float(batch.reward[t, env]) + discount * after - float(value[t, env])
            if terminated or truncated:
                later = 0.0
            later = error + discount * gae_lambda * later
            out[t, env] = later
    return out


@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_it_is_the_backward_recursion(gae_lambda, bootstrap):
    given = rows()
    settings = 0.97, gae_lambda, bootstrap
    np.testing.assert_allclose(gae(*given, *settings), by_loop(*given, *settings), atol=1e-5)


def test_the_time_limit_is_a_choice():
    """Both ways differ at time limits and before them, never where nothing was cut."""
    batch, *values = rows()
    with_value, without = (np.asarray(gae(batch, *values, 0.9, 0.5, way)) for way in (True, False))
    cut = batch.truncated > 0
    expected = 0.9 * values[1][cut]
    np.testing.assert_allclose((with_value - without)[cut], expected, atol=1e-5)
    # After the last cut of an environment nothing differs.
    for env in range(ENVS):
        last = np.flatnonzero(cut[:, env])[-1]
        np.testing.assert_array_equal(with_value[last + 1 :, env], without[last + 1 :, env])


def test_lambda_0_is_the_td_error():
    batch, value, next_value = rows()
    error = batch.reward + 0.9 * (1 - batch.terminated) * next_value - value
    np.testing.assert_allclose(gae(batch, value, next_value, 0.9, 0.0), error, atol=1e-6)


def test_lambda_1_is_the_return_minus_the_value():
    """V(s') of one row is V(s) of the next, as it is when nothing ends."""
    batch, value, _ = rows(ends=0.0)
    next_value = np.concatenate([value[1:], [[2.0, -1.0, 0.5]]]).astype(np.float32)
    discounts = 0.9 ** np.arange(STEPS)[:, None]
    found = gae(batch, value, next_value, 0.9, 1.0)
    for t in (0, 7, STEPS - 1):
        left = STEPS - t
        rewards = (discounts[:left] * batch.reward[t:]).sum(axis=0)
        expected = rewards + 0.9**left * next_value[-1] - value[t]
        np.testing.assert_allclose(found[t], expected, atol=1e-5)


def test_without_values_it_is_the_reward_to_go():
    batch, value, _ = rows(ends=0.0)
    zero = np.zeros_like(value)
    expected = np.cumsum(batch.reward[::-1], axis=0)[::-1]
    np.testing.assert_allclose(gae(batch, zero, zero, 1.0, 1.0), expected, atol=1e-4)


def test_environments_do_not_touch_each_other():
    batch, value, next_value = rows()
    together = gae(batch, value, next_value, 0.9, 0.8)
    for env in range(ENVS):
        own = Batch(*(x[:, env : env + 1] for x in batch))
        alone = gae(own, value[:, env : env + 1], next_value[:, env : env + 1], 0.9, 0.8)
        np.testing.assert_array_equal(together[:, env], alone[:, 0])


def test_standardised():
    found = standardised(jnp.asarray(np.random.default_rng(0).normal(3, 5, (7, 4)), jnp.float32))
    np.testing.assert_allclose([jnp.mean(found), jnp.std(found)], [0.0, 1.0], atol=1e-6)
    np.testing.assert_array_equal(standardised(jnp.full((7, 4), 2.5)), 0.0)
