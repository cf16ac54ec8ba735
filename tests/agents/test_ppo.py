"""PPO: its loss against NumPy in float64, its step size, and a whole update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents import preset
from phimu.agents.ppo import Ppo, Rows
from phimu.errors import InputError
from phimu.planning.value_function import ValueFunction
from phimu.policies import Gaussian
from phimu.types import Batch, Feed, Spec

SPEC = Spec(3, 2)
KEY = jax.random.PRNGKey(0)
AGENT = Ppo(
    actor_sizes=(8,),
    epochs=2,
    minibatches=3,
    ratio_clip=0.1,
    critic=ValueFunction(critic_sizes=(8,), critic_epochs=2, critic_minibatches=3),
)
UPDATE = jax.jit(AGENT.update, static_argnums=0)


def linear(rng):
    """A policy without hidden layers, whose loss is short to write down."""
    actor = Gaussian(*SPEC[:2], (), KEY)
    weight, log_std = 0.5 * rng.normal(size=(3, 2)), 0.3 * rng.normal(size=2)
    network = jax.tree.map(jnp.asarray, actor.network)
    put = [jnp.asarray(x, jnp.float32) for x in (weight, log_std)]
    actor = jax.tree_util.tree_unflatten(
        jax.tree.structure(actor), [put[0], network.layers[0].bias, put[1]]
    )
    return actor, [weight, np.zeros(2), log_std]


def log_density(arrays, observation, action):
    weight, bias, log_std = arrays
    noise = (action - observation @ weight - bias) * np.exp(-log_std)
    return np.sum(-0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi), axis=1)


def clipped_loss(arrays, observation, action, advantage, old, clip):
    ratio = np.exp(log_density(arrays, observation, action) - old)
    bound = np.clip(ratio, 1 - clip, 1 + clip)
    return -np.mean(np.minimum(ratio * advantage, bound * advantage))


@pytest.fixture
def problem():
    """A policy and rows that an older one has made, some beyond the clip on either side."""
    rng = np.random.default_rng(0)
    actor, arrays = linear(rng)
    observation, action = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    advantage = rng.normal(size=20)
    old = log_density(arrays, observation, action) + rng.normal(0, 0.2, 20)
    given = observation, action, advantage, old
    return actor, arrays, given, Rows(*(jnp.asarray(x, jnp.float32) for x in given))


def test_the_loss_and_its_gradient_are_the_clipped_surrogate(problem, slopes):
    actor, arrays, given, rows = problem
    ratio = np.exp(log_density(arrays, *given[:2]) - given[3])
    assert (ratio > 1.1).any()
    assert (ratio < 0.9).any()
    assert (np.abs(ratio - 1) < 0.1).any()
    loss, found = jax.value_and_grad(AGENT.loss)(actor, rows)
    expected = clipped_loss(arrays, *given, 0.1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    by_hand = slopes(lambda moved: clipped_loss(moved, *given, 0.1), arrays)
    for here, there in zip(jax.tree.leaves(found), by_hand, strict=True):
        np.testing.assert_allclose(here, there, atol=1e-5)


def test_at_ratio_one_it_is_the_plain_policy_gradient(problem):
    actor, _, _, rows = problem
    old = actor.log_density(rows.observation, rows.action)

    def plain(actor):
        return -jnp.mean(actor.log_density(rows.observation, rows.action) * rows.advantage)

    found = jax.grad(AGENT.loss)(actor, rows._replace(log_density=old))
    expected = jax.tree.leaves(jax.grad(plain)(actor))
    for here, there in zip(jax.tree.leaves(found), expected, strict=True):
        np.testing.assert_allclose(here, there, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "pulls"),
    [(1.2, 1.0, False), (0.8, 1.0, True), (1.2, -1.0, True), (0.8, -1.0, False), (1.05, 1.0, True)],
)
def test_the_clip_stops_only_what_has_gone_far_enough(problem, ratio, advantage, pulls):
    actor, _, _, rows = problem
    old = actor.log_density(rows.observation, rows.action) - np.log(ratio)
    rows = rows._replace(log_density=old, advantage=jnp.full(20, advantage))
    found = jax.tree.leaves(jax.grad(AGENT.loss)(actor, rows))
    assert any(np.abs(x).max() > 0 for x in found) == pulls


def test_the_step_size_falls_with_the_steps():
    agent = Ppo(actor_learning_rate=3e-4, decay_steps=200_000)
    for steps, share in ((0, 1.0), (50_000, 0.75), (200_000, 0.0), (300_000, 0.0)):
        np.testing.assert_allclose(agent._learning_rate(jnp.int32(steps)), 3e-4 * share, rtol=1e-6)
    steady = Ppo(decay_steps=0)
    np.testing.assert_allclose(steady._learning_rate(jnp.int32(10**9)), 3e-4, rtol=1e-6)


def rows_in_order(reward):
    """[T, envs] transitions with this reward of (s, a), none of which ends."""
    rng = np.random.default_rng(1)
    observation, following = rng.normal(size=(2, 12, 2, 3))
    action = rng.normal(size=(12, 2, 2))
    nothing = np.zeros((12, 2))
    columns = observation, action, reward(observation, action), following, nothing, nothing
    return Batch(*(jnp.asarray(x, jnp.float32) for x in columns))


def test_an_update_prefers_what_was_better_than_expected():
    batch = rows_in_order(lambda s, a: 10 * a[..., 0])
    state = AGENT.init(SPEC, KEY)
    after, metrics = UPDATE("policy", state, Feed(batch), KEY)
    moved = after.actor.mode(batch.observation) - state.actor.mode(batch.observation)
    assert float(jnp.mean(moved[..., 0])) > 1e-4
    assert int(after.steps) == 24
    assert metrics["divergence"] > 0
    # Twelve steps in all, six of each network.
    counts = [int(x) for x in jax.tree.leaves(after.actor_optimiser) if x.ndim == 0]
    assert counts == [6]


def test_without_advantages_the_policy_stays():
    """A reward that is the same everywhere, and values of which nothing is bootstrapped."""
    batch = rows_in_order(lambda s, a: np.ones(s.shape[:2]))
    batch = batch._replace(observation=jnp.zeros_like(batch.observation))
    batch = batch._replace(terminated=jnp.ones_like(batch.terminated))
    state = AGENT.init(SPEC, KEY)
    after, _ = UPDATE("policy", state, Feed(batch), KEY)
    for here, there in zip(jax.tree.leaves(after.actor), jax.tree.leaves(state.actor), strict=True):
        np.testing.assert_array_equal(here, there)


def test_presets_are_the_published_settings():
    settings, schedule = preset("ppo", "mbbl")
    assert (settings.actor_sizes, settings.critic.critic_sizes) == ((64, 64), (64, 64))
    assert (settings.epochs, settings.minibatches, settings.ratio_clip) == (10, 10, 0.1)
    assert (settings.actor_learning_rate, settings.decay_steps) == (3e-4, 200_000)
    assert (settings.critic.discount, settings.critic.gae_lambda) == (0.99, 0.95)
    assert (settings.critic.critic_epochs, settings.critic.critic_minibatches) == (20, 10)
    assert settings.critic.critic_betas == (0.5, 0.99)
    assert (settings.critic.critic_learning_rate, settings.critic.critic_epsilon) == (3e-4, 1e-4)
    assert not settings.critic.bootstrap_time_limits
    assert (schedule.batch_size, schedule.normalise_observations) == (2_000, True)
    settings, schedule = preset("ppo", "original")
    assert (settings.epochs, settings.minibatches, settings.ratio_clip) == (10, 32, 0.2)
    assert (schedule.batch_size, settings.critic.gae_lambda) == (2_048, 0.95)


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"minibatches": 0}, {"ratio_clip": 1.0}])
def test_bad_settings_are_refused_by_name(bad):
    (name, value), *_ = bad.items()
    with pytest.raises(InputError, match=f"{name} is {value}"):
        Ppo(**bad)
