"""BRAC clones the behaviour, then improves on it without leaving it."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
from phimu.planning.dual_divergence import DualKl

from phimu.agents.brac import PLANNER, Brac
from phimu.agents.sac import Sac
from phimu.planning.behaviour import BehaviourCloning

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
    DualKl((32,), 1e-2),
    replace(QUICK, behaviour_weight=0.1),
)
WEIGHTS = {"cross_entropy": 1.0, "kl_primal": 1.0, "kl_dual": 10.0}
HERE = np.linspace(-0.9, 0.9, 7)[:, None]


def agent_of(divergence, **changes):
    planner = replace(AGENT.planner, behaviour_weight=WEIGHTS[divergence])
    return replace(AGENT, planner=planner, divergence=divergence, **changes)


def equal(one, other):
    """Bit for bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@pytest.mark.parametrize("divergence", list(WEIGHTS))
def test_stays_near_the_set_where_sac_goes_astray(bandit, learned, modes, divergence):
    """Logged actions lie within 0.6 and reward grows with them; nothing is known beyond."""
    data = bandit(lambda s, a: 4 * a)
    astray = Sac(replace(QUICK, behaviour_weight=0.0))
    assert modes(astray, learned(astray, data, 300)[0], HERE).min() > 0.9
    agent = agent_of(divergence)
    careful = modes(agent, learned(agent, data, 600)[0], HERE)
    assert careful.max() < 0.5
    assert careful.min() > 0.01  # and still better than the set's mean of 0


def test_finds_the_best_action_inside_the_set(bandit, learned, modes):
    agent = replace(AGENT, planner=replace(AGENT.planner, behaviour_weight=0.01))
    data, history = bandit(lambda s, a: -10 * (a - 0.2 * s) ** 2), {}
    state, _ = learned(agent, data, 600, history=history)
    np.testing.assert_allclose(modes(agent, state, HERE), 0.2 * HERE, atol=0.07)
    value = agent.q_value(state, HERE.astype(np.float32), (0.2 * HERE).astype(np.float32))
    np.testing.assert_allclose(value, 0.0, atol=0.1)
    # Cloning leaves the planner alone, and planning the clone.
    assert equal(history["behaviour"].planner, agent.init(data.spec, jax.random.PRNGKey(0)).planner)
    assert equal(history["behaviour"].held_by, state.held_by)


def test_phases():
    assert AGENT.phases == (("behaviour", 300), ("policy", 0))
    assert replace(AGENT, divergence="kl_dual").phases == (("policy", 0),)


def test_beginning_again_changes_nothing(walk):
    agent = replace(AGENT, normalise_observations=True)
    state = agent.init(walk.spec, jax.random.PRNGKey(0))
    once, data = agent.begin("behaviour", state, walk)
    twice, again = agent.begin("policy", *agent.begin("behaviour", once, data))
    assert equal((once, data), (twice, again))
    everything = np.asarray(walk.observations, np.float64)
    np.testing.assert_allclose(once.normaliser.mean, everything.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(once.normaliser.variance, everything.var(axis=0), rtol=1e-6)


def test_an_update_sees_observations_by_the_set_statistics(walk):
    """So observations in other units teach the same."""
    agent = replace(AGENT, normalise_observations=True)
    scale = np.tile(np.array([4, 4, 1, 1, 4, 4, 1], np.float32), (len(walk), 1))  # s a r s' end
    larger = eqx.tree_at(lambda d: d.rows, walk, walk.rows * scale)
    learn, after = jax.jit(agent.learn, static_argnums=0), []
    for data in (walk, larger):
        state = agent.init(walk.spec, jax.random.PRNGKey(0))
        state, data = agent.begin("behaviour", state, data)
        after.append(learn("behaviour", state, data, jax.random.PRNGKey(1))[1])
    for name, value in after[0].items():
        np.testing.assert_allclose(after[1][name], value, rtol=1e-4)
