"""CTRL-LCB: its penalty and its two frozen parts against float64, and a careful choice."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents import preset
from phimu.agents.ctrl_lcb import CHUNK, CtrlLcb
from phimu.agents.protocol import Phase, answers
from phimu.agents.schedule import LOGGED_NORMALISED
from phimu.confidence import Elliptical
from phimu.data.device_set import DeviceSet
from phimu.data.logged import Transitions
from phimu.data.rows import split
from phimu.errors import InputError
from phimu.planning.behaviour import BehaviourCloning
from phimu.planning.held_near import NearActions, NearClone
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.settings import names, override
from phimu.training.learner import Learner, LearnerState
from phimu.types import Spec

SPEC = Spec(3, 2)
AGENT = CtrlLcb(
    representation=Contrastive(
        noise=Negatives(negatives=8, random_share=0.0), feature_sizes=(16,), feature_dim=8
    ),
    confidence=Elliptical(bonus_scale=3.0, ridge=0.5),
    planner=NearClone(
        BehaviourCloning(behaviour_updates=10, behaviour_sizes=(16,)),
        actor_critic=SoftActorCritic(critic_width=16, actor_sizes=(16,)),
    ),
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
    soft = replace(AGENT.planner.actor_critic, entropy_in_target=False)
    agent = replace(AGENT, planner=replace(AGENT.planner, actor_critic=soft))
    state, data = begun(agent)
    key = jax.random.PRNGKey(3)
    drawn = data.sample(key)
    rows = np.asarray(drawn.index)
    penalty = oracle_penalty(agent, state, random_set(200))[rows]
    batch = split(drawn.rows, SPEC)
    noise, _ = jax.random.normal(key, (2, *batch.action.shape))
    following = state.normaliser(batch.next_observation)
    planner = state.agent.planner.actor_critic
    action, _ = planner.actor.with_noise(following, noise)
    phi = state.agent.representation.slow.phi
    heads = planner.slow_critic
    values = np.array([head(phi(following, action)) for head in heads], np.float64).min(0)
    target = np.asarray(batch.reward, np.float64) - penalty
    target += soft.discount * (1 - np.asarray(batch.terminated)) * values
    here = phi(state.normaliser(batch.observation), batch.action)
    both = np.array([head(here) for head in planner.critic], np.float64)
    _, metrics = learn(agent, "policy", state, data, key)
    np.testing.assert_allclose(metrics["td_loss"], np.mean((both - target) ** 2), rtol=1e-4)
    np.testing.assert_allclose(metrics["penalty"], penalty.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["reward"], np.mean(batch.reward), rtol=1e-4)


def test_each_phase_touches_its_own_part_only():
    state, data = begun(AGENT)

    def parts(state):
        named = state._asdict()
        return named | named.pop("planner")._asdict()

    own_parts = {
        "representation": "representation",
        "behaviour": "behaviour",
        "policy": "actor_critic",
    }
    for phase, own in own_parts.items():
        learner = learner_of(AGENT, data, state)
        assert learner.learn_from(phase, data, 0, 3) == 3
        before, after = (jax.tree.map(np.array, each) for each in (state, learner.state))
        assert eqx.tree_equal(before.normaliser, after.normaliser)
        pairs = zip(parts(before.agent).items(), parts(after.agent).values(), strict=True)
        for (name, here), there in pairs:
            assert bool(eqx.tree_equal(here, there)) == (name != own), (phase, name)
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
    confidence = replace(AGENT.confidence, bonus_kernel=(2_048, 0.7))
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


NEAR_ACTIONS = replace(AGENT, planner=NearActions(0.5, 0.3, actor_sizes=(16,), critic_width=16))


def test_the_planner_is_one_choice():
    """What one planner has no use for cannot be set beside it, and what it lacks is not asked."""
    small = preset("ctrl-lcb", "small", logged=True)
    near = override(small, {"planner": "squared_error", "actor_penalty": 0.3})
    assert near.settings.planner == NearActions(actor_penalty=0.3)
    assert near.settings.phases == (Phase("representation", 20_000), Phase("policy"))
    clones = {"behaviour_updates", "behaviour_weight", "divergence", "initial_entropy_weight"}
    assert clones <= set(names(small))
    assert not clones & set(names(near))
    assert "actor_penalty" not in names(small)
    with pytest.raises(InputError, match="no setting 'behaviour_updates'"):
        override(near, {"behaviour_updates": 5})
    assert answers(small.settings, "behaviour_log_density")
    assert not answers(near.settings, "behaviour_log_density")


def test_squared_error_is_in_the_target_and_penalty_beside_it(learn):
    """The first TD loss by hand: r - penalty + discount (min Q' - 0.3 |a' - the next logged|^2)."""
    state, data = begun(NEAR_ACTIONS)
    key = jax.random.PRNGKey(3)
    drawn = data.sample(key)
    rows = np.asarray(drawn.index)
    batch = split(drawn.rows, SPEC)
    following = state.normaliser(batch.next_observation)
    planner = state.agent.planner
    noise = np.clip(0.2 * np.asarray(jax.random.normal(key, batch.action.shape)), -0.5, 0.5)
    action = np.clip(planner.slowly.slow_actor.mode(following) + noise, -1, 1)
    phi = state.agent.representation.slow.phi
    heads = planner.slowly.slow_critic
    value = np.array([head(phi(following, action)) for head in heads], np.float64).min(0)
    logged = random_set(200)
    after = np.minimum(rows + 1, 199)
    goes_on = logged.episode[after] == logged.episode[rows]
    goes_on &= after > rows
    value -= 0.3 * goes_on * np.sum((action - logged.action[after]) ** 2, axis=1)
    target = np.asarray(batch.reward, np.float64)
    target -= oracle_penalty(NEAR_ACTIONS, state, logged)[rows]
    target += 0.99 * (1 - np.asarray(batch.terminated)) * value
    here = phi(state.normaliser(batch.observation), batch.action)
    both = np.array([head(here) for head in planner.critic], np.float64)
    _, metrics = learn(NEAR_ACTIONS, "policy", state, data, key)
    np.testing.assert_allclose(metrics["td_loss"], np.mean((both - target) ** 2), rtol=1e-4)


@pytest.mark.parametrize("weight", [0.01, 1e3])
def test_squared_error_solves_the_probe_or_clones(learned, modes, weight):
    """Of random actions those at s / 2 are rewarded; their mean is 0."""
    rng, rows = np.random.default_rng(0), 2_000
    observation, action = rng.uniform(-1, 1, (2, rows, 1)).astype(np.float32)
    reward = -((action - observation / 2) ** 2)[:, 0]
    ends = np.ones(rows, bool), np.zeros(rows, bool), np.arange(rows, dtype=np.int32)
    logged = Transitions(observation, action, reward, observation, *ends)
    rates = {"actor_learning_rate": 3e-3, "critic_learning_rate": 1e-2}
    agent = replace(
        NEAR_ACTIONS,
        planner=replace(NEAR_ACTIONS.planner, actor_penalty=weight, critic_width=64, **rates),
        confidence=Elliptical(bonus_scale=0.0),
        beside_phi="pair",
        precompute=False,
    )
    state, _ = learned(agent, DeviceSet(logged, Spec(1, 1), 128), 800)
    found = modes(agent, state, [[-0.8], [0.0], [0.8]])[:, 0]
    expected = [-0.4, 0.0, 0.4] if weight < 1 else [0.0, 0.0, 0.0]
    np.testing.assert_allclose(found, expected, atol=0.15)


def test_perturbed_contrast_trains_on_logged_data_and_is_not_solved(walk):
    """Plain contrast nearly tells every s' of this circle apart; blurred by a deviation it cannot,
    though it learns."""
    losses = {}
    for name in ("small", "perturbed"):
        sizes = {"feature_dim": 16, "feature_sizes": (32,), "feature_learning_rate": 3e-3}
        if name == "perturbed":
            sizes["temperature"] = 4.0
        settings, schedule = override(preset("ctrl-lcb", name, logged=True), sizes)
        learner = Learner(settings, walk.spec, schedule, seed=0)
        learner.normalise_by(walk.latest(len(walk)).observation)
        learner.learn_from("representation", walk, 0, 300)
        losses[name] = float(learner.metrics["nce_loss"])
        spread = learner.state.agent.representation.spread
        assert (spread is None) == (name == "small")
    chance = np.log(walk.batch_size)
    assert losses["small"] < losses["perturbed"] - 0.5
    assert losses["perturbed"] < chance - 0.3


@pytest.mark.parametrize("planner", [AGENT.planner, NEAR_ACTIONS.planner])
def test_an_exact_penalty_is_subtracted_wherever_the_policy_acts(planner):
    """Q is its network less the penalty, as far as that is beyond the usual."""
    agent = replace(AGENT, planner=planner, exact_penalty=True, beyond_usual=True)
    state, data = begun(agent)
    usual = np.quantile(data.columns["penalty"], 0.95)
    np.testing.assert_allclose(state.agent.usual, usual, rtol=1e-5)
    rng = np.random.default_rng(1)
    seen = random_set(200).observation[:30] + 10 * rng.normal(size=(30, 3))
    observation = state.normaliser(jnp.asarray(seen, jnp.float32))
    action = jnp.asarray(rng.uniform(-1, 1, (30, 2)), jnp.float32)
    phi = agent.phi(state.agent, observation, action)
    heads = agent.planner.critic_of(state.agent.planner)
    network = np.array([head.head(phi) for head in heads]).min(axis=0)
    counted = np.asarray(agent.penalty(state.agent, observation, action)) - usual
    assert counted.max() > 0.01
    found = agent.q_value(state.agent, observation, action)
    np.testing.assert_allclose(found, network - np.maximum(counted, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precompute", [True, False])
def test_only_what_is_beyond_the_usual_counts(learn, precompute):
    agent = replace(AGENT, beyond_usual=True, precompute=precompute)
    state, data = begun(AGENT)
    fresh = DeviceSet(random_set(200), SPEC, 16)
    moved, penalised = agent.begin("policy", state.agent, fresh, state.normaliser, None)
    all_of_it = oracle_penalty(AGENT, state, random_set(200))
    usual = np.quantile(all_of_it, 0.95)
    np.testing.assert_allclose(moved.usual, usual, rtol=1e-4)
    key = jax.random.PRNGKey(3)
    counted = np.maximum(all_of_it - usual, 0.0)
    assert counted.any()
    of_columns = data.with_columns(penalty=jnp.asarray(counted, jnp.float32))
    _, expected = learn(AGENT, "policy", state, of_columns, key)
    _, found = learn(agent, "policy", LearnerState(state.normaliser, moved), penalised, key)
    for name in ("td_loss", "penalty"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-6)
