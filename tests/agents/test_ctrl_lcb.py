"""CTRL-LCB: its penalty and its two frozen parts against float64, and a careful choice."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents.ctrl_lcb import CHUNK, CtrlLcb, CtrlLcbState
from phimu.agents.protocol import Phase
from phimu.agents.schedule import LOGGED_NORMALISED
from phimu.confidence import Elliptical
from phimu.data.device_set import DeviceSet
from phimu.data.logged import Transitions
from phimu.data.rows import split
from phimu.errors import InputError
from phimu.planning.behaviour import BehaviourCloning
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.training.learner import Learner, LearnerState
from phimu.types import Spec

SPEC = Spec(3, 2)
AGENT = CtrlLcb(
    representation=Contrastive(
        noise=Negatives(negatives=8, random_share=0.0), feature_sizes=(16,), feature_dim=8
    ),
    confidence=Elliptical(bonus_scale=3.0, ridge=0.5),
    behaviour=BehaviourCloning(behaviour_updates=10, behaviour_sizes=(16,)),
    planner=SoftActorCritic(critic_width=16, actor_sizes=(16,)),
    representation_updates=10,
)


def random_set(rows: int, spec: Spec = SPEC, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    observation = 2.0 + 3.0 * rng.normal(size=(rows, spec.observation_dim))
    return Transitions(
        observation.astype(np.float32),
        rng.uniform(-1, 1, (rows, spec.action_dim)).astype(np.float32),
        rng.normal(size=rows).astype(np.float32),
        (observation + rng.normal(size=observation.shape)).astype(np.float32),
        rng.random(rows) < 0.1,
        np.zeros(rows, bool),
        (np.arange(rows) // 10).astype(np.int32),
    )


def learner_of(agent: CtrlLcb, data: DeviceSet, state: LearnerState | None = None) -> Learner:
    """A learner that sees observations by the statistics of the set, from a state if given."""
    learner = Learner(agent, SPEC, LOGGED_NORMALISED, seed=0)
    learner.normalise_by(data.latest(len(data)).observation)
    if state is not None:
        learner.state = jax.tree.map(jnp.copy, state)  # updates take their state away
    return learner


@cache
def begun(agent: CtrlLcb, rows: int = 200) -> tuple[LearnerState, DeviceSet]:
    """After the first phases, with what planning computes of the set."""
    data = DeviceSet(random_set(rows), SPEC, batch_size=16)
    learner = learner_of(agent, data)
    for phase, count, *_ in agent.phases[:-1]:
        columns = learner.begin(phase, data, 0)
        assert columns is data  # only planning computes anything first
        learner.learn_from(phase, columns, 0, count)
    columns = learner.begin("policy", data, 0)
    return learner.state, columns


@pytest.fixture(scope="module")
def learn(learn_once):
    """One update of a state that is normalised as its learner's is."""
    compiled = jax.jit(learn_once, static_argnums=(0, 1))

    def learn(agent, phase, state, data, key):
        return compiled(agent, phase, state.agent, data, key, state.normaliser)

    return learn


def oracle_penalty(agent: CtrlLcb, state: LearnerState, data: Transitions) -> np.ndarray:
    """min(scale sqrt(phi' Sigma^-1 phi), 2) of every row, by solving with Sigma in float64."""
    seen = state.normaliser(data.observation)
    phi = np.asarray(agent.phi(state.agent, seen, data.action), np.float64)
    square = np.mean(np.sum(phi**2, axis=1))
    sigma = phi.T @ phi + agent.confidence.ridge * square * np.eye(phi.shape[1])
    squares = np.sum(phi * np.linalg.solve(sigma, phi.T).T, axis=1)
    return np.minimum(agent.confidence.bonus_scale * np.sqrt(squares), 2.0)


@pytest.mark.parametrize("rows", [200, CHUNK + 100])
def test_columns_are_phi_and_the_penalty_of_every_row(rows):
    state, data = begun(AGENT, rows)
    expected = oracle_penalty(AGENT, state, random_set(rows))
    assert expected.std() > 0.01 * expected.mean()
    np.testing.assert_allclose(data.columns["penalty"], expected, rtol=1e-4)
    observation, action, *_ = data.rows_at(0, len(data))
    phi = AGENT.phi(state.agent, state.normaliser(observation), action)
    np.testing.assert_allclose(data.columns["phi"], phi, rtol=1e-5, atol=1e-6)


def test_normalises_by_the_statistics_of_the_set():
    state, _ = begun(AGENT)
    observation = random_set(200).observation.astype(np.float64)
    np.testing.assert_allclose(state.normaliser.mean, observation.mean(0), rtol=1e-5)
    np.testing.assert_allclose(state.normaliser.variance, observation.var(0), rtol=1e-4)


def test_phases():
    phases = Phase("representation", 10), Phase("behaviour", 10), Phase("policy")
    assert AGENT.phases == phases


def test_precomputed_columns_change_nothing(learn):
    state, data = begun(AGENT)
    plain, seen = replace(AGENT, precompute=False), state.normaliser
    fresh = DeviceSet(random_set(200), SPEC, 16)
    bare, without = plain.begin("policy", state.agent, fresh, seen, None)
    assert not without.columns
    key = jax.random.PRNGKey(3)
    one, metrics = learn(AGENT, "policy", state, data, key)
    other, again = learn(plain, "policy", LearnerState(seen, bare), without, key)
    assert metrics.keys() == again.keys()
    for name, value in metrics.items():
        np.testing.assert_allclose(value, again[name], rtol=2e-4, atol=1e-6, err_msg=name)
    for here, there in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(here, there, atol=1e-5)


