"""BEAR: the discrepancy on known samples, its losses in float64 NumPy, and what it learns."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phimu.agents.bear import Bear, discrepancy
from phimu.agents.protocol import POLICY, Phase
from phimu.errors import InputError
from phimu.planning.variational import GenerativeCloning
from phimu.types import Feed, Spec

SPEC, KEY = Spec(3, 2), jax.random.PRNGKey(1)
kernels = pytest.mark.parametrize("kernel", ["laplacian", "gaussian"])


class PlainDescent(Bear):
    """Steps of minus the gradient, so that a test can read the gradient off."""

    def optimisers(self):
        return (optax.sgd(1.0),) * 3


AGENT = PlainDescent(
    GenerativeCloning((4,)),
    kernel_scale=0.7,
    discrepancy_limit=0.1,
    smaller_weight=0.6,
    target_samples=5,
    actor_sizes=(4,),
    critic_sizes=(4,),
    discount=0.9,
    target_rate=0.1,
)


@jax.jit
def under(limit, state, batch):
    """The state after a step of actor and multiplier under this limit."""
    return replace(AGENT, discrepancy_limit=limit)._actor_step(state, batch, KEY, False)[0]


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def network(arrays, x):
    w1, b1, w2, b2 = arrays
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def q_values(critic, observation, action):
    x = np.concatenate([observation, action], axis=-1)
    return np.stack([network(critic[part], x)[..., 0] for part in (slice(4), slice(4, 8))])


def by_loops(x, y, kernel, scale):
    """The discrepancy of samples [N, A] and [M, A], pair by pair."""

    def mean(one, other):
        power = 1 if kernel == "laplacian" else 2
        pairs = [(np.abs(a - b) ** power).sum() for a in one for b in other]
        return np.mean(np.exp(-np.array(pairs) / (2 * scale)))

    return np.sqrt(mean(x, x) + mean(y, y) - 2 * mean(x, y) + 1e-6)


def drawn(actor, observation, count, key):
    """Samples of the actor before the tanh, in float64: [B, count, 2]."""
    mean, raw = np.split(network(actor, observation), 2, axis=-1)
    std = np.exp(-5 + 3.5 * (np.tanh(raw) + 1))
    noise = np.asarray(jax.random.normal(key, (len(observation), count, 2)), np.float64)
    return mean[:, None] + std[:, None] * noise


# The discrepancy


@kernels
def test_discrepancy_of_known_samples(kernel):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 5, 2))
    wanted = [by_loops(a, b, kernel, 1.3) for a, b in zip(x, y, strict=True)]
    found, back = (discrepancy(*pair, kernel, 1.3) for pair in ((x, y), (y, x)))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    np.testing.assert_allclose(back, found, rtol=1e-5)
    np.testing.assert_allclose(discrepancy(x, x, kernel, 1.3), 1e-3, rtol=1e-6)  # the 1e-6
    shifted = [discrepancy(x, x + shift, kernel, 1.3) for shift in (0.0, 0.1, 0.5, 2.0, 1e3)]
    assert (np.diff(shifted, axis=0) > 0).all()
    assert np.max(shifted) <= np.sqrt(2) + 1e-6
    # Of one sample and another at distance d it is sqrt(2 - 2 k(d)): 2 sigma, not 2 sigma^2.
    one = np.zeros((1, 1, 1))
    k = np.exp(-3.0 / 40) if kernel == "laplacian" else np.exp(-9.0 / 40)
    alone = discrepancy(one, one + 3.0, kernel, 20.0)
    np.testing.assert_allclose(alone, np.sqrt(2 - 2 * k + 1e-6), rtol=1e-5)


@kernels
def test_its_gradient_is_finite_where_samples_coincide(kernel):
    same = jnp.full((2, 4, 3), 0.3)
    slope = jax.grad(lambda x: jnp.sum(discrepancy(x, same, kernel, 20.0)))(same)
    assert np.isfinite(slope).all()


# One update


@pytest.fixture(scope="module")
def start():
    state, rng = AGENT.init(SPEC, jax.random.PRNGKey(0)), np.random.default_rng(2)

    def off(tree):
        return jax.tree.map(lambda x: x + rng.normal(size=x.shape).astype(np.float32) / 2, tree)

    learned = ("actor", "critic", "slow_critic")
    state = state._replace(**{name: off(getattr(state, name)) for name in learned})
    return state._replace(log_multiplier=jnp.asarray(0.4))


@pytest.fixture(scope="module")
def updated(start, few):
    """updated(phase, times): the state after an update whose critic is so many times as large."""
    update = jax.jit(
        lambda phase, state: AGENT.update(phase, state, Feed(few), KEY), static_argnums=0
    )

    def once(phase, times=1.0):
        critic = jax.tree.map(lambda x: times * x, start.critic)
        return update(phase, start._replace(critic=critic))

    return cache(once)


def test_critic_step_goes_to_the_best_of_the_actors_samples(start, updated, few, slopes):
    """max over five of 0.6 min + 0.4 max of both slow Q."""
    after, metrics = updated("policy")
    key = jax.random.split(KEY, 3)[1]
    action = np.tanh(drawn(float64(start.actor), few.next_observation, 5, key))
    rows = np.repeat(few.next_observation[:, None], 5, axis=1)
    both = q_values(float64(start.slow_critic), rows, action)
    value = (0.6 * both.min(axis=0) + 0.4 * both.max(axis=0)).max(axis=1)
    target = few.reward + 0.9 * (1 - few.terminated) * value

    def loss(critic):
        return ((q_values(critic, few.observation, few.action) - target) ** 2).mean()

    old = float64(start.critic)
    np.testing.assert_allclose(metrics["td_loss"], loss(old), rtol=1e-4)
    for was, new, slope in zip(old, float64(after.critic), slopes(loss, old), strict=True):
        np.testing.assert_allclose(was - new, slope, rtol=1e-3, atol=1e-3)
    moved = zip(*map(float64, (start.slow_critic, after.slow_critic, after.critic)), strict=True)
    for was, new, fast in moved:
        np.testing.assert_allclose(new, was + 0.1 * (fast - was), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("phase", ["warm_start", "policy"])
def test_actor_and_multiplier_steps_are_gradients_of_one_loss(start, updated, few, slopes, phase):
    """multiplier (discrepancy - limit) - min Q, without the last term in the warm start."""
    after, metrics = updated(phase)
    key = jax.random.split(KEY, 3)[2]
    for_behaviour, for_policy = jax.random.split(key)
    observation, critic = few.observation, float64(after.critic)
    rows = np.repeat(observation, 4, axis=0)
    latent = np.asarray(jax.random.normal(for_behaviour, (24, 4)), np.float64).clip(-0.5, 0.5)
    made = network(float64(after.behaviour.model.decoder), np.concatenate([rows, latent], axis=1))
    logged = made.reshape(6, 4, 2)  # before the tanh

    def parts(actor):
        own = drawn(actor, observation, 4, for_policy)
        apart = np.mean(
            [by_loops(*each, "laplacian", 0.7) for each in zip(logged, own, strict=True)]
        )
        return apart, q_values(critic, observation, np.tanh(own[:, 0])).min(axis=0).mean()

    def loss(actor):
        apart, value = parts(actor)
        return np.exp(0.4) * (apart - 0.1) - (value if phase == "policy" else 0.0)

    old = float64(start.actor)
    apart, _ = parts(old)
    np.testing.assert_allclose(metrics["policy_loss"], loss(old), rtol=1e-4)
    np.testing.assert_allclose(metrics["discrepancy"], apart, rtol=1e-4)
    for was, new, slope in zip(old, float64(after.actor), slopes(loss, old), strict=True):
        np.testing.assert_allclose(was - new, slope, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(after.log_multiplier, 0.4 + np.exp(0.4) * (apart - 0.1), rtol=1e-4)


def test_in_the_warm_start_the_actor_does_not_see_q(updated):
    for phase, same in (("warm_start", True), ("policy", False)):
        one, other = (float64(updated(phase, times)[0].actor) for times in (1.0, 3.0))
        equal = [np.array_equal(a, b) for a, b in zip(one, other, strict=True)]
        assert all(equal) == same


def test_the_multiplier_falls_within_the_limit_and_has_bounds(start, few):
    """A discrepancy is below 2 whatever the actor does; the test above has one beyond its limit."""
    for limit, given, wanted in ((2.0, 0.0, None), (2.0, -5.0, -5.0), (-1e4, 9.0, 10.0)):
        state = start._replace(log_multiplier=jnp.asarray(given))
        after = under(limit, state, few).log_multiplier
        assert after < given if wanted is None else after == wanted


# What it learns


def test_stays_where_the_data_is(bandit, learned, modes):
    """Logged actions lie within 0.6 and reward grows with them: there test_brac.py has SAC at 1."""
    agent = Bear(
        GenerativeCloning((32,), 1e-2, latent_weight=0.01, latent_clip=2.0),
        kernel="gaussian",
        kernel_scale=0.1,
        discrepancy_limit=0.4,
        warm_start_updates=0,
        target_samples=2,
        acting_samples=20,
        actor_sizes=(32,),
        critic_sizes=(32,),
        actor_learning_rate=1e-2,
        critic_learning_rate=1e-2,
        multiplier_learning_rate=3e-2,
    )
    here = np.linspace(-0.9, 0.9, 7)[:, None]
    state, metrics = learned(agent, bandit(lambda s, a: 4 * a), 400)
    careful = modes(agent, state, here)
    assert careful.max() < 0.7
    assert careful.min() > 0.05  # and better than the mean of the data
    np.testing.assert_allclose(np.mean(metrics["discrepancy"][-100:]), 0.4, atol=0.15)


def test_phases_and_bad_settings():
    assert Bear().phases == (Phase("warm_start", 40_000), *POLICY)
    assert Bear(warm_start_updates=0).phases == POLICY
    for name, value in (
        ("kernel_scale", 0.0),
        ("smaller_weight", -0.5),
        ("discrepancy_samples", 0),
        ("warm_start_updates", -1),
        ("discount", 1.0),
    ):
        with pytest.raises(InputError, match=f"{name} is {value}"):
            Bear(**{name: value})
