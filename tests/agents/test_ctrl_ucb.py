"""What an agent's step may and may not touch, and that it repeats."""

from collections import Counter
from dataclasses import dataclass, fields, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import phimu.environments  # noqa: F401  (registers the probes)
from phimu.agents.ctrl_ucb import CtrlUcb
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Collection, Schedule
from phimu.confidence import Elliptical
from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.normalisation import AsIs, RunningNormaliser, begun
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.policies import TanhGaussian
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import Exponential
from phimu.settings import override
from phimu.training.learner import Learner, LearnerState
from phimu.training.online import OnlineRun
from phimu.types import Batch, Feed, Spec

SPEC = Spec(1, 1)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def equal(one, other):
    """Bit for bit."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(leaves(one), leaves(other), strict=True)
    )


# Planning leaves phi alone


def random_batch(seed, rewards_seed):
    """Transitions by `seed`; what only the planner reads by `rewards_seed`."""
    rng, of_planner = np.random.default_rng(seed), np.random.default_rng(rewards_seed)
    batch = Batch(
        observation=rng.uniform(-1, 1, (64, 1)).astype(np.float32),
        action=rng.uniform(-1, 1, (64, 1)).astype(np.float32),
        reward=of_planner.normal(size=64).astype(np.float32),
        next_observation=rng.uniform(-1, 1, (64, 1)).astype(np.float32),
        terminated=of_planner.integers(2, size=64).astype(np.float32),
        truncated=np.zeros(64, np.float32),
    )
    return Feed(batch, {"negatives": rng.uniform(-1, 1, (16, 1)).astype(np.float32)})


CONTRAST_ONLY = CtrlUcb(  # nothing else to learn phi by: no reward head, no bonus
    Contrastive(noise=Negatives(16), feature_dim=32, feature_sizes=(32,)),
    Elliptical(bonus_scale=0.0),
    SoftActorCritic(critic_width=32, actor_sizes=(32,), critic_learning_rate=1e-2),
)


def compiled(agent):
    return jax.jit(partial(agent.update, "policy"))


UPDATE = compiled(CONTRAST_ONLY)


def test_planning_leaves_phi_bit_identical():
    """Two agents that differ in rewards, ends and the planner's key keep one representation."""
    states = [CONTRAST_ONLY.init(SPEC, jax.random.PRNGKey(0)) for _ in range(2)]
    start = states[0]
    for t in range(20):
        for which in range(2):
            key = jax.random.PRNGKey(1_000 * which + t)
            feed = random_batch(t, rewards_seed=1_000 * which + t)
            states[which], _ = UPDATE(states[which], feed, key)
    assert equal(states[0].representation, states[1].representation)
    assert not equal(states[0].planner.critic, states[1].planner.critic)
    assert not equal(states[0].planner.actor, states[1].planner.actor)
    assert not equal(states[0].representation.slow.phi, start.representation.slow.phi)


def test_held_targets_read_the_phi_before():
    """With another phi before, the TD loss differs, and Q of the batch does not."""
    (agent,) = override((CONTRAST_ONLY,), {"feature_every": 100, "target_every": 100})
    state = agent.init(SPEC, jax.random.PRNGKey(0))
    held = state.representation.held
    other = held._replace(phi=jax.tree.map(lambda x: 1.5 * x, held.phi))
    moved = state._replace(representation=state.representation._replace(held=other))
    feed, key = random_batch(0, 0), jax.random.PRNGKey(0)
    update = compiled(agent)
    (_, one), (_, two) = (update(s, feed, key) for s in (state, moved))
    assert one["td_loss"] != two["td_loss"]
    assert one["value"] == two["value"]


