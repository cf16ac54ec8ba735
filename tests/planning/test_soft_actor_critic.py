"""One update of the planner, recomputed in float64 NumPy from the weights and the drawn noise."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from phimu.errors import InputError
from phimu.planning.soft_actor_critic import Regulariser, SoftActorCritic
from phimu.policies import TanhGaussian
from phimu.types import Batch, Spec

SPEC = Spec(3, 2)
B, FEATURES, RATE = 6, 5, 1.0
MIX = np.random.default_rng(9).normal(size=(5, FEATURES))  # phi = tanh((s, a) MIX)


def phi(observation, action):
    return jnp.tanh(jnp.concatenate([observation, action], axis=-1) @ MIX.astype(np.float32))


class PlainDescent(SoftActorCritic):
    """The planner with a step of minus the gradient, so that a test can read the gradient off."""

    def optimisers(self):
        return (optax.sgd(RATE),) * 3


SETTINGS = PlainDescent(
    critic="linear",
    actor_sizes=(4,),
    discount=0.9,
    target_rate=0.1,
    initial_entropy_weight=0.3,
    target_entropy=-1.0,
)


def batch_of(seed=0, terminated=None):
    rng = np.random.default_rng(seed)
    flags = np.array([0, 1, 0, 0, 1, 0]) if terminated is None else np.full(B, terminated)
    return Batch(
        observation=rng.normal(size=(B, 3)).astype(np.float32),
        action=rng.uniform(-1, 1, (B, 2)).astype(np.float32),
        reward=rng.normal(size=B).astype(np.float32),
        next_observation=rng.normal(size=(B, 3)).astype(np.float32),
        terminated=flags.astype(np.float32),
        truncated=np.zeros(B, np.float32),
    )


@cache
def compiled(settings):
    return jax.jit(lambda state, batch, key: settings.update(state, phi, batch, key))


@cache
def start(settings):
    """A planner whose target critic differs from its critic."""
    state = settings.init(SPEC, FEATURES, jax.random.PRNGKey(0))
    return state._replace(slow_critic=jax.tree.map(lambda x: 0.5 * x + 0.2, state.slow_critic))


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def sample(actor, observation, noise):
    """(action [B, 2], log density [B]) of a tanh-Gaussian with one hidden layer."""
    w1, b1, w2, b2 = actor
    hidden = observation @ w1 + b1
    hidden = np.where(hidden > 0, hidden, np.exp(np.minimum(hidden, 0)) - 1)
    mean, raw = np.split(hidden @ w2 + b2, 2, axis=1)
    std = np.exp(-5 + 3.5 * (np.tanh(raw) + 1))
    before = mean + std * noise
    action = np.tanh(before)
    density = scipy.stats.norm.logpdf(before, mean, std) - np.log(1 - action**2)
    return action, density.sum(axis=1)


def q_values(critic, observation, action):
    heads = critic[:2], critic[2:]  # a weight [5, 1] and a bias [1] each
    features = np.tanh(np.concatenate([observation, action], axis=1) @ MIX)
    return np.stack([features @ weight[:, 0] + bias[0] for weight, bias in heads])


def noise_of(key):
    return np.asarray(jax.random.normal(key, (2, B, 2)), np.float64)


def target_of(state, batch, noise):
    """r + discount (1 - terminated) (min Q(s', a') - weight log pi(a'|s')), rows in a loop."""
    action, density = sample(float64(state.actor), batch.next_observation, noise)
    slow = q_values(float64(state.slow_critic), batch.next_observation, action)
    weight = np.exp(float(state.log_entropy_weight))
    target = np.zeros(B)
    for i in range(B):
        target[i] = batch.reward[i]
        if not batch.terminated[i]:
            target[i] += 0.9 * (min(slow[0, i], slow[1, i]) - weight * density[i])
    return target


def square(error, bound):
    """Huber's loss times two, from its definition."""
    error = abs(error)
    return error**2 if bound is None or error <= bound else 2 * bound * error - bound**2


@pytest.mark.parametrize("bound", [None, 0.5])
def test_critic_step_is_the_gradient_of_the_squared_td_error(slopes, bound):
    settings = replace(SETTINGS, error_bound=bound)
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    after, metrics = compiled(settings)(state, batch, key)
    target = target_of(state, batch, noise_of(key)[0])

    def loss(critic):
        both = q_values(critic, batch.observation, batch.action)
        squares = [square(both[i, j] - target[j], bound) for i in range(2) for j in range(B)]
        return sum(squares) / (2 * B)

    errors = abs(q_values(float64(state.critic), batch.observation, batch.action) - target)
    assert (errors > 0.5).any()
    assert (errors < 0.5).any()

    before = float64(state.critic)
    np.testing.assert_allclose(metrics["td_loss"], loss(before), rtol=1e-4)
    np.testing.assert_allclose(
        metrics["value"], q_values(before, batch.observation, batch.action).mean(), rtol=1e-4
    )
    for old, new, slope in zip(before, float64(after.critic), slopes(loss, before), strict=True):
        np.testing.assert_allclose(old - new, RATE * slope, rtol=1e-3, atol=1e-5)


