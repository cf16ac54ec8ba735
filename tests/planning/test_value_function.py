"""V(s): its advantages, its targets, and what it is fitted to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.errors import InputError
from phimu.planning.advantages import gae
from phimu.planning.value_function import ValueFunction
from phimu.types import Batch, Spec

SPEC = Spec(2, 1)
KEY = jax.random.PRNGKey(0)


def test_advantages_and_targets_are_of_one_value():
    rng = np.random.default_rng(0)
    shape = 6, 2
    columns = [rng.normal(size=(*shape, n)) for n in (2, 1)]
    columns += [rng.normal(size=shape), rng.normal(size=(*shape, 2))]
    columns += [rng.uniform(size=shape) < 0.2, rng.uniform(size=shape) < 0.2]
    batch = Batch(*(jnp.asarray(x, jnp.float32) for x in columns))
    values = ValueFunction(discount=0.9, gae_lambda=0.6, bootstrap_time_limits=False)
    state = values.init(SPEC, KEY)
    advantage, target = values.advantages(state, batch)
    here, after = values(state, batch.observation), values(state, batch.next_observation)
    assert here.shape == shape
    np.testing.assert_allclose(advantage, gae(batch, here, after, 0.9, 0.6, False), atol=1e-6)
    np.testing.assert_allclose(target, advantage + here, atol=1e-6)


def test_it_is_fitted_to_its_targets():
    observation = np.random.default_rng(0).uniform(-1, 1, (256, 2)).astype(np.float32)
    target = jnp.asarray(observation[:, 0] * observation[:, 1])
    values = ValueFunction(critic_learning_rate=3e-3, critic_epochs=200, critic_minibatches=4)
    state, loss = jax.jit(values.fit)(values.init(SPEC, KEY), observation, target, KEY)
    assert float(loss) < 1e-3
    np.testing.assert_allclose(values(state, observation), target, atol=0.2)


def test_a_full_batch_step_is_one_of_adam():
    """By hand, in float64: after one step every moment is its gradient."""
    values = ValueFunction(
        critic_sizes=(),
        critic_learning_rate=0.1,
        critic_epochs=1,
        critic_minibatches=1,
        critic_betas=(0.5, 0.99),
        critic_epsilon=1e-4,
    )
    rng = np.random.default_rng(0)
    observation, target = rng.normal(size=(8, 2)), rng.normal(size=8)
    before = values.init(SPEC, KEY)
    arrays = jnp.asarray(observation, jnp.float32), jnp.asarray(target, jnp.float32)
    after, loss = values.fit(before, *arrays, KEY)
    weight = np.asarray(before.network.layers[0].weight, np.float64)[:, 0]
    error = observation @ weight - target
    np.testing.assert_allclose(loss, 0.5 * np.mean(error**2), rtol=1e-5)
    slope = observation.T @ error / 8
    moved = weight - 0.1 * slope / (np.abs(slope) + 1e-4)
    np.testing.assert_allclose(after.network.layers[0].weight[:, 0], moved, rtol=1e-5)


@pytest.mark.parametrize(
    "bad", [{"discount": 1.0}, {"gae_lambda": 1.1}, {"critic_epochs": 0}, {"critic_minibatches": 0}]
)
def test_bad_settings_are_refused_by_name(bad):
    (name, value), *_ = bad.items()
    with pytest.raises(InputError, match=f"{name} is {value}"):
        ValueFunction(**bad)