def test_a_bonus_is_counted_from_what_the_latest_transitions_had():
    """A critic with a baseline learns as one from whose rewards their mean bonus is taken."""
    (plain,) = override((CONTRAST_ONLY,), {"bonus_scale": 1.0})
    counted = replace(plain, bonus_baseline=8)
    store = Replay(SPEC, 64, 0)
    for row in range(40):
        store.add(np.float32([row / 40]), np.float32([0.5]), 0.0, np.zeros(1), False, False)
    state = counted.init(SPEC, jax.random.PRNGKey(0))
    state, _ = counted.begin("policy", state, store, AsIs(), np.random.default_rng(0))
    latest = store.latest(8)
    usual = np.mean(counted.bonus(state, latest.observation, latest.action))
    np.testing.assert_allclose(state.usual_bonus, usual, rtol=1e-5)
    assert usual > 0

    feed, key = random_batch(0, 0), jax.random.PRNGKey(0)
    learned, _ = compiled(counted)(state, feed, key)
    shifted = feed.batch._replace(reward=feed.batch.reward - np.float32(usual))
    expected, _ = compiled(plain)(
        state._replace(usual_bonus=None), feed._replace(batch=shifted), key
    )
    critics = (leaves(each.planner.critic) for each in (learned, expected))
    for found, wanted in zip(*critics, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_the_planner_reads_the_slow_phi():
    state = CONTRAST_ONLY.init(SPEC, jax.random.PRNGKey(0))
    slow = jax.tree.map(lambda x: 1.1 * x, state.representation.slow)
    moved = state._replace(representation=state.representation._replace(slow=slow))
    feed, key = random_batch(0, 0), jax.random.PRNGKey(0)
    one, other = (UPDATE(s, feed, key)[0] for s in (state, moved))
    assert equal(one.representation.features, other.representation.features)
    assert not equal(one.planner.critic, other.planner.critic)
    pair = feed.batch.observation, feed.batch.action
    np.testing.assert_array_equal(
        CONTRAST_ONLY.phi(other, *pair), other.representation.slow.phi(*pair)
    )


TOGETHER = replace(CONTRAST_ONLY, critic_trains_phi=2.0)


def test_where_the_critic_trains_phi_rewards_reach_it():
    update = compiled(TOGETHER)
    start, key = TOGETHER.init(SPEC, jax.random.PRNGKey(0)), jax.random.PRNGKey(1)
    one, other = (update(start, random_batch(0, rewards), key)[0] for rewards in (0, 1))
    assert not equal(one.representation.features.phi, other.representation.features.phi)
    assert equal(one.representation.features.mu, other.representation.features.mu)
    again = UPDATE(start, random_batch(0, 0), key)[0]
    assert not equal(one.representation.features.phi, again.representation.features.phi)


def test_the_critic_that_trains_phi_reads_the_current_one_and_targets_the_slow_one():
    update = compiled(TOGETHER)
    start, key = TOGETHER.init(SPEC, jax.random.PRNGKey(0)), jax.random.PRNGKey(1)
    feed = random_batch(0, 0)
    ends = feed._replace(batch=feed.batch._replace(terminated=np.ones(64, np.float32)))
    moved = start.representation
    moved = moved._replace(slow=jax.tree.map(lambda x: 1.1 * x, moved.slow))
    for given, same in ((ends, True), (feed, False)):  # without a future there is no target phi
        one, other = (
            update(start._replace(representation=r), given, key)[0].planner.critic
            for r in (start.representation, moved)
        )
        assert equal(one, other) == same


def test_a_critic_that_trains_phi_takes_one_step_a_round():
    with pytest.raises(InputError, match="planner_steps must be 1"):
        replace(TOGETHER, planner_steps=2)


def test_a_target_critic_is_copied_with_the_phi_it_learned_from():
    parts = (TOGETHER,)
    override(parts, {"critic_trains_phi": 0.0, "planner_steps": 2, "target_every": 0})
    held = {"critic_trains_phi": 0.0, "feature_every": 100}
    override(parts, held | {"planner_steps": 2, "target_every": 200})
    with pytest.raises(InputError, match=r"target_every is 100: give .* planner_steps, 200,"):
        override(parts, held | {"planner_steps": 2, "target_every": 100})
    with pytest.raises(InputError, match=r"target_every is 0: give .* 100, so"):
        override(parts, held | {"target_every": 0})


def test_the_planner_alone_changes_nothing_but_itself():
    """Many updates on one slow phi; the values move, phi and what it was learned with do not."""
    agent = CONTRAST_ONLY
    state = agent.init(SPEC, jax.random.PRNGKey(0))
    before = jax.tree.map(jnp.copy, state.representation)
    slow_phi, planner = state.representation.slow.phi, state.planner
    update = jax.jit(lambda p, batch, key: agent.planner.update(p, slow_phi, batch, key))
    for t in range(50):
        planner, _ = update(planner, random_batch(t, t).batch, jax.random.PRNGKey(t))
    assert equal(state.representation, before)
    assert not equal(planner.critic, state.planner.critic)


# Actions


@pytest.fixture(scope="module")
def certain():
    """A state whose policy is all but sure of the action tanh(3) = 0.995."""
    state = CONTRAST_ONLY.init(SPEC, jax.random.PRNGKey(0))
    last = state.planner.actor.network.layers[-1]
    actor = eqx.tree_at(
        lambda a: (a.network.layers[-1].weight, a.network.layers[-1].bias),
        state.planner.actor,
        (jnp.zeros_like(last.weight), jnp.array([3.0, -9.0])),
    )
    return state._replace(planner=state.planner._replace(actor=actor))


def actions(certain, uniform_mix, deterministic=False):
    schedule = Schedule(Collection(uniform_mix=uniform_mix))
    learner = Learner(CONTRAST_ONLY, SPEC, schedule, seed=0)
    learner.state = LearnerState(AsIs(), certain)
    observation = np.zeros((4_000, 1), np.float32)
    chosen = learner.mode()(observation) if deterministic else learner.act(observation, 1)
    return chosen[:, 0]


def test_uniform_mix_of_one_is_uniform(certain):
    drawn = actions(certain, 1.0)
    assert scipy.stats.kstest(drawn, scipy.stats.uniform(-1, 2).cdf).pvalue > 0.01


def test_uniform_mix_of_zero_is_the_policy(certain):
    assert np.abs(actions(certain, 0.0) - np.tanh(3.0)).max() < 0.01


def test_uniform_mix_is_a_share_of_the_actions(certain):
    drawn = actions(certain, 0.25)
    uniform = np.abs(drawn - np.tanh(3.0)) > 0.01
    assert abs(uniform.mean() - 0.25) < 0.03  # four standard deviations
    assert scipy.stats.kstest(drawn[uniform], scipy.stats.uniform(-1, 2).cdf).pvalue > 0.01


def test_evaluation_uses_the_mode(certain):
    np.testing.assert_allclose(actions(certain, 1.0, deterministic=True), np.tanh(3.0), rtol=1e-6)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_zero_and_one_is_refused(share):
    with pytest.raises(InputError, match="uniform_mix"):
        Collection(uniform_mix=share)


# Normalisation


def test_normaliser_has_the_mean_and_variance_of_all_it_has_seen():
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(n, 3)) * [1, 50, 0] + [2, -300, 5] for n in (4, 1, 30)]
    normaliser = RunningNormaliser(3)
    for batch in batches:
        normaliser = normaliser.include(jnp.asarray(batch, jnp.float32))
    everything = np.concatenate(batches)
    np.testing.assert_allclose(normaliser.mean, everything.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normaliser.variance, everything.var(axis=0), rtol=1e-3, atol=1e-6)
    scaled = np.asarray(normaliser(jnp.asarray(everything, jnp.float32)))
    np.testing.assert_allclose(scaled[:, :2].std(axis=0), 1.0, rtol=1e-3)
    np.testing.assert_allclose(scaled[:, 2], 0.0, atol=0.1)  # a component that never varies
    assert np.abs(normaliser(jnp.full((1, 3), 1e9))).max() <= 10