def test_actor_step_is_the_gradient_of_the_entropy_regularised_value(slopes):
    """With the critic that was just updated, and the entropy weight of before the step."""
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    after, metrics = compiled(SETTINGS)(state, batch, key)
    critic, noise = float64(after.critic), noise_of(key)[1]

    def loss(actor):
        action, density = sample(actor, batch.observation, noise)
        both = q_values(critic, batch.observation, action)
        return sum(0.3 * density[i] - min(both[0, i], both[1, i]) for i in range(B)) / B

    before = float64(state.actor)
    np.testing.assert_allclose(metrics["policy_loss"], loss(before), rtol=1e-4)
    for old, new, slope in zip(before, float64(after.actor), slopes(loss, before), strict=True):
        np.testing.assert_allclose(old - new, RATE * slope, rtol=1e-3, atol=1e-5)


def test_entropy_weight_steps_by_the_distance_to_its_target():
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    after, metrics = compiled(SETTINGS)(state, batch, key)
    _, density = sample(float64(state.actor), batch.observation, noise_of(key)[1])
    entropy = -density.mean()
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-4)
    np.testing.assert_allclose(metrics["entropy_weight"], 0.3, rtol=1e-6)
    step = float(after.log_entropy_weight) - float(state.log_entropy_weight)
    np.testing.assert_allclose(step, -RATE * (entropy - -1.0), rtol=1e-4)


def test_target_critic_follows_its_recursion():
    step, state = compiled(SETTINGS), start(SETTINGS)
    slow = float64(state.slow_critic)
    for t in range(4):
        state, _ = step(state, batch_of(t), jax.random.PRNGKey(t))
        slow = [s + 0.1 * (f - s) for s, f in zip(slow, float64(state.critic), strict=True)]
    for computed, expected in zip(float64(state.slow_critic), slow, strict=True):
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6)


def test_terminated_transitions_do_not_look_at_what_follows():
    """Neither the next observation nor the target critic may matter, and otherwise both do."""
    step, key = compiled(SETTINGS), jax.random.PRNGKey(1)
    state = start(SETTINGS)
    wild = state._replace(slow_critic=jax.tree.map(lambda x: 100 * x, state.slow_critic))
    for terminated in (0.0, 1.0):
        batch = batch_of(terminated=terminated)
        elsewhere = batch._replace(next_observation=batch.next_observation + 1)
        losses = [
            float(step(planner, rows, key)[1]["td_loss"])
            for planner, rows in ((state, batch), (wild, batch), (state, elsewhere))
        ]
        assert (losses[0] == losses[1] == losses[2]) == bool(terminated)


@pytest.mark.parametrize(("aim", "sign"), [(-50.0, -1), (50.0, +1)])
def test_entropy_weight_falls_above_the_target_and_rises_below(aim, sign):
    """With the optimiser that runs really use."""
    settings = SoftActorCritic(critic="linear", actor_sizes=(4,), target_entropy=aim)
    state = settings.init(SPEC, FEATURES, jax.random.PRNGKey(0))
    after, _ = settings.update(state, phi, batch_of(), jax.random.PRNGKey(0))
    step = float(after.log_entropy_weight - state.log_entropy_weight)
    np.testing.assert_allclose(step, sign * 3e-4, rtol=1e-2)  # Adam's first step is its rate


@pytest.mark.parametrize(("extra", "stated"), [(None, -2.0), (1.0, -1.0), (2.5, 0.5)])
def test_target_entropy_is_minus_the_action_dimensions_by_default(extra, stated):
    """And what is added to it."""
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    by_default = replace(SETTINGS, target_entropy=None)
    if extra is not None:
        by_default = replace(by_default, extra_entropy=extra)
    stated = replace(SETTINGS, target_entropy=stated)
    weights = [
        float(s.update(state, phi, batch, key)[0].log_entropy_weight) for s in (by_default, stated)
    ]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("discount", [1.0, -0.1])
def test_a_discount_without_a_fixed_point_is_refused(discount):
    with pytest.raises(InputError, match="discount"):
        SoftActorCritic(discount=discount)


