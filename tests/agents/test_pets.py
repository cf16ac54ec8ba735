"""PETS: what a fit is given, what is learned, and that plans are of the model and the reward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import phimu.environments  # noqa: F401  (registers the tasks)
from phimu.agents import preset
from phimu.agents.pets import CEM, RS, Pets
from phimu.agents.schedule import Collection, Schedule
from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.dynamics.fitting import Dynamics
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.planning.shooting import Shooting
from phimu.settings import override
from phimu.training.online import OnlineRun
from phimu.types import Feed, Known, Spec, TaskSpec

KEY = jax.random.PRNGKey(0)
SMALL = Pets(
    Dynamics(ensemble_size=2, model_sizes=(16,), model_batch=32, epochs=3),
    Shooting(plan_horizon=3, candidates=100, elites=10),
)


def replay(count, batch_size=50, capacity=100):
    """s counts up, s' = s + a / 2, the reward is -s'^2."""
    rng, store = np.random.default_rng(0), Replay(Spec(1, 1), capacity, 0, batch_size)
    for number in range(count):
        s, a = np.float32([number]), rng.uniform(-1, 1, 1).astype(np.float32)
        store.add(s, a, -(float((s + a / 2)[0]) ** 2), s + a / 2, False, False)
    return store


def spec_knowing(known):
    return TaskSpec(1, 1).knowing(known)


# What a fit is given


def test_few_transitions_are_all_fitted_and_repeated_ones_do_not_count():
    drawn = SMALL.draw("model", replay(20), np.random.default_rng(0))
    batch, real = split(drawn.rows, Spec(1, 1)), drawn.columns["real"]
    assert drawn.rows.shape == (50, 6)
    np.testing.assert_array_equal(batch.observation[:20, 0], np.arange(20))
    np.testing.assert_array_equal(batch.observation[20:40, 0], np.arange(20))
    np.testing.assert_array_equal(real, np.arange(50) < 20)
    for column, own in zip(batch, replay(20).latest(20), strict=True):
        np.testing.assert_array_equal(column[:20], own)


def test_of_many_transitions_the_newest_and_as_many_others():
    drawn = SMALL.draw("model", replay(180), np.random.default_rng(0))
    seen = split(drawn.rows, Spec(1, 1)).observation[:, 0]
    assert drawn.rows.shape == (50, 6)
    assert drawn.columns["real"].all()
    np.testing.assert_array_equal(seen[:25], np.arange(155, 180))
    assert (seen[25:] >= 80).all()  # the buffer holds a hundred
    assert len(set(seen[25:])) > 15


def test_what_is_known_is_not_learned():
    for known, outputs in ((None, 2), (Known(lambda s, a, after: s[..., 0]), 1)):
        state = SMALL.init(spec_knowing(known), KEY)
        assert state.dynamics.ensemble.networks.biases[-1].shape == (2, 1, 2 * outputs)
        drawn = SMALL.draw("model", replay(20), np.random.default_rng(0))
        feed = Feed(split(drawn.rows, Spec(1, 1)), columns=drawn.columns)
        after, metrics = jax.jit(lambda s, f: SMALL.update("model", s, f, KEY))(state, feed)
        assert after.known is known
        assert all(np.isfinite(value) for value in metrics.values())


def test_a_normalised_observation_is_not_what_a_known_reward_is_of():
    """Then the reward is learned like everything else."""
    for normalised in (False, True):
        schedule = Schedule(Collection(), normalise_observations=normalised, batch_size=50)
        run = OnlineRun(SMALL, open_task("mbbl/CartPole-v0"), schedule, seed=0)
        assert (run.state.agent.known is None) == normalised
        run.close()


# Plans


@pytest.fixture(scope="module")
def mover():
    """A state that has learned s' = s + a / 2, and is paid for s' near 0.2."""
    agent = Pets(
        Dynamics(ensemble_size=2, model_sizes=(32,), model_batch=32, epochs=40,
                 model_learning_rate=5e-3),
        SMALL.planner,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
    state = agent.init(spec_knowing(Known(lambda s, a, after: -((after[..., 0] - 0.2) ** 2))), KEY)
    fit = jax.jit(agent.dynamics.fit)
    dynamics, _ = fit(state.dynamics, inputs, inputs[:, 1:] / 2, np.ones(400, np.float32), KEY)
    return agent, type(state)(dynamics, state.known, 1)


def test_it_goes_where_the_task_pays(mover):
    agent, state = mover
    act = jax.jit(lambda s: agent.policy(state).mode(s))
    found = [float(act(jnp.array([s]))[0]) for s in (-0.1, 0.0, 0.3)]
    np.testing.assert_allclose(found, [0.6, 0.4, -0.2], atol=0.12)


def test_the_mode_is_a_function_of_the_observation(mover):
    agent, state = mover
    policy = agent.policy(state)
    one = jnp.array([0.1])
    np.testing.assert_array_equal(policy.mode(one), policy.mode(one))
    batch = jnp.array([[0.1], [-0.3], [0.1]])
    actions = policy.mode(batch)
    assert actions.shape == (3, 1)
    np.testing.assert_array_equal(actions[0], actions[2])
    np.testing.assert_allclose(actions[0], policy.mode(one), atol=1e-5)
    sampled, log_density = policy.sample(batch, jax.random.PRNGKey(5))
    assert (sampled.shape, log_density.shape) == ((3, 1), (3,))
    assert not np.array_equal(sampled, actions)  # by other draws
    np.testing.assert_allclose(sampled, actions, atol=0.15)


def test_it_learns_from_a_run_whose_reward_it_has_to_learn(tiny):
    """-(a - 0.5)^2 is paid, wherever one is."""
    settings, schedule = tiny("pets-cem")
    run = OnlineRun(settings, open_task("phimu/probe-ActionReward-v0"), schedule, seed=0)
    for _ in range(240):
        run.advance()
    assert abs(run.policy()(np.zeros(1, np.float32))[0] - 0.5) < 0.1


# The presets


def test_mbbl_and_original_are_the_published_settings():
    """But for CEM's iterations, of which there are five that begin with the last plan."""
    for name, propagation in (("mbbl", "expectation"), ("original", "ts_inf")):
        cem, rs = preset("pets-cem", name).settings, preset("pets-rs", name).settings
        assert cem.dynamics == rs.dynamics == Dynamics()
        assert cem.dynamics.model_sizes == (200,) * 4
        assert (cem.dynamics.ensemble_size, cem.planner.particles) == (5, 20)
        assert (cem.dynamics.model_batch, cem.dynamics.epochs) == (32, 5)
        assert cem.planner.propagation == rs.planner.propagation == propagation
        assert (cem.planner.plan_horizon, cem.planner.candidates, cem.planner.elites) == (
            30,
            500,
            50,
        )
        assert (cem.planner.smoothing, cem.planner.initial_variance) == (0.1, 0.25)
        assert (rs.planner.optimiser, rs.planner.candidates) == ("rs", 2_500)


def test_cem_and_rs_differ_in_the_search_alone():
    assert list(CEM) == list(RS) == ["mbbl", "original", "small"]
    for name, one in CEM.items():
        changes = {"optimiser": "rs", "candidates": RS[name].settings.planner.candidates}
        assert override(one, changes) == RS[name]


def test_particles_that_no_network_gets_evenly_are_refused_at_once():
    with pytest.raises(InputError, match="particles is 7: give a multiple of ensemble_size"):
        override(preset("pets-cem", "original"), {"particles": 7})
