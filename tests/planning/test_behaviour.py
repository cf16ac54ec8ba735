"""Cloning and the divergences from a clone, against float64 NumPy and known densities."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from scipy.special import logsumexp

from phimu.errors import InputError
from phimu.planning.behaviour import (
    DIVERGENCES,
    BehaviourCloning,
    Mixture,
    Regularisation,
    cross_entropy,
    kl_primal,
)
from phimu.types import Spec

SPEC = Spec(3, 2)
B, K, RATE = 6, 5, 1.0


class PlainDescent(BehaviourCloning):
    """Steps of minus the gradient, so that a test can read the gradient off."""

    def optimiser(self):
        return optax.sgd(RATE)


SETTINGS = PlainDescent(behaviour_sizes=(4,))


def batch_of(seed=0):
    rng = np.random.default_rng(seed)
    observation = rng.normal(size=(B, 3)).astype(np.float32)
    action = rng.uniform(-1, 1, (B, 2)).astype(np.float32)
    action[0] = [1.0, -1.0]  # logged at the bounds, where atanh is infinite
    return observation, action


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def parameters_of(arrays, observation):
    w1, b1, w2, b2 = arrays
    out = np.maximum(observation @ w1 + b1, 0) @ w2 + b2
    logits, mean, raw = out.reshape(len(observation), 3, 2, K).transpose(1, 0, 2, 3)
    weight = np.exp(logits - logsumexp(logits, axis=-1, keepdims=True))
    return weight, mean, np.exp(-5 + 3.5 * (np.tanh(raw) + 1))


def density_of(parameters, before):
    """The log density of tanh(before), rows and dimensions in loops."""
    weight, mean, std = parameters
    total = np.zeros(len(before))
    for i in range(len(before)):
        for j in range(before.shape[1]):
            x = before[i, j]
            each = scipy.stats.norm.logpdf(x, mean[i, j], std[i, j])
            total[i] += logsumexp(each, b=weight[i, j]) - np.log(1 - np.tanh(x) ** 2)
    return total


def before_of(action):
    return np.arctanh(np.clip(action.astype(np.float64), -0.999, 0.999))


def drawn(policy, parameters, key):
    """Before the tanh, from the components and the noise that the update draws."""
    for_choice, for_noise = jax.random.split(key)
    weight, mean, std = parameters
    chosen = np.asarray(jax.random.categorical(for_choice, jnp.log(weight.astype(np.float32))))
    noise = np.asarray(jax.random.normal(for_noise, chosen.shape), np.float64)
    pick = [np.take_along_axis(x, chosen[..., None], -1)[..., 0] for x in (mean, std)]
    return pick[0] + pick[1] * noise, chosen, noise


@pytest.fixture(scope="module")
def start():
    return SETTINGS.init(SPEC, jax.random.PRNGKey(0))


def test_log_density_is_that_of_the_squashed_mixture(start):
    observation, action = batch_of()
    expected = density_of(parameters_of(float64(start.policy), observation), before_of(action))
    computed = start.policy.log_density(observation, action)
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)


def test_samples_have_the_density_they_say(start):
    observation, _ = batch_of()
    action, density = start.policy.sample(jnp.asarray(observation), jax.random.PRNGKey(1))
    assert np.abs(action).max() < 1
    again = start.policy.log_density(observation, action)
    inside = (np.abs(action) < 0.99).all(axis=1)
    assert inside.any()
    np.testing.assert_allclose(density[inside], again[inside], rtol=1e-3, atol=1e-3)


def test_density_integrates_to_one():
    policy = Mixture(Spec(1, 1), (), K, jax.random.PRNGKey(0))
    grid = np.tanh(np.linspace(-3.8, 3.8, 4_001)).astype(np.float32)[:, None]
    density = np.asarray(policy.log_density(np.full_like(grid, 0.3), grid), np.float64)
    np.testing.assert_allclose(np.trapezoid(np.exp(density), grid[:, 0]), 1.0, atol=5e-3)


def test_no_gaussian_is_narrower_than_it_may_be():
    """Data that is always the same action would narrow them without end."""
    settings = BehaviourCloning(
        behaviour_sizes=(4,), behaviour_entropy=-100.0, behaviour_least_log_std=-1.0
    )
    state, update = settings.init(SPEC, jax.random.PRNGKey(0)), jax.jit(settings.update)
    observation, _ = batch_of()
    for step in range(2_000):
        state, metrics = update(state, observation, np.full((B, 2), 0.3), jax.random.PRNGKey(step))
    log_std = state.policy(observation)[2]
    assert log_std.min() >= -1.0
    sharpest = scipy.stats.norm.logpdf(0, scale=np.exp(-1)) - np.log(1 - 0.3**2)
    assert float(metrics["behaviour_log_density"]) == pytest.approx(2 * sharpest, abs=0.05)


def test_step_is_the_gradient_of_the_entropy_regularised_likelihood(start, slopes):
    (observation, action), key = batch_of(), jax.random.PRNGKey(5)
    state = start._replace(log_entropy_weight=jnp.log(0.3))
    after, metrics = SETTINGS.update(state, observation, action, key)
    before = float64(state.policy)
    _, chosen, noise = drawn(state.policy, parameters_of(before, observation), key)

    def loss(arrays):
        """The components stay those that were chosen; their means and spreads move."""
        weight, mean, std = parameters_of(arrays, observation)
        pick = [np.take_along_axis(x, chosen[..., None], -1)[..., 0] for x in (mean, std)]
        own = density_of((weight, mean, std), pick[0] + pick[1] * noise)
        logged = density_of((weight, mean, std), before_of(action))
        return sum(0.3 * own[i] - logged[i] for i in range(B)) / B

    np.testing.assert_allclose(metrics["behaviour_loss"], loss(before), rtol=1e-4)
    for old, new, slope in zip(before, float64(after.policy), slopes(loss, before), strict=True):
        np.testing.assert_allclose(old - new, RATE * slope, rtol=2e-3, atol=2e-3)


def test_entropy_weight_steps_by_the_distance_to_its_target(start):
    (observation, action), key = batch_of(), jax.random.PRNGKey(5)
    after, metrics = SETTINGS.update(start, observation, action, key)
    parameters = parameters_of(float64(start.policy), observation)
    entropy = -density_of(parameters, drawn(start.policy, parameters, key)[0]).mean()
    np.testing.assert_allclose(metrics["behaviour_entropy"], entropy, rtol=1e-4)
    np.testing.assert_allclose(after.log_entropy_weight, -RATE * (entropy - -2.0), rtol=1e-4)


def test_learning_rate_falls_at_nine_tenths_and_at_nineteen_twentieths():
    settings = BehaviourCloning(behaviour_updates=100, behaviour_learning_rate=1.0)
    optimiser, rates = settings.optimiser(), []
    weight = jnp.zeros(())
    state = optimiser.init(weight)
    for _ in range(100):
        step, state = optimiser.update(jnp.ones(()), state)  # Adam's step of 1 is its rate
        rates.append(-float(step))
    np.testing.assert_allclose(rates, [1.0] * 90 + [0.1] * 5 + [0.01] * 5, rtol=1e-3)


def test_clone_of_a_bimodal_behaviour():
    """a = +-0.6 + noise whatever s is: one Gaussian would put its mass between them."""
    rng = np.random.default_rng(0)
    settings = BehaviourCloning(300, (32,), behaviour_learning_rate=1e-2)
    observation = rng.normal(size=(512, 1)).astype(np.float32)
    before = rng.choice([-0.7, 0.7], (512, 1)) + 0.1 * rng.normal(size=(512, 1))
    action = np.tanh(before).astype(np.float32)

    @jax.jit
    def learn(state, key):
        def one(state, key):
            return settings.update(state, observation, action, key)[0], None

        return jax.lax.scan(one, state, jax.random.split(key, 300))[0]

    policy = learn(settings.init(Spec(1, 1), jax.random.PRNGKey(0)), jax.random.PRNGKey(1)).policy
    known = [scipy.stats.norm.pdf(before, mean, 0.1) for mean in (-0.7, 0.7)]
    truth = np.log(sum(known) / 2) - np.log(1 - np.tanh(before) ** 2)
    found = policy.log_density(observation, action)
    assert np.mean(truth) - np.mean(found) < 0.1  # in nats
    own, _ = policy.sample(jnp.asarray(observation), jax.random.PRNGKey(2))
    assert 0.3 < np.mean(np.asarray(own) > 0) < 0.7
    assert np.mean(np.abs(own) < 0.3) < 0.03


def test_divergences(start):
    observation, action = batch_of()
    log_pi = np.linspace(-1, 1, B).astype(np.float32)
    log_b = density_of(parameters_of(float64(start.policy), observation), before_of(action))
    for divergence, expected in ((cross_entropy, -log_b), (kl_primal, log_pi - log_b)):
        computed = divergence(start.policy)(observation, action, log_pi)
        np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_planner_is_handed_the_divergence_from_the_clone_and_its_weights(start, name):
    observation, action = batch_of()
    log_pi = np.linspace(-1, 1, B).astype(np.float32)
    held = Regularisation(name, 0.7, value_scale=2.5, value_penalty=True).near(start.policy)
    assert (held.weight, held.value_scale, held.value_penalty) == (0.7, 2.5, True)
    expected = DIVERGENCES[name](start.policy)(observation, action, log_pi)
    np.testing.assert_array_equal(held.divergence(observation, action, log_pi), expected)


@pytest.mark.parametrize("bad", [{"behaviour_weight": -1.0}, {"value_scale": 0.0}])
def test_bad_weights_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        Regularisation(**bad)


@pytest.mark.parametrize("field", ["behaviour_updates", "behaviour_components"])
def test_nothing_to_learn_is_refused(field):
    with pytest.raises(InputError, match=field):
        replace(BehaviourCloning(), **{field: 0})