# Held near a behaviour policy


def far(observation, action, log_density):
    """Some divergence: it reads all three."""
    return ((action - 0.3 * observation[:, :2]) ** 2).sum(axis=1) + 0.5 * log_density


def regularised(settings, state, batch, key, weight=0.0, value_scale=None, value_penalty=False):
    regulariser = Regulariser(far, weight, value_scale, value_penalty)
    return jax.jit(lambda s, b, k: settings.update(s, phi, b, k, regulariser=regulariser))(
        state, batch, key
    )


@pytest.mark.parametrize("penalty", [False, True])
@pytest.mark.parametrize("entropy", [False, True])
def test_targets_of_q_with_and_without_entropy_and_divergence(entropy, penalty):
    settings = replace(SETTINGS, entropy_in_target=entropy)
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    _, metrics = regularised(settings, state, batch, key, 0.7, value_penalty=penalty)
    action, density = sample(float64(state.actor), batch.next_observation, noise_of(key)[0])
    value = q_values(float64(state.slow_critic), batch.next_observation, action).min(axis=0)
    if entropy:
        value = value - 0.3 * density
    if penalty:
        value = value - 0.7 * far(batch.next_observation, action, density)
    target = batch.reward + 0.9 * (1 - batch.terminated) * value
    both = q_values(float64(state.critic), batch.observation, batch.action)
    np.testing.assert_allclose(metrics["td_loss"], ((both - target) ** 2).mean(), rtol=1e-4)


def test_actor_step_holds_the_divergence(slopes):
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    after, metrics = regularised(SETTINGS, state, batch, key, 0.7)
    critic, noise = float64(after.critic), noise_of(key)[1]

    def parts(actor):
        action, density = sample(actor, batch.observation, noise)
        value = q_values(critic, batch.observation, action).min(axis=0)
        return (0.3 * density - value).mean(), far(batch.observation, action, density).mean()

    before = float64(state.actor)
    np.testing.assert_allclose(metrics["divergence"], parts(before)[1], rtol=1e-4)
    slope = slopes(lambda actor: parts(actor)[0] + 0.7 * parts(actor)[1], before)
    for old, new, expected in zip(before, float64(after.actor), slope, strict=True):
        np.testing.assert_allclose(old - new, RATE * expected, rtol=1e-3, atol=1e-5)


