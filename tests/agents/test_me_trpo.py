"""ME-TRPO: that a step is TRPO's on what is imagined, and what a round does around it."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents import preset
from phimu.agents.me_trpo import MeTrpo
from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.dynamics.ensemble import Ensemble, Networks
from phimu.dynamics.fitting import Dynamics
from phimu.dynamics.imagination import Imagination, returns, rollout
from phimu.environments.mbbl.rewards import known as known_of
from phimu.errors import InputError
from phimu.planning.linear_value import LinearValue
from phimu.planning.trust_region import TrustRegion
from phimu.planning.validation import Validation
from phimu.settings import override
from phimu.types import Feed, Known, Spec, TaskSpec

KEY = jax.random.PRNGKey(0)
AGENT = MeTrpo(
    Dynamics(
        ensemble_size=2, model_sizes=(16,), model_objective="squared_error", bootstrap=False,
        model_batch=32, epochs=3,
    ),
    actor_sizes=(8,),
    critic=LinearValue(discount=0.9),
    policy_steps=3,
    chains=20,
    imagined_horizon=10,
    starts=6,
)  # fmt: skip
# s' = s + a / 2, and s' is to be near 0.2.
KNOWN = Known(lambda s, a, after: -((after[..., 0] - 0.2) ** 2) - 0.01 * a[..., 0] ** 2)


def exact(matrix, networks=2):
    """An ensemble whose networks all have s' - s = matrix (s, a)."""
    weight = jnp.broadcast_to(jnp.asarray(matrix.T), (networks, *matrix.T.shape))
    bias = jnp.zeros((networks, 1, len(matrix)))
    layers = Networks((weight,), (bias,), None, None)
    return Ensemble(layers, jnp.zeros(matrix.shape[1]), jnp.ones(matrix.shape[1]))


def true_world(limit=1e6):
    starts = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (6, 1)), jnp.float32)
    return Imagination(exact(np.float32([[0.0, 0.5]])), KNOWN, starts, jnp.float32(limit))


def state_of(agent=AGENT, known=KNOWN):
    return agent.init(TaskSpec(1, 1).knowing(known), KEY)


def stored(count=60, length=12):
    """Episodes of s' = s + a / 2 that a time limit cuts."""
    rng, store, s = np.random.default_rng(0), Replay(Spec(1, 1), 200, 0, 50), np.zeros(1)
    for number in range(count):
        s = rng.uniform(-1, 1, 1) if number % length == 0 else s
        a = rng.normal(size=1)
        after = s + np.clip(a, -1, 1) / 2
        store.add(s, a, -float(after[0] ** 2), after, False, number % length == length - 1)
        s = after
    return store


def feed_of(agent, phase, store):
    drawn = agent.draw(phase, store, np.random.default_rng(0))
    return Feed(split(jnp.asarray(drawn.rows), Spec(1, 1)), columns=drawn.columns)


# A step


def test_in_the_true_model_a_step_is_trpos_in_the_environment():
    """The same actions in the system itself, in float64; advantages and returns by hand."""
    state, world = state_of(), true_world()
    imagined = rollout(world, state.actor, 20, 10, KEY)
    action = np.asarray(imagined.batch.action, np.float64)[..., 0]
    s, discount = np.asarray(imagined.batch.observation, np.float64)[0, :, 0], 0.9
    observation, reward = np.zeros((2, 10, 20))
    for step in range(10):
        observation[step], done = s, np.clip(action[step], -1, 1)
        s = s + done / 2
        reward[step] = -((s - 0.2) ** 2) - 0.01 * done**2
    advantage, total = np.zeros((2, 10, 20))
    for t in range(10):
        for k in range(t, 10):
            advantage[t] += (discount * 0.95) ** (k - t) * reward[k]  # V is 0 before the first fit
            total[t] += discount ** (k - t) * reward[k]
    scaled = (advantage - advantage.mean()) / advantage.std()
    rows = (x.reshape(-1, 1).astype(np.float32) for x in (observation, action))
    flat = scaled.reshape(-1).astype(np.float32)
    expected, _ = jax.jit(AGENT.region.step)(state.actor, *rows, flat)
    (actor, critic), metrics = jax.jit(AGENT.step)(state.actor, state.critic, imagined)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-4),
                 eqx.filter(actor, eqx.is_array), eqx.filter(expected, eqx.is_array))  # fmt: skip
    assert float(metrics["step_share"]) > 0
    np.testing.assert_allclose(metrics["imagined_reward"], reward.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], total.mean(), rtol=1e-4)
    fitted = AGENT.critic.fit(
        *(jnp.asarray(x, jnp.float32) for x in (
            observation.reshape(-1, 1), np.repeat(np.arange(10.0), 20), total.reshape(-1),
        ))
    )  # fmt: skip
    rms = np.sqrt(np.mean((np.asarray(fitted) - np.asarray(critic)) ** 2))
    assert rms < 1e-2 * np.abs(np.asarray(fitted)).max()


