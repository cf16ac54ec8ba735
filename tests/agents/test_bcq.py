"""BCQ: the bounds of its perturbation, its losses in float64 NumPy, and what it learns."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phimu.agents.bcq import Bcq, Perturbation, Perturbed
from phimu.agents.sac import concatenate
from phimu.errors import InputError
from phimu.planning.proposals import best_value
from phimu.planning.variational import GenerativeCloning
from phimu.types import Feed, Spec

SPEC, KEY = Spec(3, 2), jax.random.PRNGKey(1)


class PlainDescent(Bcq):
    """Steps of minus the gradient, so that a test can read the gradient off."""

    def optimisers(self):
        return optax.sgd(1.0), optax.sgd(1.0)


AGENT = PlainDescent(
    GenerativeCloning((4,)),
    perturbation=0.3,
    smaller_weight=0.6,
    target_samples=5,
    actor_sizes=(4,),
    critic_sizes=(4,),
    discount=0.9,
    target_rate=0.1,
)


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def network(arrays, x):
    w1, b1, w2, b2 = arrays
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def q_values(critic, observation, action):
    x = np.concatenate([observation, action], axis=-1)
    return np.stack([network(critic[part], x)[..., 0] for part in (slice(4), slice(4, 8))])


def moved(actor, observation, action):
    move = 0.3 * np.tanh(network(actor, np.concatenate([observation, action], axis=-1)))
    return np.clip(action + move, -1, 1)


def sampled(model, observation, count, key):
    """Actions of the behaviour's model: [B, count, 2]."""
    rows = np.repeat(observation, count, axis=0)
    latent = np.clip(np.asarray(jax.random.normal(key, (len(rows), 4)), np.float64), -0.5, 0.5)
    out = network(float64(model.decoder), np.concatenate([rows, latent], axis=-1))
    return np.tanh(out).reshape(len(observation), count, 2)


@pytest.fixture(scope="module")
def step(few):
    """(before, after, metrics) of one update."""
    state, rng = AGENT.init(SPEC, jax.random.PRNGKey(0)), np.random.default_rng(2)

    def off(tree):
        return jax.tree.map(lambda x: x + rng.normal(size=x.shape).astype(np.float32) / 2, tree)

    learned = ("actor", "slow_actor", "critic", "slow_critic")
    state = state._replace(**{name: off(getattr(state, name)) for name in learned})
    after, metrics = jax.jit(lambda state: AGENT.update("policy", state, Feed(few), KEY))(state)
    return state, after, metrics


def test_critic_step_goes_to_the_best_of_the_proposals(step, few, slopes):
    """max over five of 0.6 min + 0.4 max of both slow Q, of actions that the slow xi has moved."""
    before, after, metrics = step
    key = jax.random.split(KEY, 3)[1]
    action = sampled(after.behaviour.model, few.next_observation, 5, key)
    rows = np.repeat(few.next_observation[:, None], 5, axis=1)
    action = moved(float64(before.slow_actor), rows, action)
    both = q_values(float64(before.slow_critic), rows, action)
    value = (0.6 * both.min(axis=0) + 0.4 * both.max(axis=0)).max(axis=1)
    target = few.reward + 0.9 * (1 - few.terminated) * value

    def loss(critic):
        return ((q_values(critic, few.observation, few.action) - target) ** 2).mean()

    old = float64(before.critic)
    np.testing.assert_allclose(metrics["td_loss"], loss(old), rtol=1e-4)
    for was, new, slope in zip(old, float64(after.critic), slopes(loss, old), strict=True):
        np.testing.assert_allclose(was - new, slope, rtol=1e-3, atol=1e-3)


