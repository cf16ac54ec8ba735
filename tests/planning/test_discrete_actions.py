"""One update of the planner on discrete actions, recomputed in float64 NumPy from the weights."""

import math
from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phimu.planning.critics import of_every_action, smaller
from phimu.planning.soft_actor_critic import ENTROPY_SHARE, SoftActorCritic
from phimu.policies import Categorical
from phimu.types import Batch, Spec

N = 4  # actions
SPEC = Spec(3, N, discrete=True)
B, FEATURES, RATE = 6, 5, 1.0
MIX = np.random.default_rng(9).normal(size=(3 + N, FEATURES))  # phi = tanh((s, a) MIX)


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
    target_entropy=0.5,
)


def batch_of(seed=0):
    rng = np.random.default_rng(seed)
    return Batch(
        observation=rng.normal(size=(B, 3)).astype(np.float32),
        action=np.eye(N, dtype=np.float32)[rng.integers(N, size=B)],
        reward=rng.normal(size=B).astype(np.float32),
        next_observation=rng.normal(size=(B, 3)).astype(np.float32),
        terminated=np.array([0, 1, 0, 0, 1, 0], np.float32),
        truncated=np.zeros(B, np.float32),
    )


@cache
def start(settings):
    """A planner whose target critic differs from its critic, and whose policy is not uniform."""
    state = settings.init(SPEC, FEATURES, jax.random.PRNGKey(0))
    return state._replace(
        actor=jax.tree.map(lambda x: 3 * x + 0.1, state.actor),
        slow_critic=jax.tree.map(lambda x: 0.5 * x + 0.2, state.slow_critic),
    )


@cache
def updated(settings, seed=5):
    return jax.jit(lambda s, b, k: settings.update(s, phi, b, k))(
        start(settings), batch_of(), jax.random.PRNGKey(seed)
    )


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def chances_of(actor, observation):
    """pi(a|s) [B, N] of one hidden layer."""
    w1, b1, w2, b2 = actor
    hidden = observation @ w1 + b1
    hidden = np.where(hidden > 0, hidden, np.exp(np.minimum(hidden, 0)) - 1)
    weights = np.exp(hidden @ w2 + b2)
    return weights / weights.sum(axis=1, keepdims=True)


def q_value(critic, observation, action):
    """Of both heads at one pair."""
    features = np.tanh(np.concatenate([observation, action]) @ MIX)
    return [features @ weight[:, 0] + bias[0] for weight, bias in (critic[:2], critic[2:])]


def soft_value(chances, critic, observation, weight):
    """sum_a pi(a|s) (min Q(s, a) - weight log pi(a|s)), action by action."""
    total = 0.0
    for a in range(N):
        total += chances[a] * (
            min(q_value(critic, observation, np.eye(N)[a])) - weight * np.log(chances[a])
        )
    return total


def test_critic_step_is_the_gradient_of_the_squared_td_error(slopes):
    state, batch = start(SETTINGS), batch_of()
    after, metrics = updated(SETTINGS)
    chances = chances_of(float64(state.actor), batch.next_observation)
    slow = float64(state.slow_critic)
    target = [
        batch.reward[i]
        + 0.9
        * (1 - batch.terminated[i])
        * soft_value(chances[i], slow, batch.next_observation[i], 0.3)
        for i in range(B)
    ]

    def loss(critic):
        both = [q_value(critic, batch.observation[i], batch.action[i]) for i in range(B)]
        return sum((q - target[i]) ** 2 for i in range(B) for q in both[i]) / (2 * B)

    before = float64(state.critic)
    np.testing.assert_allclose(metrics["td_loss"], loss(before), rtol=1e-4)
    for old, new, slope in zip(before, float64(after.critic), slopes(loss, before), strict=True):
        np.testing.assert_allclose(old - new, RATE * slope, rtol=1e-3, atol=1e-5)


def test_actor_step_is_the_gradient_of_the_soft_value(slopes):
    """With the critic that was just updated, and the entropy weight of before the step."""
    state, batch = start(SETTINGS), batch_of()
    after, metrics = updated(SETTINGS)
    critic = float64(after.critic)

    def loss(actor):
        chances = chances_of(actor, batch.observation)
        return -sum(soft_value(chances[i], critic, batch.observation[i], 0.3) for i in range(B)) / B

    before = float64(state.actor)
    np.testing.assert_allclose(metrics["policy_loss"], loss(before), rtol=1e-4)
    for old, new, slope in zip(before, float64(after.actor), slopes(loss, before), strict=True):
        np.testing.assert_allclose(old - new, RATE * slope, rtol=1e-3, atol=1e-5)


def test_entropy_weight_steps_by_the_distance_to_its_target():
    state, batch = start(SETTINGS), batch_of()
    after, metrics = updated(SETTINGS)
    chances = chances_of(float64(state.actor), batch.observation)
    entropy = -(chances * np.log(chances)).sum(axis=1).mean()
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-4)
    step = float(after.log_entropy_weight) - float(state.log_entropy_weight)
    np.testing.assert_allclose(step, -RATE * (entropy - 0.5), rtol=1e-3)


def test_target_entropy_is_a_share_of_the_largest_by_default():
    stated = replace(SETTINGS, target_entropy=ENTROPY_SHARE * math.log(N))
    by_default = replace(SETTINGS, target_entropy=None)
    weights = [float(updated(each)[0].log_entropy_weight) for each in (stated, by_default)]
    assert weights[0] == weights[1]


def test_nothing_is_drawn():
    """All expectations are sums, so the key does not matter."""
    one, other = (float64(updated(SETTINGS, seed)[0]) for seed in (1, 2))
    for here, there in zip(one, other, strict=True):
        np.testing.assert_array_equal(here, there)


def test_every_action_is_judged_as_if_it_were_alone():
    state, observation = start(SETTINGS), batch_of().observation
    every = of_every_action(state.critic, phi, observation, N)
    assert every.shape == (B, N)
    for a in range(N):
        alone = smaller(state.critic, phi(observation, jnp.tile(jnp.eye(N)[a], (B, 1))))
        np.testing.assert_allclose(every[:, a], alone, rtol=1e-5)


# The categorical policy


@pytest.fixture(scope="module")
def policy():
    made = Categorical(2, 3, (4,), jax.random.PRNGKey(0))
    return jax.tree.map(lambda x: 5 * x, made)


def test_samples_have_the_chances_that_the_policy_says(policy):
    observation = jnp.tile(jnp.array([0.5, -1.0]), (20_000, 1))
    action, log_chance = policy.sample(observation, jax.random.PRNGKey(1))
    chances = np.exp(policy(observation[0]))
    np.testing.assert_allclose(chances.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(action.mean(axis=0), chances, atol=0.015)
    assert np.array_equal(np.unique(action), [0, 1])
    assert (action.sum(axis=1) == 1).all()
    np.testing.assert_allclose(np.exp(log_chance), np.asarray(action) @ chances, rtol=1e-5)


def test_the_mode_is_the_most_likely_action(policy):
    observation = jax.random.normal(jax.random.PRNGKey(2), (50, 2))
    mode = policy.mode(observation)
    np.testing.assert_array_equal(mode.argmax(axis=1), policy(observation).argmax(axis=1))
    assert len(set(mode.argmax(axis=1).tolist())) > 1
    np.testing.assert_array_equal(policy.mode(observation[0]), mode[0])