def test_a_divergence_without_weight_changes_nothing_that_is_learned():
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    held, _ = regularised(SETTINGS, state, batch, key)
    free, _ = compiled(SETTINGS)(state, batch, key)
    for one, other in zip(float64(held), float64(free), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_the_actor_sees_values_in_units_of_their_mean_size(slopes):
    """The size is a number to it, not something that it could make smaller."""
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    after, metrics = regularised(SETTINGS, state, batch, key, value_scale=2.5)
    critic, noise = float64(after.critic), noise_of(key)[1]
    before = float64(state.actor)

    def parts(actor):
        action, density = sample(actor, batch.observation, noise)
        return density, q_values(critic, batch.observation, action).min(axis=0)

    unit = 2.5 / np.abs(parts(before)[1]).mean()

    def loss(actor):
        density, value = parts(actor)
        return (0.3 * density - unit * value).mean()

    np.testing.assert_allclose(metrics["policy_loss"], loss(before), rtol=1e-4)
    for old, new, slope in zip(before, float64(after.actor), slopes(loss, before), strict=True):
        np.testing.assert_allclose(old - new, RATE * slope, rtol=1e-3, atol=1e-5)


def test_phi_of_the_batch_may_be_given():
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(5)
    here = phi(batch.observation, batch.action)
    given, _ = jax.jit(lambda s, b, k, h: SETTINGS.update(s, phi, b, k, h))(state, batch, key, here)
    computed, _ = compiled(SETTINGS)(state, batch, key)
    for one, other in zip(float64(given), float64(computed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_the_pull_is_the_gradient_of_the_td_loss_at_phi():
    """2 (Q - y) w / (2 B), summed over both heads, for targets by another phi."""
    state, batch, key = start(SETTINGS), batch_of(), jax.random.PRNGKey(1)
    here = phi(batch.observation, batch.action)
    _, metrics, pull = SETTINGS.update_and_pull(state, phi, phi, batch, key, here)
    target = target_of(state, batch, noise_of(key)[0])
    heads = float64(state.critic)
    expected = 0.0
    for weight, bias in (heads[:2], heads[2:]):
        error = np.asarray(here, np.float64) @ weight[:, 0] + bias[0] - target
        expected = expected + error[:, None] * weight[:, 0][None, :] / B
    np.testing.assert_allclose(pull, expected, rtol=1e-4, atol=1e-5)
    other = SETTINGS.update_and_pull(state, phi, lambda s, a: 0 * phi(s, a), batch, key, here)
    assert not np.isclose(other[1]["td_loss"], metrics["td_loss"])
    np.testing.assert_array_equal(other[1]["value"], metrics["value"])


def test_a_copied_target_is_the_critic_before_every_third_update():
    settings = replace(SETTINGS, target_every=3)
    state = settings.init(SPEC, FEATURES, jax.random.PRNGKey(0))
    target = float64(state.slow_critic)
    for number in range(1, 8):
        before = float64(state.critic)
        state, _ = compiled(settings)(state, batch_of(number), jax.random.PRNGKey(number))
        target = before if number % 3 == 0 else target
        for found, expected in zip(float64(state.slow_critic), target, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "bad",
    [
        {"target_rate": 0.0},
        {"initial_entropy_weight": 0.0},
        {"target_every": -1},
        {"error_bound": 0.0},
    ],
)
def test_bad_rates_and_weights_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        SoftActorCritic(**bad)


# The tanh-Gaussian


def gaussian(mean, raw, dims=2):
    """A policy whose mean and raw log standard deviation do not depend on the observation."""
    policy = TanhGaussian(1, dims, (), jax.random.PRNGKey(0))
    bias = jnp.concatenate(
        [jnp.broadcast_to(jnp.asarray(x, jnp.float32), (dims,)) for x in (mean, raw)]
    )
    layer = policy.network.layers[0]
    return eqx.tree_at(
        lambda p: (p.network.layers[0].weight, p.network.layers[0].bias),
        policy,
        (jnp.zeros_like(layer.weight), bias),
    )


def log_std(raw):
    return -5 + 3.5 * (np.tanh(raw) + 1)


@pytest.mark.parametrize(("mean", "raw"), [((0.3, -0.5), (0.2, 0.0)), ((1.0, 0.0), (-0.3, 0.4))])
def test_log_density_is_the_change_of_variables(mean, raw):
    action, density = gaussian(mean, raw).sample(jnp.zeros((4_000, 1)), jax.random.PRNGKey(3))
    action = np.asarray(action, np.float64)
    inside = (np.abs(action) < 0.99).all(axis=1)  # float32 leaves no digits of atanh beyond
    assert inside.mean() > 0.3
    before = np.arctanh(action[inside])
    std = np.exp(log_std(np.array(raw)))
    expected = scipy.stats.norm.logpdf(before, mean, std) - np.log(1 - action[inside] ** 2)
    np.testing.assert_allclose(np.asarray(density)[inside], expected.sum(axis=1), atol=2e-3)


def test_log_density_keeps_its_digits_in_the_tails():
    """1 - tanh(9)^2 is zero in float32."""
    key = jax.random.PRNGKey(0)
    _, density = gaussian(9.0, 0.0, dims=1).sample(jnp.zeros((200, 1)), key)
    noise = np.asarray(jax.random.normal(key, (200, 1)), np.float64)
    before = 9.0 + np.exp(log_std(0.0)) * noise
    # log(1 - tanh^2) = 2 log(2) - 2 log(e^x + e^-x)
    squash = 2 * np.log(2) - 2 * np.log(np.exp(before) + np.exp(-before))
    expected = scipy.stats.norm.logpdf(before, 9.0, np.exp(log_std(0.0))) - squash
    np.testing.assert_allclose(density, expected[:, 0], rtol=1e-5, atol=1e-4)


def test_density_integrates_to_one():
    policy = gaussian(0.3, 0.3, dims=1)
    action, density = policy.sample(jnp.zeros((50_000, 1)), jax.random.PRNGKey(0))
    order = np.argsort(action[:, 0])
    mass = np.trapezoid(
        np.exp(np.asarray(density, np.float64)[order]), np.asarray(action)[order, 0]
    )
    np.testing.assert_allclose(mass, 1.0, atol=5e-3)


def test_mode_is_the_squashed_mean_and_actions_are_in_range():
    policy = gaussian((2.0, -40.0), 1.0)
    observation = jnp.zeros((100, 1))
    np.testing.assert_allclose(policy.mode(observation)[0], np.tanh([2.0, -40.0]), rtol=1e-6)
    action, density = policy.sample(observation, jax.random.PRNGKey(0))
    assert np.abs(action).max() <= 1
    assert np.isfinite(density).all()
    _, spread = policy(observation)
    assert ((spread >= -5) & (spread <= 2)).all()
