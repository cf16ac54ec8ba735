"""CQL: its gap against known answers, its losses against float64 NumPy, and what it learns."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp
from scipy.stats import norm as normal

from phimu.agents.cql import Cql, CqlState, sampled_actions, value_gap
from phimu.agents.protocol import POLICY, Phase
from phimu.agents.sac import concatenate
from phimu.errors import InputError
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.policies import TanhGaussian
from phimu.types import Batch, Feed, Spec

RATE, SAMPLES = 1.0, 3
KEY = jax.random.PRNGKey(1)


class PlainDescent(SoftActorCritic):
    """Steps of minus the gradient, so that a test can read the gradient off."""

    def optimisers(self):
        return (optax.sgd(RATE),) * 3


PLAIN = PlainDescent(
    critic="two_layer",
    critic_width=4,
    actor_sizes=(4,),
    activation="relu",
    discount=0.9,
    entropy_in_target=False,
)
AGENT = Cql(2.0, SAMPLES, planner=PLAIN, warm_start_updates=1)
WITHOUT = replace(AGENT, conservatism=0.0)


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def network(arrays, x):
    w1, b1, w2, b2 = arrays
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def q_values(critic, observation, action):
    """Of two heads: [2, ...]."""
    x = np.concatenate([observation, action], axis=-1)
    return np.stack([network(critic[part], x)[..., 0] for part in (slice(4), slice(4, 8))])


def gaussian(actor, observation):
    mean, raw = np.split(network(actor, observation), 2, axis=-1)
    return mean, np.exp(-5 + 3.5 * (np.tanh(raw) + 1))


def log_density(mean, std, before):
    """Of tanh of a Gaussian, by the change of variables."""
    return (normal.logpdf(before, mean, std) - np.log(1 - np.tanh(before) ** 2)).sum(axis=-1)


@pytest.fixture(scope="module")
def start(few):
    """A state with biases off zero and a slow critic of its own."""
    state = AGENT.init(Spec(3, 2), jax.random.PRNGKey(0))
    planner = state.planner
    actor, critic = (jax.tree.map(lambda x: x + 0.1, x) for x in (planner.actor, planner.critic))
    slow_critic = jax.tree.map(lambda x: 0.5 * x, critic)
    return CqlState(
        planner._replace(actor=actor, critic=critic, slow_critic=slow_critic), *state[1:]
    )


@pytest.fixture(scope="module")
def updated(start, few):
    """updated(agent, phase): the state and metrics after one update."""
    update = jax.jit(
        lambda agent, phase: agent.update(phase, start, Feed(few), KEY), static_argnums=(0, 1)
    )
    return cache(lambda agent, phase: update(agent, phase))


# The gap, on a known Q


@pytest.mark.parametrize("dim", [1, 6])
def test_a_constant_q_has_the_volume_of_the_actions_in_its_gap(dim):
    """log of the sum over ten uniform actions: c + ln 10 + |A| ln 2, whatever c is."""
    density = jnp.full((4, 10), -dim * np.log(2))
    for c in (-3.0, 0.0, 50.0):
        gap = value_gap(jnp.full((2, 4, 10), c), density, jnp.full((2, 4), c))
        np.testing.assert_allclose(gap, np.log(10) + dim * np.log(2), rtol=1e-5)


def test_importance_weights_make_it_the_integral_over_all_actions():
    """Of exp(k a) on [-1, 1], 2 sinh(k) / k, from uniform actions and from the policy's alike."""
    rows, count, k = 1, 20_000, 1.5
    actor = TanhGaussian(1, 1, (4,), jax.random.PRNGKey(3))
    actor = eqx.tree_at(lambda a: a.network.layers[-1].bias, actor, jnp.array([0.3, 0.4]))
    here = np.zeros((rows, 1), np.float32)
    batch = Batch(here, here, here[:, 0], here, here[:, 0], here[:, 0])
    action, density = sampled_actions(actor, batch, count, KEY)
    integral = np.log(2 * np.sinh(k) / k)
    for part in range(3):
        chosen = slice(part * count, (part + 1) * count)
        gap = value_gap(k * action[None, :, chosen, 0], density[:, chosen], jnp.zeros((1, rows)))
        np.testing.assert_allclose(gap[0, 0] - np.log(count), integral, atol=0.03)