# Through the online loop

TRACES = Counter()


class CountedActor(eqx.Module):
    """An actor that counts how often it is traced, which is how often acting is compiled."""

    actor: TanhGaussian

    def mode(self, observation):
        TRACES["mode"] += 1
        return self.actor.mode(observation)

    def sample(self, observation, key):
        TRACES["sample"] += 1
        return self.actor.sample(observation, key)


@dataclass(frozen=True)
class Counted(CtrlUcb):
    """CTRL-UCB that counts how often its step is traced, and its actor's."""

    def update(self, phase, state, feed, key):
        TRACES["update"] += 1
        return super().update(phase, state, feed, key)

    def policy(self, state):
        return CountedActor(super().policy(state))


def test_one_trace_per_step_and_the_bonus_is_part_of_the_value(tiny):
    """With everything on: bonus, its prediction, normalisation, (s, a) beside phi, fewer rows."""
    chosen = override(
        tiny("ctrl-ucb-l"),
        {
            "bonus_scale": 10.0,
            "bonus_features": "unit_phi",
            "ridge": 100.0,
            "refresh_every": 5,
            "covariance_sample": 50,
            "normalise_observations": True,
            "beside_phi": "scaled_pair",
            "planner_rows": 32,
            "uniform_mix": 0.1,
        },
    )
    parts = {field.name: getattr(chosen.settings, field.name) for field in fields(chosen.settings)}
    TRACES.clear()
    run = OnlineRun(
        Counted(**parts), open_task("phimu/probe-ConstantReward-v0"), chosen.schedule, seed=0
    )
    counts = set()
    for _ in range(300):
        run.advance()
        if run.step in (210, 290):
            run.policy()(np.zeros(1, np.float32))
        counts.add(TRACES["update"])
        assert TRACES["sample"] <= 1, f"{TRACES} after {run.step} steps"
        assert TRACES["mode"] <= 1, f"{TRACES} after {run.step} steps"
    # One program of several updates: its body is traced for its shapes and for itself, and then,
    # whatever number of updates there is until the covariance is due, never again.
    assert len(counts - {0}) == 1, f"the update was traced anew: {counts}"
    assert (TRACES["sample"], TRACES["mode"]) == (1, 1)

    where = np.zeros((3, 1), np.float32), np.array([[-0.5], [0.0], [0.5]], np.float32)
    bonus, value = (run.learner.query(name, *where) for name in ("bonus", "q_value"))
    assert (bonus > 0.3).all()
    np.testing.assert_allclose(value, 1.0 + bonus, atol=0.1)
    assert float(run.metrics["bonus_loss"]) < 0.05
    # The sample is scaled to the buffer, and refreshed as it grows: 10 / sqrt(100 + n) at least.
    assert (bonus >= 10 / np.sqrt(100 + 300)).all()
    assert (bonus < 1.0).all()  # 10 / sqrt(100), before anything was seen


