"""BRAC clones the behaviour, then improves on it without leaving it."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

from phimu.agents.brac import PLANNER, Brac
from phimu.agents.protocol import Phase
from phimu.agents.sac import Sac
from phimu.agents.schedule import LOGGED_NORMALISED
from phimu.planning.behaviour import BehaviourCloning, Regularisation
from phimu.training.learner import Learner

QUICK = replace(
    PLANNER,
    actor_sizes=(32,),
    critic_width=32,
    actor_learning_rate=3e-3,
    critic_learning_rate=1e-2,
    entropy_learning_rate=1e-2,
    initial_entropy_weight=0.01,
    target_rate=0.1,
)
AGENT = Brac(
    BehaviourCloning(300, (32,), behaviour_learning_rate=1e-2),
    Regularisation(behaviour_weight=0.1),
    QUICK,
)
HERE = np.linspace(-0.9, 0.9, 7)[:, None]


def equal(one, other):
    """Bit for bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@pytest.fixture(scope="module")
def rising(bandit):
    """Logged actions lie within 0.6 and reward grows with them; nothing is known beyond."""
    return bandit(lambda s, a: 4 * a)


def test_sac_goes_astray_beyond_the_set(rising, learned, modes):
    assert modes(Sac(QUICK), learned(Sac(QUICK), rising, 300)[0], HERE).min() > 0.9


@pytest.mark.parametrize("divergence", ["cross_entropy", "kl_primal"])
def test_stays_near_the_set_where_sac_goes_astray(rising, learned, modes, divergence):
    agent = replace(AGENT, regularisation=Regularisation(divergence, behaviour_weight=1.0))
    careful = modes(agent, learned(agent, rising, 600)[0], HERE)
    assert careful.max() < 0.5
    assert careful.min() > 0.01  # and still better than the set's mean of 0


def test_finds_the_best_action_inside_the_set(bandit, learned, modes):
    agent = replace(AGENT, regularisation=Regularisation(behaviour_weight=0.01))
    data, history = bandit(lambda s, a: -10 * (a - 0.2 * s) ** 2), {}
    state, _ = learned(agent, data, 600, history=history)
    np.testing.assert_allclose(modes(agent, state, HERE), 0.2 * HERE, atol=0.07)
    value = agent.q_value(state, HERE.astype(np.float32), (0.2 * HERE).astype(np.float32))
    np.testing.assert_allclose(value, 0.0, atol=0.1)
    # Cloning leaves the planner alone, and planning the clone.
    assert equal(history["behaviour"].planner, agent.init(data.spec, jax.random.PRNGKey(0)).planner)
    assert equal(history["behaviour"].behaviour, state.behaviour)


def test_phases():
    assert AGENT.phases == (Phase("behaviour", 300), Phase("policy"))


def test_an_update_sees_observations_by_the_set_statistics(walk):
    """So observations in other units teach the same."""
    # s a r s' terminated truncated
    scale = np.tile(np.array([4, 4, 1, 1, 4, 4, 1, 1], np.float32), (len(walk), 1))
    larger = eqx.tree_at(lambda d: d.rows, walk, walk.rows * scale)
    after = []
    for data in (walk, larger):
        learner = Learner(AGENT, walk.spec, LOGGED_NORMALISED, seed=0)
        observations = data.latest(len(data)).observation
        learner.normalise_by(observations)
        everything, seen = np.asarray(observations, np.float64), learner.state.normaliser
        np.testing.assert_allclose(seen.mean, everything.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(seen.variance, everything.var(axis=0), rtol=1e-6)
        assert learner.learn_from("behaviour", data, 0, 1) == 1
        after.append(learner.metrics)
        # Logged data is all there is to see: an update adds nothing to its statistics.
        np.testing.assert_array_equal(learner.state.normaliser.count, len(data))
    for name, value in after[0].items():
        np.testing.assert_allclose(after[1][name], value, rtol=1e-4)