def test_the_critic_learns_reward_minus_penalty(learn):
    """The first TD loss, by hand: both heads against r - penalty + discount min Q'."""
    agent = replace(AGENT, planner=replace(AGENT.planner, entropy_in_target=False))
    state, data = begun(agent)
    key = jax.random.PRNGKey(3)
    drawn = data.sample(key)
    rows = np.asarray(drawn.index)
    penalty = oracle_penalty(agent, state, random_set(200))[rows]
    batch = split(drawn.rows, SPEC)
    noise, _ = jax.random.normal(key, (2, *batch.action.shape))
    following = state.normaliser(batch.next_observation)
    planner = state.agent.planner
    action, _ = planner.actor.with_noise(following, noise)
    phi = state.agent.representation.slow.phi
    heads = planner.slow_critic
    values = np.array([head(phi(following, action)) for head in heads], np.float64).min(0)
    target = np.asarray(batch.reward, np.float64) - penalty
    target += agent.planner.discount * (1 - np.asarray(batch.terminated)) * values
    here = phi(state.normaliser(batch.observation), batch.action)
    both = np.array([head(here) for head in planner.critic], np.float64)
    _, metrics = learn(agent, "policy", state, data, key)
    np.testing.assert_allclose(metrics["td_loss"], np.mean((both - target) ** 2), rtol=1e-4)
    np.testing.assert_allclose(metrics["penalty"], penalty.mean(), rtol=1e-4)


def test_each_phase_touches_its_own_part_only():
    state, data = begun(AGENT)
    parts = {"representation": "representation", "behaviour": "behaviour", "policy": "planner"}
    for phase, own in parts.items():
        learner = learner_of(AGENT, data, state)
        assert learner.learn_from(phase, data, 0, 3) == 3
        before, after = (jax.tree.map(np.array, each) for each in (state, learner.state))
        assert eqx.tree_equal(before.normaliser, after.normaliser)
        for name in CtrlLcbState._fields:
            equal = eqx.tree_equal(getattr(before.agent, name), getattr(after.agent, name))
            assert bool(equal) == (name != own), (phase, name)
        state = learner.state


def test_to_begin_again_changes_nothing():
    state, data = begun(AGENT)
    learner = learner_of(AGENT, data, state)
    learner.learn_from("policy", data, 0, 3)
    state, fresh = learner.state, DeviceSet(random_set(200), SPEC, 16)
    again, columns = AGENT.begin("policy", state.agent, fresh, state.normaliser, None)
    assert eqx.tree_equal(again, state.agent)
    assert eqx.tree_equal(columns, data)


def test_the_penalty_is_larger_away_from_the_data():
    """Data on a line of actions: other actions and states are uncertain."""
    rng = np.random.default_rng(0)
    rows = 2_000
    columns = random_set(rows)
    action = np.stack([rng.uniform(-1, 1, rows), np.zeros(rows)], 1).astype(np.float32)
    data = DeviceSet(columns._replace(action=action), SPEC, 64)
    wider = replace(AGENT.representation, feature_sizes=(64,), feature_dim=64)
    agent = replace(AGENT, representation=wider)
    learner = learner_of(agent, data)
    learner.learn_from("representation", data, 0, 200)
    begun = learner.begin("policy", data, 200)
    here = float(jnp.mean(begun.columns["penalty"]))
    away = np.sign(rng.normal(size=(rows, 2))).astype(np.float32)
    assert learner.query("penalty", columns.observation, away).mean() > 1.5 * here
    # On the set itself the query is the column.
    known = learner.query("penalty", columns.observation, action)
    np.testing.assert_allclose(known, begun.columns["penalty"], rtol=1e-4)


def test_bad_settings_are_named():
    _, data = begun(AGENT)
    of_random = CtrlLcb(Contrastive(noise=Negatives(random_share=0.5)))
    with pytest.raises(InputError, match="random_share is above 0"):
        of_random.draw("representation", data, jax.random.PRNGKey(0))
    with pytest.raises(InputError, match="representation_updates is 0"):
        CtrlLcb(representation_updates=0)


def test_the_penalty_of_random_features_is_that_of_a_gaussian_kernel():
    """Many cosines: their inner products are the kernel, so the penalty is kernel regression's."""
    confidence = replace(AGENT.confidence, bonus_kernel=(4_096, 0.7))
    agent = replace(AGENT, confidence=confidence)
    state, data = begun(agent, 60)
    observation, action, *_ = data.rows_at(0, len(data))
    phi = agent.phi(state.agent, state.normaliser(observation), action)
    phi = np.asarray(phi, np.float64)
    half = len(phi) // 2
    width = 0.7 * np.median(np.linalg.norm(phi[:half] - phi[half:], axis=1))
    squares = np.sum((phi[:, None] - phi[None]) ** 2, axis=-1)
    gram = np.exp(-squares / (2 * width**2))
    # phi' (F'F + ridge)^-1 phi = (k - k_n' (K + ridge)^-1 k_n) / ridge
    solved = np.linalg.solve(gram + agent.confidence.ridge * np.eye(len(gram)), gram)
    expected = np.sqrt((1 - np.sum(gram * solved, axis=0)) / agent.confidence.ridge)
    expected = np.minimum(agent.confidence.bonus_scale * expected, 2.0)
    np.testing.assert_allclose(data.columns["penalty"], expected, rtol=0.05)