def short_run(chosen, seed):
    run = OnlineRun(
        chosen.settings, open_task("phimu/probe-MatchObservation-v0"), chosen.schedule, seed
    )
    for _ in range(209):
        run.advance()
    return run


@pytest.mark.parametrize("agent", ["sac", "ctrl-ucb-m", "ctrl-ucb-l"])
def test_one_seed_is_one_run_and_two_seeds_are_two(tiny, agent):
    first, again, other = (short_run(tiny(agent), seed) for seed in (3, 3, 4))
    assert first.updates == 40
    assert equal(first.state, again.state)
    assert equal(first.replay.rows, again.replay.rows)
    assert first.returns == again.returns
    assert not equal(first.state, other.state)
    assert not equal(first.replay.rows, other.replay.rows)


# The covariance's clock


def test_the_covariance_has_a_clock_where_there_is_a_bonus():
    assert CONTRAST_ONLY.phases == (Phase("policy"),)
    curious = replace(CONTRAST_ONLY, confidence=Elliptical(bonus_scale=1.0, refresh_every=7))
    assert curious.phases == (Phase("policy", begin_every=7),)


def test_the_bonus_can_be_in_units_of_the_reward():
    """Rewards of 7: the same exploration is worth seven times as much."""
    replay, rng = Replay(SPEC, 100, 0), np.random.default_rng(0)
    for observation, action in rng.uniform(-1, 1, (60, 2, 1)).astype(np.float32):
        replay.add(observation, action, 7.0, observation, False, False)
    found = []
    for unit in ("one", "reward"):
        agent = replace(CONTRAST_ONLY, confidence=Elliptical(0.5, bonus_unit=unit))
        state = agent.init(SPEC, jax.random.PRNGKey(0))
        state, _ = agent.begin("policy", state, replay, AsIs(), np.random.default_rng(0))
        feed = random_batch(0, 0)
        found.append(agent.bonus(state, feed.batch.observation, feed.batch.action))
        _, metrics = compiled(agent)(state, feed, jax.random.PRNGKey(0))
        reward = np.abs(feed.batch.reward).mean()
        share = metrics["bonus"] / (metrics["bonus"] + reward)
        np.testing.assert_allclose(metrics["bonus_share"], share, rtol=1e-5)
    np.testing.assert_allclose(found[1], 7 * found[0], rtol=1e-5)


