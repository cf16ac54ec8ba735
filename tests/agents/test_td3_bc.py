"""TD3+BC, recomputed in float64 NumPy, and on sets with known answers."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

from phimu.agents.protocol import POLICY, phases
from phimu.agents.td3_bc import Td3Bc
from phimu.data.rows import split
from phimu.errors import InputError
from phimu.normalisation import RunningNormaliser

RATE = 1.0
HERE = np.linspace(-0.9, 0.9, 7)[:, None]


class PlainDescent(Td3Bc):
    """Steps of minus the gradient, so that a test can read the gradient off."""

    def optimisers(self):
        return optax.sgd(RATE), optax.sgd(RATE)


SETTINGS = PlainDescent(actor_sizes=(4, 3), critic_width=4, discount=0.9, target_rate=0.1)
QUICK = Td3Bc(
    actor_sizes=(32, 32),
    critic_width=32,
    target_rate=0.1,
    actor_learning_rate=3e-3,
    critic_learning_rate=1e-2,
)


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def equal(one, other):
    """Bit for bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def network(arrays, x):
    w1, b1, w2, b2, w3, b3 = arrays
    return np.maximum(np.maximum(x @ w1 + b1, 0) @ w2 + b2, 0) @ w3 + b3


def q_values(critic, observation, action):
    x = np.concatenate([observation, action], axis=1)
    return np.stack([network(critic[part], x)[:, 0] for part in (slice(6), slice(6, 12))])


def by_statistics(data):
    """The normaliser of a run on this set."""
    return RunningNormaliser(data.spec.observation_dim).of(data.latest(len(data)).observation)


@pytest.fixture(scope="module")
def step(walk, learn_once):
    """(before, after, metrics, batch, key of the noise) of the update with a number: 1 or 2."""
    state = SETTINGS.init(walk.spec, jax.random.PRNGKey(0))
    # Biases off zero, where ReLU has no slope, and slow copies that differ.
    critic, actor = (jax.tree.map(lambda x: x + 0.1, x) for x in (state.critic, state.slowly.actor))
    slow_actor, slow_critic = (jax.tree.map(lambda x: 0.5 * x, x) for x in (actor, critic))
    slowly = state.slowly._replace(actor=actor, slow_actor=slow_actor, slow_critic=slow_critic)
    learn = jax.jit(learn_once, static_argnums=(0, 1))
    state, steps = state._replace(critic=critic, slowly=slowly), []
    everything = np.asarray(walk.latest(len(walk)).observation, np.float64)
    seen_by = by_statistics(walk)
    for number in (1, 2):
        key = jax.random.PRNGKey(number)
        drawn = split(walk.sample(key).rows, walk.spec)
        batch = jax.tree.map(lambda x: np.asarray(x, np.float64), drawn)
        seen = [
            (x - everything.mean(axis=0)) / np.sqrt(everything.var(axis=0) + 1e-6)
            for x in (batch.observation, batch.next_observation)
        ]
        batch = batch._replace(observation=seen[0], next_observation=seen[1])
        after, metrics = learn(SETTINGS, "policy", state, walk, key, seen_by)
        steps.append((state, after, metrics, batch, key))
        state = after
    return lambda number: steps[number - 1]


@pytest.mark.parametrize("number", [1, 2])
def test_critic_step_is_the_gradient_of_the_squared_td_error(step, number, slopes):
    before, after, metrics, batch, key = step(number)
    noise = 0.2 * np.asarray(jax.random.normal(key, batch.action.shape), np.float64)
    action = np.tanh(network(float64(before.slowly.slow_actor), batch.next_observation))
    action = np.clip(action + np.clip(noise, -0.5, 0.5), -1, 1)
    slow = q_values(float64(before.slowly.slow_critic), batch.next_observation, action)
    target = batch.reward + 0.9 * (1 - batch.terminated) * slow.min(axis=0)

    def loss(critic):
        return ((q_values(critic, batch.observation, batch.action) - target) ** 2).mean()

    old = float64(before.critic)
    np.testing.assert_allclose(metrics["td_loss"], loss(old), rtol=1e-4)
    moved = zip(old, float64(after.critic), slopes(loss, old), strict=True)
    for was, new, slope in moved:
        np.testing.assert_allclose(was - new, RATE * slope, rtol=1e-3, atol=1e-4)


def test_actor_step_is_the_gradient_of_scaled_value_and_distance(step, slopes):
    before, after, metrics, batch, _ = step(2)
    critic = float64(after.critic)
    old = float64(before.slowly.actor)

    def parts(actor):
        action = np.tanh(network(actor, batch.observation))
        return q_values(critic, batch.observation, action)[0], (action - batch.action) ** 2

    scale = 2.5 / np.abs(parts(old)[0]).mean()

    def loss(actor):
        value, distance = parts(actor)
        return distance.mean() - scale * value.mean()

    np.testing.assert_allclose(metrics["policy_loss"], loss(old), rtol=1e-4)
    np.testing.assert_allclose(metrics["cloning_loss"], parts(old)[1].mean(), rtol=1e-4)
    for was, new, slope in zip(old, float64(after.slowly.actor), slopes(loss, old), strict=True):
        np.testing.assert_allclose(was - new, RATE * slope, rtol=1e-3, atol=1e-4)


def test_actor_and_slow_copies_change_at_every_second_update(step):
    before, after, *_ = step(1)
    assert equal(before.slowly, after.slowly)
    before, after, *_ = step(2)
    for slow, fast in (
        ("slow_actor", after.slowly.actor),
        ("slow_critic", after.critic),
    ):
        old, new = (float64(getattr(state.slowly, slow)) for state in (before, after))
        for was, now, ahead in zip(old, new, float64(fast), strict=True):
            np.testing.assert_allclose(now, was + 0.1 * (ahead - was), rtol=1e-5, atol=1e-6)


def test_the_actor_is_not_computed_when_it_is_not_due(walk, learn_once):
    """The compiled update holds a conditional; a select would compute both branches."""
    state = SETTINGS.init(walk.spec, jax.random.PRNGKey(0))
    learn = jax.jit(learn_once, static_argnums=(0, 1))
    lowered = learn.lower(SETTINGS, "policy", state, walk, jax.random.PRNGKey(0))
    program = lowered.compile().as_text()
    assert " conditional(" in program


def test_stays_near_the_set_and_improves_on_it(bandit, learned, modes):
    """Logged actions lie within 0.6 and reward grows with them; nothing is known beyond."""
    data = bandit(lambda s, a: 4 * a)
    seen = by_statistics(data)
    state, _ = learned(replace(QUICK, value_weight=0.1), data, 600, seen=seen)
    careful = modes(QUICK, state, HERE, seen)
    assert careful.min() > 0.05
    assert careful.max() < 0.6


def test_finds_the_best_action_inside_the_set(bandit, learned, modes):
    data = bandit(lambda s, a: -10 * (a - 0.2 * s) ** 2)
    seen = by_statistics(data)
    state, _ = learned(QUICK, data, 800, seen=seen)
    np.testing.assert_allclose(modes(QUICK, state, HERE, seen), 0.2 * HERE, atol=0.07)
    value = QUICK.q_value(state, seen(HERE.astype(np.float32)), (0.2 * HERE).astype(np.float32))
    np.testing.assert_allclose(value, 0.0, atol=0.1)


def test_one_phase_and_nothing_to_begin():
    assert phases(QUICK) == POLICY
    assert not hasattr(QUICK, "begin")


def test_an_actor_that_never_learns_is_refused():
    with pytest.raises(InputError, match="actor_every"):
        Td3Bc(actor_every=0)
