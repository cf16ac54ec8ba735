"""CTRL-LCB: its penalty and its two frozen parts against float64, and a careful choice."""

from dataclasses import replace
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from phimu.representation.learner import Contrastive

from phimu.agents.ctrl_lcb import CHUNK, CtrlLcb, LcbState
from phimu.confidence import Elliptical
from phimu.data.device_set import DeviceSet
from phimu.data.logged import Transitions
from phimu.errors import InputError
from phimu.planning.behaviour import BehaviourCloning
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.negatives import Negatives
from phimu.training.offline import updates
from phimu.types import Spec

SPEC = Spec(3, 2)
AGENT = CtrlLcb(
    representation=Contrastive(feature_sizes=(16,), feature_dim=8),
    noise=Negatives(negatives=8, random_share=0.0),
    confidence=Elliptical(bonus_scale=3.0, ridge=0.5),
    behaviour=BehaviourCloning(behaviour_updates=10, behaviour_sizes=(16,)),
    planner=SoftActorCritic(critic_width=16, actor_sizes=(16,), behaviour_weight=1.0),
    representation_updates=10,
    normalise_observations=True,
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


def begun(agent: CtrlLcb, rows: int = 200) -> tuple[LcbState, DeviceSet]:
    """After the first phases, with what planning computes of the set."""
    state, data = _begun(agent, rows)
    return jax.tree.map(jnp.copy, state), data  # updates take their state away


@cache
def _begun(agent: CtrlLcb, rows: int) -> tuple[LcbState, DeviceSet]:
    data = DeviceSet(random_set(rows), SPEC, batch_size=16)
    state = agent.init(SPEC, jax.random.PRNGKey(0))
    for phase, count in agent.phases[:-1]:
        state, columns = agent.begin(phase, state, data)
        state, _, _ = updates(agent, phase, state, columns, 0, 0, count)
    return agent.begin("policy", state, data)


@partial(jax.jit, static_argnums=(0, 1))
def learn(agent: CtrlLcb, phase: str, *rest):
    return agent.learn(phase, *rest)


def oracle_penalty(agent: CtrlLcb, state: LcbState, data: Transitions) -> np.ndarray:
    """min(scale sqrt(phi' Sigma^-1 phi), 2) of every row, by solving with Sigma in float64."""
    phi = np.asarray(agent.phi(state, data.observation, data.action), np.float64)
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    sigma = phi.T @ phi + agent.confidence.ridge * np.eye(phi.shape[1])
    squares = np.sum(phi * np.linalg.solve(sigma, phi.T).T, axis=1)
    return np.minimum(agent.confidence.bonus_scale * np.sqrt(squares), 2.0)


@pytest.mark.parametrize("rows", [200, CHUNK + 100])
def test_columns_are_phi_and_the_penalty_of_every_row(rows):
    state, data = begun(AGENT, rows)
    expected = oracle_penalty(AGENT, state, random_set(rows))
    assert expected.std() > 0.01 * expected.mean()
    np.testing.assert_allclose(data.columns["penalty"], expected, rtol=1e-4)
    phi = AGENT.phi(state, *data.rows_at(0, len(data))[:2])
    np.testing.assert_allclose(data.columns["phi"], phi, rtol=1e-5, atol=1e-6)


def test_normalises_by_the_statistics_of_the_set():
    state, _ = begun(AGENT)
    observation = random_set(200).observation.astype(np.float64)
    np.testing.assert_allclose(state.normaliser.mean, observation.mean(0), rtol=1e-5)
    np.testing.assert_allclose(state.normaliser.variance, observation.var(0), rtol=1e-4)


def test_precomputed_columns_change_nothing():
    state, data = begun(AGENT)
    plain = replace(AGENT, precompute=False)
    bare, without = plain.begin("policy", state, DeviceSet(random_set(200), SPEC, 16))
    assert not without.columns
    key = jax.random.PRNGKey(3)
    one, metrics = learn(AGENT, "policy", state, data, key)
    other, again = learn(plain, "policy", bare, without, key)
    assert metrics.keys() == again.keys()
    for name, value in metrics.items():
        np.testing.assert_allclose(value, again[name], rtol=2e-4, atol=1e-6, err_msg=name)
    for here, there in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(here, there, atol=1e-5)


def test_the_critic_learns_reward_minus_penalty():
    """The first TD loss, by hand: both heads against r - penalty + discount min Q'."""
    agent = replace(AGENT, planner=replace(AGENT.planner, entropy_in_target=False))
    state, data = begun(agent)
    key = jax.random.PRNGKey(3)
    drawn = data.sample(key)
    rows = np.asarray(drawn.index)
    penalty = oracle_penalty(agent, state, random_set(200))[rows]
    batch = drawn.batch
    noise, _ = jax.random.normal(key, (2, *batch.action.shape))
    following = state.normaliser(batch.next_observation)
    action, _ = state.planner.actor.with_noise(following, noise)
    phi = state.representation.slow.phi
    heads = state.planner.slow_critic
    values = np.array([head(phi(following, action)) for head in heads], np.float64).min(0)
    target = np.asarray(batch.reward, np.float64) - penalty
    target += agent.planner.discount * (1 - np.asarray(batch.terminated)) * values
    here = phi(state.normaliser(batch.observation), batch.action)
    both = np.array([head(here) for head in state.planner.critic], np.float64)
    _, metrics = learn(agent, "policy", state, data, key)
    np.testing.assert_allclose(metrics["td_loss"], np.mean((both - target) ** 2), rtol=1e-4)
    np.testing.assert_allclose(metrics["penalty"], penalty.mean(), rtol=1e-4)


def test_each_phase_touches_its_own_part_only():
    state, data = begun(AGENT)
    parts = {"representation": "representation", "behaviour": "behaviour", "policy": "planner"}
    for phase, own in parts.items():
        before = jax.tree.map(np.array, state)
        state, _, made = updates(AGENT, phase, state, data, 0, 0, 3)
        assert int(made) == 3
        for name in LcbState._fields:
            equal = eqx.tree_equal(
                getattr(before, name), jax.tree.map(np.array, getattr(state, name))
            )
            assert bool(equal) == (name != own), (phase, name)


def test_to_begin_again_changes_nothing():
    state, data = begun(AGENT)
    state, _, _ = updates(AGENT, "policy", state, data, 0, 0, 3)
    again, columns = AGENT.begin("policy", state, DeviceSet(random_set(200), SPEC, 16))
    assert eqx.tree_equal(again, state)
    assert eqx.tree_equal(columns, data)


def test_the_penalty_is_larger_away_from_the_data():
    """Data on a line of actions: other actions and states are uncertain."""
    rng = np.random.default_rng(0)
    rows = 2_000
    columns = random_set(rows)
    action = np.stack([rng.uniform(-1, 1, rows), np.zeros(rows)], 1).astype(np.float32)
    data = DeviceSet(columns._replace(action=action), SPEC, 64)
    agent = replace(AGENT, representation=Contrastive(feature_sizes=(64,), feature_dim=64))
    state = agent.init(SPEC, jax.random.PRNGKey(0))
    state, _ = agent.begin("representation", state, data)
    state, _, _ = updates(agent, "representation", state, data, 0, 0, 200)
    state, data = agent.begin("policy", state, data)
    here = float(jnp.mean(data.columns["penalty"]))
    away = agent.penalty(state, columns.observation, np.sign(rng.normal(size=(rows, 2))))
    assert float(jnp.mean(away)) > 1.5 * here


def test_bad_settings_are_named():
    with pytest.raises(InputError, match=r"random_share is 0\.5"):
        CtrlLcb(noise=Negatives(random_share=0.5))
    with pytest.raises(InputError, match="representation_updates is 0"):
        CtrlLcb(representation_updates=0)


def test_the_penalty_of_random_features_is_that_of_a_gaussian_kernel():
    """Many cosines: their inner products are the kernel, so the penalty is kernel regression's."""
    agent = replace(AGENT, penalty_features=4_096, penalty_width=0.7)
    state, data = begun(agent, 60)
    phi = np.asarray(agent.phi(state, *data.rows_at(0, len(data))[:2]), np.float64)
    half = len(phi) // 2
    width = 0.7 * np.median(np.linalg.norm(phi[:half] - phi[half:], axis=1))
    squares = np.sum((phi[:, None] - phi[None]) ** 2, axis=-1)
    gram = np.exp(-squares / (2 * width**2))
    # phi' (F'F + ridge)^-1 phi = (k - k_n' (K + ridge)^-1 k_n) / ridge
    solved = np.linalg.solve(gram + agent.confidence.ridge * np.eye(len(gram)), gram)
    expected = np.sqrt((1 - np.sum(gram * solved, axis=0)) / agent.confidence.ridge)
    expected = np.minimum(agent.confidence.bonus_scale * expected, 2.0)
    np.testing.assert_allclose(data.columns["penalty"], expected, rtol=0.05)