def test_the_first_covariance_sees_observations_as_the_first_update_does():
    """Far from zero and narrow: by statistics of nothing, all that follows would look new."""
    agent = replace(CONTRAST_ONLY, confidence=Elliptical(1.0, bonus_kernel=(64, 0.5)))
    replay, rng = Replay(SPEC, 1_000, 0), np.random.default_rng(0)
    for _ in range(500):
        observation = 30 + 0.1 * rng.normal(size=1).astype(np.float32)
        replay.add(observation, rng.uniform(-1, 1, 1), 0.0, observation, False, False)
    state = agent.init(SPEC, jax.random.PRNGKey(0))
    before = RunningNormaliser(1)
    state, _ = agent.begin("policy", state, replay, before, np.random.default_rng(0))
    batch = replay.latest(64)
    seen = before.include(jnp.asarray(batch.observation))
    bonus = agent.bonus(state, seen(jnp.asarray(batch.observation)), jnp.asarray(batch.action))
    assert float(jnp.mean(bonus)) < 0.3
    # Once it has seen something it is left as it is.
    assert begun(seen, batch.observation) is seen
    assert begun(AsIs(), batch.observation) == AsIs()


# (s, a) beside phi


def test_raw_pairs_weigh_as_much_as_phi_in_the_critic():
    """Q of a linear critic by hand: (s, a) times sqrt(d / (observation_dim + action_dim))."""
    agent = CtrlUcb(
        Contrastive(
            ratio=Exponential(phi_output="unit_variance"), feature_dim=45, feature_sizes=(8,)
        ),
        planner=SoftActorCritic(critic="linear", actor_sizes=(8,)),
        beside_phi="scaled_pair",
    )
    state = agent.init(Spec(3, 2), jax.random.PRNGKey(0))
    rng = np.random.default_rng(0)
    observation, action = rng.normal(size=(16, 3)), rng.uniform(-1, 1, (16, 2))
    found = agent.q_value(state, jnp.asarray(observation), jnp.asarray(action))

    phi = np.asarray(agent.phi(state, jnp.asarray(observation), jnp.asarray(action)), np.float64)
    inputs = np.concatenate([phi, 3.0 * observation, 3.0 * action], axis=1)  # sqrt(45 / 5) = 3
    heads = [jax.tree.map(np.float64, head.out) for head in state.planner.critic]
    values = [inputs @ head.weight + head.bias for head in heads]
    np.testing.assert_allclose(found, np.minimum(*values)[:, 0], rtol=1e-5, atol=1e-5)


def test_the_planner_can_learn_more_often_than_phi(tiny):
    """With planner_steps 3 a round has one update of both and two that leave phi as it is."""
    chosen = override(tiny("ctrl-ucb-m"), {"planner_steps": 3, "gradient_steps": 1})
    agent = chosen.settings
    assert [(phase.name, phase.updates) for phase in agent.phases] == [
        ("policy", 0),
        ("planner", 2),
    ]
    run = OnlineRun(agent, open_task("phimu/probe-MatchObservation-v0"), chosen.schedule, 0)
    while not run.updates:
        run.advance()
    assert run.updates == 3
    assert {"nce_loss", "td_loss"} <= run.metrics.keys()
    before = run.state.agent
    drawn = agent.draw("planner", run.replay, np.random.default_rng(0))
    feed = Feed(split(jnp.asarray(drawn.rows), run.learner.spec))
    after, _ = jax.jit(agent.update, static_argnums=0)(
        "planner", before, feed, jax.random.PRNGKey(0)
    )
    assert equal(before.representation, after.representation)
    assert not equal(before.planner.critic, after.planner.critic)
