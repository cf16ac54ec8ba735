"""ReBRAC, recomputed in float64 NumPy, and on a set with a known answer."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

from phimu.agents.protocol import draw
from phimu.agents.rebrac import Rebrac
from phimu.errors import InputError
from phimu.types import Feed, Spec

RATE = 1.0
KEY = jax.random.PRNGKey(1)
NEXT = np.random.default_rng(5).uniform(-1, 1, (6, 2)).astype(np.float32)
LOGGED = np.array([1, 0, 1, 0, 1, 1], np.float32)  # the second and fifth rows are terminal


class PlainDescent(Rebrac):
    """Steps of minus the gradient, so that a test can read the gradient off."""

    def optimisers(self):
        return optax.sgd(RATE), optax.sgd(RATE)


AGENT = PlainDescent(
    actor_penalty=0.3,
    critic_penalty=0.7,
    actor_sizes=(4,),
    critic_sizes=(5, 4),
    discount=0.9,
    target_rate=0.1,
    actor_every=1,
)


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def network(arrays, x, layer_norm):
    *hidden, weight, bias = arrays
    for w, b in zip(hidden[::2], hidden[1::2], strict=True):
        x = x @ w + b
        if layer_norm:
            x = x - x.mean(axis=-1, keepdims=True)
            x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5)
        x = np.maximum(x, 0)
    return x @ weight + bias


def mode(actor, observation):
    return np.tanh(network(actor, observation, False))


def q_values(critic, observation, action):
    x = np.concatenate([observation, action], axis=-1)
    return np.stack([network(critic[part], x, True)[:, 0] for part in (slice(6), slice(6, 12))])


@pytest.fixture(scope="module")
def step(few):
    """(before, after, metrics) of one update of critic and actor."""
    state = AGENT.init(Spec(3, 2), jax.random.PRNGKey(0))
    rng = np.random.default_rng(2)
    off = lambda x: x + rng.normal(size=x.shape).astype(np.float32) / 5  # noqa: E731
    slowly = state.slowly
    actor, slow_actor = (jax.tree.map(off, slowly.actor) for _ in range(2))
    critic, slow_critic = (jax.tree.map(off, state.critic) for _ in range(2))
    slowly = slowly._replace(actor=actor, slow_actor=slow_actor, slow_critic=slow_critic)
    state = state._replace(critic=critic, slowly=slowly)
    feed = Feed(few, columns={"next_action": NEXT, "logged": LOGGED})
    after, metrics = jax.jit(lambda state: AGENT.update("policy", state, feed, KEY))(state)
    return state, after, metrics


def test_critic_step_goes_to_the_penalised_target(step, few, slopes):
    """r + discount (min Q~(s', a') - weight |a' - logged|^2), nothing where s' has no future."""
    before, after, metrics = step
    noise = np.clip(0.2 * np.asarray(jax.random.normal(KEY, (6, 2)), np.float64), -0.5, 0.5)
    action = np.clip(mode(float64(before.slowly.slow_actor), few.next_observation) + noise, -1, 1)
    value = q_values(float64(before.slowly.slow_critic), few.next_observation, action).min(axis=0)
    penalty = 0.7 * LOGGED * ((action - NEXT) ** 2).sum(axis=-1)
    target = few.reward + 0.9 * (1 - few.terminated) * (value - penalty)
    np.testing.assert_allclose(
        metrics["target_penalty"], ((1 - few.terminated) * penalty).mean(), rtol=1e-4
    )

    def loss(critic):
        return ((q_values(critic, few.observation, few.action) - target) ** 2).mean()

    old = float64(before.critic)
    np.testing.assert_allclose(metrics["td_loss"], loss(old), rtol=1e-4)
    for was, new, slope in zip(old, float64(after.critic), slopes(loss, old), strict=True):
        np.testing.assert_allclose(was - new, RATE * slope, rtol=1e-3, atol=1e-3)


def test_actor_step_is_the_gradient_of_penalty_and_relative_value(step, few, slopes):
    """The smaller Q over its mean size, and the distance summed over dimensions."""
    before, after, metrics = step
    critic, old = float64(after.critic), float64(before.slowly.actor)

    def parts(actor):
        action = mode(actor, few.observation)
        value = q_values(critic, few.observation, action).min(axis=0)
        return value, ((action - few.action) ** 2).sum(axis=-1)

    size = np.abs(parts(old)[0]).mean()

    def loss(actor):
        value, distance = parts(actor)
        return (0.3 * distance - value / size).mean()

    np.testing.assert_allclose(metrics["policy_loss"], loss(old), rtol=1e-4)
    np.testing.assert_allclose(metrics["cloning_loss"], parts(old)[1].mean(), rtol=1e-4)
    moved = zip(old, float64(after.slowly.actor), slopes(loss, old), strict=True)
    for was, new, slope in moved:
        np.testing.assert_allclose(was - new, RATE * slope, rtol=1e-3, atol=1e-3)
    for slow, fast in (("slow_actor", after.slowly.actor), ("slow_critic", after.critic)):
        was, new = (float64(getattr(state.slowly, slow)) for state in (before, after))
        for a, b, c in zip(was, new, float64(fast), strict=True):
            np.testing.assert_allclose(b, a + 0.1 * (c - a), rtol=1e-5, atol=1e-6)


def test_the_next_logged_action_is_that_of_the_row_after_in_the_episode(walk):
    """Every tenth row of the walk is an episode's last."""
    index = np.arange(len(walk))
    action, logged = (np.asarray(x) for x in walk.next_actions(index))
    of_rows = np.asarray(walk.latest(len(walk)).action)
    last = index % 10 == 9
    np.testing.assert_array_equal(logged, 1.0 - last)
    np.testing.assert_array_equal(action[~last], of_rows[index[~last] + 1])
    drawn = draw(AGENT, "policy", walk, KEY)
    sample = walk.sample(KEY)
    np.testing.assert_array_equal(drawn.rows, sample.rows)
    np.testing.assert_array_equal(drawn.columns["next_action"], action[sample.index])
    np.testing.assert_array_equal(drawn.columns["logged"], logged[sample.index])


def test_the_penalty_decides_how_far_it_goes_from_the_set(bandit, learned, modes):
    """Logged actions lie within 0.6 and reward grows with them; nothing is known beyond."""
    quick = Rebrac(
        actor_penalty=20.0,
        actor_sizes=(32,),
        critic_sizes=(32, 32),
        target_rate=0.1,
        actor_learning_rate=3e-3,
        critic_learning_rate=1e-2,
    )
    rising, here = bandit(lambda s, a: 4 * a), np.linspace(-0.9, 0.9, 7)[:, None]
    near, far = (
        modes(agent, learned(agent, rising, 300)[0], here)
        for agent in (quick, replace(quick, actor_penalty=0.01))
    )
    assert near.max() < 0.5
    assert near.min() > 0.0
    assert far.min() > 0.6


def test_bad_settings_are_refused_by_name():
    for name, value in (("actor_penalty", -1.0), ("critic_penalty", -0.1), ("actor_every", 0)):
        with pytest.raises(InputError, match=f"{name} is {value}"):
            Rebrac(**{name: value})
    with pytest.raises(InputError, match="discount is 1"):
        Rebrac(discount=1.0)
