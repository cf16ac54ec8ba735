"""TRPO: the step that it takes, against what the trust region says of it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from phimu.agents import preset
from phimu.agents.trpo import Trpo
from phimu.errors import InputError
from phimu.planning.trust_region import TrustRegion, divergence
from phimu.types import Spec

SPEC = Spec(3, 2)
KEY = jax.random.PRNGKey(0)
REGION = TrustRegion(kl_slack=1.0)
AGENT = Trpo(actor_sizes=(8,), region=REGION)


@pytest.fixture(scope="module")
def problem():
    """A policy, what it did, and how good that was: an action upwards is better."""
    actor = AGENT.init(SPEC, KEY).actor
    observation = jnp.asarray(np.random.default_rng(0).normal(size=(200, 3)), jnp.float32)
    action, _ = actor.sample(observation, KEY)
    advantage = action[:, 0] - jnp.mean(action[:, 0])
    return actor, observation, action, advantage / jnp.std(advantage)


def surrogate(actor, old, observation, action, advantage):
    ratio = actor.log_density(observation, action) - old.log_density(observation, action)
    return float(jnp.mean(jnp.exp(ratio) * advantage))


@pytest.mark.parametrize("max_kl", [1e-3, 1e-2, 0.1])
def test_a_step_improves_the_surrogate_within_the_region(problem, max_kl):
    actor, observation, *_ = problem
    after, metrics = jax.jit(replace(REGION, max_kl=max_kl).step)(*problem)
    kl = float(divergence(actor(observation), after(observation)))
    assert 0.3 * max_kl < kl <= max_kl
    np.testing.assert_allclose(metrics["divergence"], kl, rtol=1e-3)
    gained = surrogate(after, actor, *problem[1:])
    assert gained > surrogate(actor, actor, *problem[1:]) + 1e-3
    np.testing.assert_allclose(metrics["policy_loss"], -gained, rtol=1e-3)
    moved = after.mode(observation) - actor.mode(observation)
    assert float(jnp.mean(moved[:, 0])) > 0


def test_the_full_step_is_just_below_the_border(problem):
    """Its quadratic KL is max_kl - damping |x|^2 / 2."""
    actor, observation, *_ = problem
    after, metrics = jax.jit(replace(REGION, max_kl=1e-3).step)(*problem)
    assert float(metrics["step_share"]) == 1.0
    before, moved = (ravel_pytree(x)[0] for x in (actor, after))
    expected = 1e-3 - 0.05 * float(jnp.sum((moved - before) ** 2))
    kl = float(divergence(actor(observation), after(observation)))
    assert kl == pytest.approx(expected, rel=0.1)


def assert_identical(one, other):
    for here, there in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(here).tobytes() == np.asarray(there).tobytes()


def test_without_advantages_the_policy_stays(problem):
    actor, observation, action, advantage = problem
    after, metrics = jax.jit(REGION.step)(actor, observation, action, jnp.zeros_like(advantage))
    assert_identical(after, actor)
    assert float(metrics["step_share"]) == 0.0
    assert all(np.isfinite(float(value)) for value in metrics.values())


def test_a_line_search_that_fails_restores_the_policy(problem):
    """Nothing gains a thousand times what the gradient promises."""
    after, metrics = jax.jit(replace(REGION, accept_ratio=1e3).step)(*problem)
    assert_identical(after, problem[0])
    assert float(metrics["step_share"]) == 0.0


def test_presets_are_the_published_settings():
    settings, schedule = preset("trpo", "mbbl")
    assert (settings.actor_sizes, settings.critic.critic_sizes) == ((64, 64), (64, 64))
    assert settings.region == TrustRegion(0.01, None, 0.1, 10, 10, 0.1)
    assert (settings.critic.critic_epochs, settings.critic.critic_minibatches) == (20, 1)
    assert (settings.critic.critic_betas, settings.critic.critic_epsilon) == ((0.5, 0.99), 1e-4)
    assert (settings.critic.discount, settings.critic.gae_lambda) == (0.99, 0.95)
    assert not settings.critic.bootstrap_time_limits
    assert (schedule.batch_size, schedule.normalise_observations) == (2_000, True)
    settings, schedule = preset("trpo", "original")
    assert (settings.actor_sizes, settings.region.kl_slack, schedule.batch_size) == (
        (32, 32),
        1.5,
        1_024,
    )
    assert (settings.critic.gae_lambda, settings.critic.critic_learning_rate) == (0.98, 1e-3)
    assert (settings.critic.critic_epochs, 1_024 // settings.critic.critic_minibatches) == (5, 64)


@pytest.mark.parametrize("bad", [{"max_kl": 0.0}, {"damping": -0.1}, {"cg_iterations": 0}])
def test_bad_settings_are_refused_by_name(bad):
    (name, value), *_ = bad.items()
    with pytest.raises(InputError, match=f"{name} is {value}"):
        TrustRegion(**bad)