def test_actor_step_raises_the_first_q_of_a_moved_action(step, few, slopes):
    before, after, metrics = step
    action = sampled(after.behaviour.model, few.observation, 1, jax.random.split(KEY, 3)[2])[:, 0]
    critic, old = float64(after.critic), float64(before.actor)

    def loss(actor):
        return -q_values(critic, few.observation, moved(actor, few.observation, action))[0].mean()

    np.testing.assert_allclose(metrics["policy_loss"], loss(old), rtol=1e-4)
    for was, new, slope in zip(old, float64(after.actor), slopes(loss, old), strict=True):
        np.testing.assert_allclose(was - new, slope, rtol=1e-3, atol=1e-3)
    for name in ("actor", "critic"):
        was, new, fast = (
            float64(tree)
            for tree in (
                getattr(before, f"slow_{name}"),
                getattr(after, f"slow_{name}"),
                getattr(after, name),
            )
        )
        for a, b, c in zip(was, new, fast, strict=True):
            np.testing.assert_allclose(b, a + 0.1 * (c - a), rtol=1e-5, atol=1e-6)


def test_only_its_own_loss_reaches_the_model_of_the_behaviour(step, few):
    """With the key that the update has for it, it is the same as without critic and xi."""
    before, after, _ = step
    alone, _ = jax.jit(AGENT.behaviour.update)(
        before.behaviour, few.observation, few.action, jax.random.split(KEY, 3)[0]
    )
    for one, other in zip(float64(alone.model), float64(after.behaviour.model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bound", [0.0, 0.05])
def test_xi_moves_an_action_by_its_bound_at_most(few, bound):
    """And not out of [-1, 1]."""
    xi = Perturbation(SPEC, (4,), bound, KEY)
    xi = eqx.tree_at(lambda x: x.network.layers[-1].bias, xi, jnp.array([50.0, -50.0]))
    inside = 0.9 * few.action
    np.testing.assert_allclose(
        xi(few.observation, inside) - inside, np.tile([bound, -bound], (6, 1)), atol=1e-6
    )
    edge = np.tile(np.array([1.0, -1.0], np.float32), (6, 1))
    np.testing.assert_array_equal(xi(few.observation, edge), edge)


def test_without_perturbation_its_actions_are_the_behaviours(few):
    """One sample is a clone's action; the best of ten is worth at least their mean."""
    agent = replace(AGENT, perturbation=0.0, acting_samples=1)
    state = agent.init(SPEC, jax.random.PRNGKey(0))
    clone = sampled(state.behaviour.model, few.observation[:1], 1, jax.random.PRNGKey(0))[0]
    np.testing.assert_allclose(agent.policy(state).mode(few.observation[:1]), clone, rtol=1e-5)
    actions = Perturbed(state.behaviour.model, state.actor, agent.behaviour).propose(
        few.observation, 10, KEY
    )
    each = [
        best_value(state.critic, concatenate, few.observation, actions[:, [n]], 0.75)
        for n in range(10)
    ]
    best = best_value(state.critic, concatenate, few.observation, actions, 0.75)
    np.testing.assert_allclose(best, np.max(each, axis=0), rtol=1e-6)
    assert (np.asarray(best) >= np.mean(each, axis=0)).all()


def test_stays_where_the_data_is(bandit, learned, modes):
    """Logged actions lie within 0.6 and reward grows with them: there test_brac.py has SAC at 1."""
    agent = Bcq(
        GenerativeCloning((32,), 1e-2, latent_weight=0.01),
        perturbation=0.05,
        target_samples=2,
        acting_samples=20,
        actor_sizes=(32,),
        critic_sizes=(32,),
        actor_learning_rate=3e-3,
        critic_learning_rate=1e-2,
    )
    here = np.linspace(-0.9, 0.9, 7)[:, None]
    careful = modes(agent, learned(agent, bandit(lambda s, a: 4 * a), 400)[0], here)
    assert careful.max() < 0.7
    assert careful.min() > 0.05  # and better than the mean of the data


def test_bad_settings_are_refused_by_name():
    for name, value in (
        ("perturbation", -1.0),
        ("smaller_weight", 1.5),
        ("target_samples", 0),
        ("acting_samples", 0),
        ("discount", 1.0),
    ):
        with pytest.raises(InputError, match=f"{name} is {value}"):
            Bcq(**{name: value})