def test_its_gradient_raises_the_logged_action_and_lowers_the_others():
    """By amounts that sum to zero; the gap itself is at least the largest sampled value's."""
    rng = np.random.default_rng(0)
    sampled, density = jnp.asarray(rng.normal(size=(2, 3, 8))), jnp.asarray(rng.normal(size=(3, 8)))
    logged = jnp.asarray(rng.normal(size=(2, 3)))
    of_sampled, of_logged = jax.grad(
        lambda *values: jnp.sum(value_gap(values[0], density, values[1])), (0, 1)
    )(sampled, logged)
    assert (np.asarray(of_sampled) > 0).all()  # a step down the loss lowers these
    np.testing.assert_allclose(of_logged, -1.0)
    np.testing.assert_allclose(of_sampled.sum(-1) + of_logged, 0.0, atol=1e-6)
    largest = (sampled - density[None]).max(-1) - logged
    assert (np.asarray(value_gap(sampled, density, logged)) >= np.asarray(largest)).all()


def test_sampled_actions_are_of_three_kinds(start, few):
    """Uniform ones span [-1, 1]; the others have the density of where they were drawn."""
    actor, count = start.planner.actor, 500
    action, density = (np.asarray(x, np.float64) for x in sampled_actions(actor, few, count, KEY))
    assert action.shape == (6, 3 * count, 2)
    uniform = action[:, :count]
    assert uniform.min() < -0.99
    assert uniform.max() > 0.99
    assert abs(uniform.mean()) < 0.03
    np.testing.assert_allclose(density[:, :count], -2 * np.log(2), rtol=1e-6)
    for part, observation in ((1, few.observation), (2, few.next_observation)):
        chosen = slice(part * count, (part + 1) * count)
        mean, std = (x[:, None] for x in gaussian(float64(actor), observation.astype(float)))
        before = np.arctanh(action[:, chosen])
        inside = np.abs(action[:, chosen]).max(axis=-1) < 0.99  # where atanh has its digits
        found = log_density(mean, std, before)
        np.testing.assert_allclose(density[:, chosen][inside], found[inside], rtol=1e-3, atol=1e-3)


# One update


def test_critic_step_is_the_gradient_of_td_error_and_gap(start, updated, few, slopes):
    after, metrics = updated(AGENT, "policy")
    for_planner, for_samples = jax.random.split(KEY)
    actor, slow = float64(start.planner.actor), float64(start.planner.slow_critic)
    noise = np.asarray(jax.random.normal(for_planner, (2, 6, 2))[0], np.float64)
    mean, std = gaussian(actor, few.next_observation.astype(float))
    next_value = q_values(slow, few.next_observation, np.tanh(mean + std * noise)).min(axis=0)
    target = few.reward + 0.9 * (1 - few.terminated) * next_value  # no entropy in it
    drawn = sampled_actions(start.planner.actor, few, SAMPLES, for_samples)
    action, density = (np.asarray(x, np.float64) for x in drawn)
    repeated = np.repeat(few.observation[:, None], 3 * SAMPLES, axis=1)

    def parts(critic):
        logged = q_values(critic, few.observation, few.action)
        gap = logsumexp(q_values(critic, repeated, action) - density, axis=-1) - logged
        return ((logged - target) ** 2).mean(), gap.mean()

    old = float64(start.planner.critic)
    td_loss, gap = parts(old)
    np.testing.assert_allclose(metrics["td_loss"], td_loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["value_gap"], gap, rtol=1e-4)
    down = slopes(lambda critic: np.dot(parts(critic), (1, 2.0)), old)
    for was, new, slope in zip(old, float64(after.planner.critic), down, strict=True):
        np.testing.assert_allclose(was - new, RATE * slope, rtol=1e-3, atol=1e-4)


