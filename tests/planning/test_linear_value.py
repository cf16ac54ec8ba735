"""The linear V(s, t): its features, advantages and regression in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from phimu.errors import InputError
from phimu.planning.linear_value import LinearValue, features
from phimu.types import Batch, Spec


def rows(steps=12, places=3, seed=0):
    rng = np.random.default_rng(seed)
    shape = steps, places
    columns = [rng.normal(size=(*shape, n)) for n in (2, 1)]
    columns += [rng.normal(size=shape), rng.normal(size=(*shape, 2))]
    terminated = rng.uniform(size=shape) < 0.1
    truncated = ~terminated & (rng.uniform(size=shape) < 0.1)
    age = np.zeros(shape)
    for t in range(1, steps):
        age[t] = np.where((terminated | truncated)[t - 1], 0.0, age[t - 1] + 1.0)
    assert terminated.any()
    assert truncated.any()
    return Batch(*columns, terminated, truncated), age


def in_float32(batch):
    return Batch(*(jnp.asarray(x, jnp.float32) for x in batch))


def features_by_hand(observation, age):
    o, t = np.clip(observation, -10, 10), age[..., None] / 100
    return np.concatenate([o, o**2, t, t**2, t**3, np.ones_like(t)], axis=-1)


def test_features_are_the_published_ones():
    observation, age = np.array([[3.0, -20.0]]), np.array([250.0])
    found = features(jnp.asarray(observation), jnp.asarray(age))
    expected = [[3.0, -10.0, 9.0, 100.0, 2.5, 6.25, 15.625, 1.0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_advantages_and_returns_by_hand(bootstrap):
    """Each row's sums followed to the end of its episode, or to the end of the rows."""
    batch, age = rows()
    settings = LinearValue(0.9, 0.7, bootstrap)
    coefficients = np.random.default_rng(1).normal(size=8)
    value = features_by_hand(batch.observation, age) @ coefficients
    after = features_by_hand(batch.next_observation, age + 1) @ coefficients
    dead = batch.terminated if bootstrap else batch.terminated | batch.truncated
    after = np.where(dead, 0.0, after)
    expected, totals = np.zeros((2, *age.shape))
    for t, place in np.ndindex(*age.shape):
        sums, weight = np.zeros(2), np.ones(2)
        for k in range(t, len(age)):
            error = batch.reward[k, place] + 0.9 * after[k, place] - value[k, place]
            sums += weight * error
            weight *= [0.9 * 0.7, 0.9]
            if batch.terminated[k, place] or batch.truncated[k, place]:
                break
        expected[t, place], totals[t, place] = sums[0], sums[1] + value[t, place]
    inputs = jnp.asarray(coefficients, jnp.float32), in_float32(batch), jnp.asarray(age)
    advantage, target = settings.advantages(*inputs)
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(target, totals, rtol=1e-4, atol=1e-4)


def test_without_values_and_discount_a_target_is_the_rest_of_the_rewards():
    batch, age = rows(steps=5)
    never = np.zeros(age.shape, bool)
    batch = in_float32(batch._replace(terminated=never, truncated=never))
    settings = LinearValue(discount=1.0, gae_lambda=1.0)
    advantage, target = settings.advantages(settings.init(Spec(2, 1)), batch, jnp.asarray(age))
    rest = np.cumsum(np.asarray(batch.reward)[::-1], axis=0)[::-1]
    np.testing.assert_allclose(advantage, rest, rtol=1e-5)
    np.testing.assert_allclose(target, rest, rtol=1e-5)


def test_the_regression_is_the_one_of_numpy():
    """Long episodes, whose cubes of time are a million times the smallest column."""
    rng = np.random.default_rng(0)
    observation, age = rng.normal(size=(4_000, 2)) * [1.0, 0.01], rng.integers(0, 1_000, 4_000)
    x = features_by_hand(observation, age.astype(float))
    target = x @ rng.normal(size=8) + rng.normal(size=4_000)
    length = np.sqrt(np.mean(x**2, axis=0))
    scaled = x / length
    gram = scaled.T @ scaled / len(x) + 1e-5 * np.eye(8)
    expected = x @ (np.linalg.solve(gram, scaled.T @ target / len(x)) / length)
    inputs = (jnp.asarray(array, jnp.float32) for array in (observation, age, target))
    settings = LinearValue()
    seen, times, wanted = inputs
    found = settings(settings.fit(seen, times, wanted), seen, times)
    spread = target.std()
    assert np.abs(np.asarray(found) - expected).max() < 2e-3 * spread
    plain = x @ np.linalg.lstsq(x, target, rcond=None)[0]
    assert np.sqrt(np.mean((np.asarray(found) - plain) ** 2)) < 0.02 * spread  # the ridge is small


def test_bad_settings_are_named():
    for bad in ({"discount": 1.1}, {"gae_lambda": -0.1}, {"value_ridge": 0.0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            LinearValue(**bad)