LOOKING = replace(
    AGENT,
    policy_steps=100,
    chains=50,
    initial_log_std=-1.0,
    region=TrustRegion(max_kl=0.05),
    validation=Validation(10, validation_patience=100),
)


@pytest.fixture(scope="module")
def improved():
    """improved(actor): what a round in the true model makes of it."""
    return jax.jit(lambda actor: LOOKING.improve(true_world(), actor, state_of().critic, KEY))


def test_in_the_true_model_it_learns_to_control_the_system(improved):
    """One step from -0.6, -0.1 and 0.4 to 0.2 takes an action of 1, 0.6 and -0.4."""
    (actor, _), metrics = improved(state_of().actor)
    found = actor.mode(jnp.float32([[-0.6], [-0.1], [0.4]]))[:, 0]
    np.testing.assert_allclose(found, [1.0, 0.6, -0.4], atol=0.2)
    assert 0 < float(metrics["steps_kept"]) <= float(metrics["steps_made"]) == 100
    found = returns(true_world(), actor, 10, 0.9)  # of what was kept
    np.testing.assert_allclose(metrics["validation_return"], found.mean(), rtol=1e-4)


def test_a_round_begins_with_the_first_deviation_of_actions(improved):
    actor = state_of().actor
    other = eqx.tree_at(lambda a: a.log_std, actor, actor.log_std - 3.0)
    for x, y in zip(*(jax.tree.leaves(improved(each)) for each in (actor, other)), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("ends", [True, False])
def test_a_fall_ends_what_is_imagined_unless_told_otherwise(ends):
    """Hopper-ET, sinking by 0.2 in every step: from 1.25 it has fallen after the third."""
    agent = replace(AGENT, imagined_ends=ends)
    state = agent.init(TaskSpec(11, 3).knowing(known_of("HopperET")), KEY)
    start = np.zeros((6, 2 * 11 + 3 + 3), np.float32)
    start[:, 0] = 1.25
    columns = {"limit": np.full(6, 1_000.0, np.float32)}
    world = agent.world(state, Feed(split(jnp.asarray(start), Spec(11, 3)), columns=columns))
    sinking = exact(np.zeros((11, 14), np.float32))
    bias = sinking.networks.biases[0].at[:, :, 0].set(-0.2)
    sinking = replace(sinking, networks=replace(sinking.networks, biases=(bias,)))
    batch, _ = rollout(world._replace(ensemble=sinking), state.actor, 20, 10, KEY)
    height = 1.25 - 0.2 * (np.arange(10) % 3 if ends else np.arange(10))
    effort = np.sum(np.clip(batch.action, -1, 1) ** 2, axis=-1)
    expected = -3.0 * (height - 1.3) ** 2 + (height > 0.7)
    np.testing.assert_allclose(batch.reward, expected[:, None] - 0.1 * effort, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(batch.terminated[:, 0], (np.arange(10) % 3 == 2) & ends)


# A fit, and what both are given


def test_what_is_known_is_not_learned_and_actions_are_clipped():
    for known, outputs in ((None, 2), (KNOWN, 1)):
        state, feed = state_of(known=known), feed_of(AGENT, "model", stored())
        assert np.abs(feed.batch.action).max() > 1.5
        after, metrics = jax.jit(lambda s, f: AGENT.update("model", s, f, KEY))(state, feed)
        networks = after.dynamics.ensemble.networks
        assert networks.biases[-1].shape == (2, 1, outputs)
        assert (after.known, int(after.rounds)) == (known, 1)
        seen = np.clip(feed.batch.action[:50], -1, 1)
        np.testing.assert_allclose(after.dynamics.ensemble.deviation[1], seen.std(), rtol=1e-3)
        assert all(np.isfinite(float(value)) for value in metrics.values())


def test_networks_begin_anew_every_few_rounds():
    """With steps too small to move them, a network that has changed is a new one."""
    slow = replace(AGENT.dynamics, model_learning_rate=1e-30)
    agent = replace(AGENT, dynamics=slow, restart_every=3)
    feed, state, seen = feed_of(agent, "model", stored()), state_of(agent), []
    fit = jax.jit(lambda s, key: agent.update("model", s, feed, key)[0])
    for number in range(7):
        state = fit(state, jax.random.PRNGKey(number))
        seen.append(np.asarray(state.dynamics.ensemble.networks.weights[0]).tobytes())
    assert seen[0] == seen[1] == seen[2] != seen[3] == seen[4] == seen[5] != seen[6]


def test_the_policy_is_given_beginnings_of_episodes_and_the_time_limit():
    store = stored()
    drawn = AGENT.draw("policy", store, np.random.default_rng(0))
    firsts = store.latest(60).observation[::12, 0]
    assert drawn.rows.shape == (6, 6)
    assert set(drawn.rows[:, 0]) <= set(firsts)
    np.testing.assert_array_equal(drawn.columns["limit"], 10.0)  # imagined_horizon
    longer = replace(AGENT, imagined_horizon=100)
    for own, limit in ((store, 12.0), (stored(5), 100.0)):
        columns = longer.draw("policy", own, np.random.default_rng(0)).columns
        np.testing.assert_array_equal(columns["limit"], limit)


# The presets


def test_mbbl_is_the_published_setting():
    settings, schedule = preset("me-trpo", "mbbl")
    model = settings.dynamics
    assert (model.ensemble_size, model.model_sizes) == (5, (1_000,) * 4)
    assert (model.model_activation, model.model_objective) == ("relu", "squared_error")
    assert (model.bootstrap, model.normalise_targets, model.keep_best) == (False, True, False)
    assert (model.model_batch, model.model_learning_rate, model.epochs) == (1_000, 1e-3, 200)
    assert (model.check_every, model.patience, model.held_out) == (5, 20, 1 / 3)
    assert (model.decays(5), model.decay_by_count) == ([1.0] * 4 + [0.0], True)
    assert settings.region == TrustRegion(0.01, None, 0.1, 10, 10, 0.1)
    assert settings.critic == LinearValue(0.99, 0.95, False, 1e-5)
    assert (settings.policy_steps, settings.chains * settings.imagined_horizon) == (20, 50_000)
    assert (settings.validation.validate_every, settings.initial_log_std) == (0, 0.0)
    assert not settings.imagined_ends
    assert not schedule.normalise_observations
    assert schedule.collection.learning_starts == schedule.collection.train_freq == 6_000


def test_original_is_the_authors_setting():
    settings, schedule = preset("me-trpo", "original")
    assert (settings.dynamics.ensemble_size, settings.dynamics.model_sizes) == (5, (1_024, 1_024))
    assert (settings.dynamics.patience, settings.dynamics.keep_best) == (25, True)
    assert (settings.imagined_horizon, settings.chains * settings.imagined_horizon) == (100, 50_000)
    assert (settings.critic.discount, settings.policy_steps, settings.starts) == (1.0, 400, 500)
    assert settings.validation == Validation(5, 0.3, 25)
    assert (settings.restart_every, schedule.collection.train_freq) == (5, 3_000)


def test_bad_settings_are_refused_by_name():
    with pytest.raises(InputError, match="policy_steps is 41: give a multiple of validate_every"):
        override(preset("me-trpo", "small"), {"policy_steps": 41})
    with pytest.raises(InputError, match="chains is 0"):
        MeTrpo(chains=0)