def test_warm_start_clones_the_logged_actions(start, updated, few, slopes):
    """With no other gradient: neither Q nor the gap reaches the actor."""
    after, metrics = updated(AGENT, "warm_start")
    noise = jax.random.normal(jax.random.split(KEY)[0], (2, 6, 2))[1]
    before = np.arctanh(np.clip(few.action.astype(float), -0.999, 0.999))
    weight = float(np.exp(start.planner.log_entropy_weight))

    def loss(actor):
        mean, std = gaussian(actor, few.observation.astype(float))
        own = log_density(mean, std, mean + std * np.asarray(noise, np.float64))
        return (weight * own - log_density(mean, std, before)).mean()

    old = float64(start.planner.actor)
    np.testing.assert_allclose(metrics["policy_loss"], loss(old), rtol=1e-4)
    for was, new, slope in zip(old, float64(after.planner.actor), slopes(loss, old), strict=True):
        np.testing.assert_allclose(was - new, RATE * slope, rtol=1e-3, atol=1e-3)


def test_without_conservatism_it_is_sac_without_entropy_in_the_target(start, updated, few):
    ours, _ = updated(WITHOUT, "policy")
    key = jax.random.split(KEY)[0]
    theirs, _ = jax.jit(lambda *given: PLAIN.update(given[0], concatenate, *given[1:]))(
        start.planner, few, key
    )
    for one, other in zip(float64(ours.planner), float64(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("aim", "sign"), [(1.0, 1), (100.0, -1)])
def test_a_learned_multiplier_rises_where_the_gap_is_above_its_aim(aim, sign, few):
    """By Adam's first step, at the critic's rate."""
    agent = replace(AGENT, gap_aim=aim)
    state = agent.init(Spec(3, 2), jax.random.PRNGKey(0))
    after, metrics = agent._held(state, {"value_gap": jnp.asarray(4.0)})
    assert metrics["multiplier"] == 1.0
    np.testing.assert_allclose(after.log_multiplier, sign * 3e-4, rtol=1e-3)
    shapes, told = jax.eval_shape(lambda x: agent.update("policy", x, Feed(few), KEY), state)
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    assert "multiplier" in told


# What it learns

QUICK = SoftActorCritic(
    critic="three_layer",
    critic_width=32,
    actor_sizes=(32,),
    entropy_in_target=False,
    target_rate=0.1,
    actor_learning_rate=3e-3,
    critic_learning_rate=1e-2,
    entropy_learning_rate=1e-2,
    initial_entropy_weight=0.01,
)
HERE = np.linspace(-0.9, 0.9, 7)[:, None]


def test_stays_where_the_data_is(bandit, learned, modes):
    """Logged actions lie within 0.6 and reward grows with them: there test_brac.py has SAC at 1."""
    rising = bandit(lambda s, a: 4 * a)
    agent = Cql(5.0, 2, warm_start_updates=0, planner=QUICK)
    state, _ = learned(agent, rising, 300)
    careful = modes(agent, state, HERE)
    assert careful.max() < 0.7
    assert careful.min() > 0.01  # and better than the mean of the data
    far, near = (
        agent.q_value(state, HERE.astype(np.float32), np.full_like(HERE, a, np.float32))
        for a in (1.0, 0.2)
    )
    assert (np.asarray(far) < np.asarray(near)).all()


def test_phases_and_bad_settings():
    assert Cql().phases == (Phase("warm_start", 40_000), *POLICY)
    assert Cql(warm_start_updates=0).phases == POLICY
    for name, value in (("conservatism", -1.0), ("action_samples", 0), ("warm_start_updates", -1)):
        with pytest.raises(InputError, match=f"{name} is {value}"):
            Cql(**{name: value})
