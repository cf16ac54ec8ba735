"""Compiled calls: however updates are put into them, they are the same updates."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents.schedule import LOGGED, LOGGED_NORMALISED, Collection, Schedule
from phimu.data.device_set import DeviceSet
from phimu.data.logged import LoggedDataset, Transitions
from phimu.data.replay import Replay
from phimu.data.rows import split, width
from phimu.environments.task import open_task
from phimu.errors import NotFinite
from phimu.networks import product
from phimu.settings import override
from phimu.training import online
from phimu.training.learner import Learner
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun
from phimu.training.streams import INIT, UPDATE, key
from phimu.types import Batch, Drawn, Feed, Metrics, Spec

pytestmark = pytest.mark.usefixtures("fully_optimised")
SPEC = Spec(1, 3)


class Summed(NamedTuple):
    """What was added up; as a policy, the action whatever the observation, and noise around it."""

    action: jax.Array

    def mode(self, observation: jax.Array) -> jax.Array:
        return jnp.broadcast_to(self.action, (*observation.shape[:-1], *self.action.shape))

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        mode = self.mode(observation)
        noise = jax.random.uniform(key, mode.shape)
        return mode + noise, jnp.zeros(mode.shape[:-1])


@dataclass(frozen=True)
class Summing:
    """An agent that adds up rewards, with the greatest as its gradient."""

    def init(self, spec: Spec, key: jax.Array) -> Summed:
        return Summed(jnp.zeros(spec.action_dim))

    def policy(self, state: Summed) -> Summed:
        return state

    def update(
        self, phase: str, state: Summed, feed: Feed, key: jax.Array
    ) -> tuple[Summed, Metrics]:
        noise = jax.random.uniform(key, state.action.shape)
        metrics = {"td_loss": jnp.ones(()), "critic_gradient": jnp.max(feed.batch.reward)}
        return Summed(state.action + jnp.sum(feed.batch.reward) * noise), metrics


def drawn(reward: float) -> Drawn:
    return Drawn(np.full((2, width(SPEC)), reward, np.float32))


def summing(seed: int = 0, schedule: Schedule | None = None) -> Learner:
    return Learner(Summing(), SPEC, schedule or Schedule(), seed)


def assert_equal(one: Any, other: Any) -> None:
    for here, there in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(here, there)


def test_updates_run_from_the_first_to_the_last_that_is_there():
    several = [drawn(reward) for reward in (1.0, 2.0, 3.0)]
    singly, at_once = summing(7), summing(7)
    for number, each in enumerate(several):
        singly.learn("policy", 10 + number, [each], room=1)
        singly.check(0)
    at_once.learn("policy", 10, several, room=5)  # two places stay empty
    at_once.check(0)
    assert np.abs(singly.state.agent.action).min() > 0
    assert_equal(singly.state, at_once.state)
    assert {name: float(x) for name, x in at_once.metrics.items()} == {
        "td_loss": 1.0,
        "critic_gradient": 3.0,
    }
    np.testing.assert_array_equal(at_once.mode()(np.zeros(1)), singly.state.agent.action)


@pytest.mark.parametrize("bad", [0, 2, 3])
def test_the_batch_that_brought_a_number_that_is_not_finite_is_found(bad):
    learner = summing()
    rewards = [1.0] * bad + [np.inf] + [np.nan] * (3 - bad)  # what follows is not to be blamed
    learner.learn("policy", 0, [drawn(reward) for reward in rewards], room=4)
    for _ in range(2):  # it stays bad: nothing is saved afterwards
        with pytest.raises(NotFinite, match="critic_gradient is inf at step 1,234: ") as caught:
            learner.check(1_234)
        assert caught.value.arrays.keys() == set(Batch._fields)
        np.testing.assert_array_equal(caught.value.arrays["reward"], [np.inf] * 2)


def a_set(reward: np.ndarray) -> LoggedDataset:
    """Rows of one episode whose observations count them."""
    rows = len(reward)
    count = np.arange(rows, dtype=np.float32)[:, None]
    flags = np.zeros(rows, bool), np.arange(rows) == rows - 1
    columns = Transitions(
        count, np.zeros((rows, 3), np.float32), reward, count + 1, *flags, np.zeros(rows, np.int32)
    )
    return LoggedDataset(columns, "counted", "arrays", "0" * 64)


def offline(reward: np.ndarray, schedule: Schedule = LOGGED) -> OfflineRun:
    schedule = replace(schedule, batch_size=2, checkpoint_every=1_000)
    return OfflineRun(Summing(), SPEC, schedule, 0, a_set(reward))


def test_on_logged_data_a_call_of_many_updates_is_as_many_calls_of_one():
    rng = np.random.default_rng(0)
    data = DeviceSet(a_set(rng.normal(size=50).astype(np.float32)).transitions, SPEC, 4)
    singly, at_once = summing(3, LOGGED), summing(3, LOGGED)
    for number in range(9):
        assert singly.learn_from("policy", data, 20 + number, 1) == 1
    assert at_once.learn_from("policy", data, 20, 9) == 9
    assert_equal(singly.state, at_once.state)
    assert_equal(singly.metrics, at_once.metrics)


def test_on_logged_data_the_first_update_that_is_not_finite_is_the_last_and_its_batch_is_told():
    """What it drew is drawn again, for the host never saw it."""
    reward = np.ones(200, np.float32)
    reward[50] = np.inf
    run = offline(reward)
    data = DeviceSet(a_set(reward).transitions, SPEC, 2)
    draws = [split(data.sample(key(0, UPDATE, number)).rows, SPEC) for number in range(1_000)]
    first = next(n for n, batch in enumerate(draws) if not np.isfinite(batch.reward).all())
    assert first > 2
    run._together = 1_000
    with pytest.raises(NotFinite, match=f"critic_gradient is inf at step {first + 1}: ") as caught:
        run.advance(1_000)
    assert run.step == first + 1
    for name, column in draws[first]._asdict().items():
        np.testing.assert_array_equal(caught.value.arrays[name], column)


@dataclass(frozen=True)
class Beginning(Summing):
    """Takes a row of the store as its action, once; the store is asked as `draw` asks it."""

    def begin(self, phase: str, state: Summed, store: Any, normaliser: Any, rng: Any) -> tuple:
        observation, _ = store.pairs(1, rng)
        assert len(store.sample(rng).rows) == store.batch_size
        return Summed(state.action + 100 + np.asarray(normaliser(observation[0]))), store


def test_what_an_agent_begins_with_it_may_draw_from_either_store():
    """The generator is that of the store: NumPy's on the host, a key on a device."""
    replay = Replay(SPEC, 10, 0, 2)
    data = a_set(np.arange(10, dtype=np.float32))
    for row in zip(*data.transitions[:6], strict=True):
        replay.add(*row)
    for store in (replay, DeviceSet(data.transitions, SPEC, 2)):
        learners = [Learner(Beginning(), SPEC, LOGGED, 0) for _ in range(3)]
        for learner, step in zip(learners, (5, 5, 6), strict=True):
            assert learner.begin("policy", store, step) is store
            assert float(learner.state.agent.action[0]) in range(100, 110)
        assert_equal(learners[0].state, learners[1].state)


@pytest.mark.parametrize(
    ("agent", "most"),
    [("sac", 32), pytest.param("ctrl-ucb-l", 3, marks=pytest.mark.thorough)],
)
def test_a_round_in_one_call_equals_single_updates_to_the_bit(tiny, agent, most, monkeypatch):
    """Also where refreshes of the covariance cut it, and a round is longer than a call."""
    own = {} if agent == "sac" else {"bonus_scale": 5.0, "refresh_every": 5}
    chosen = override(tiny(agent), {"gradient_steps": 7, "learning_starts": 70, **own})
    runs = []
    for at_most in (1, most):
        monkeypatch.setattr(online, "MOST", at_most)
        task = open_task("phimu/probe-MatchObservation-v0")
        runs.append(OnlineRun(chosen.settings, task, chosen.schedule, seed=0))
        for _ in range(73):
            runs[-1].advance()
        runs[-1].check()
    assert [run.updates for run in runs] == [28, 28]
    single, at_once = ((run.state, run.metrics) for run in runs)
    assert_equal(single, at_once)


def test_the_agents_own_update_is_the_one_of_the_loop(tiny):
    """What one calls by hand, with the key that the loop counts, is what a run does."""
    settings, schedule = tiny("sac")
    spec = Spec(1, 1)
    rows = np.random.default_rng(0).standard_normal((8, width(spec)), np.float32)
    learner = Learner(settings, spec, schedule, 3)
    state = settings.init(spec, key(3, INIT, 0))
    update = jax.jit(partial(settings.update, "policy"))
    for number in range(2):
        learner.learn("policy", number, [Drawn(rows)], room=1)
        state, metrics = update(state, Feed(split(rows, spec)), key(3, UPDATE, number))
    assert_equal(learner.state.agent, state)
    assert metrics.keys() == learner.metrics.keys()


# Acting


def test_so_many_actions_are_uniform_and_the_others_are_the_policys_own():
    """Without the mix the noise of the policy is the same: only who acts is decided besides."""
    mixed = summing(0, Schedule(Collection(uniform_mix=0.3)))
    plain = summing(0)
    for learner in (mixed, plain):
        state = learner.state
        learner.state = state._replace(agent=Summed(jnp.full(3, 5.0)))  # beyond what is uniform
    observation = np.zeros((20_000, 1), np.float32)
    with_mix, without = (learner.act(observation, 4) for learner in (mixed, plain))
    random = (with_mix < 5).all(axis=1)
    assert ((with_mix >= 5).all(axis=1) | random).all()  # whole actions, not parts of them
    assert random.mean() == pytest.approx(0.3, abs=0.015)  # more than four standard deviations
    np.testing.assert_array_equal(with_mix[~random], without[~random])
    assert np.abs(with_mix[random]).max() <= 1
    np.testing.assert_allclose(with_mix[random].mean(axis=0), 0, atol=0.04)
    np.testing.assert_allclose(with_mix[random].std(axis=0), 1 / np.sqrt(3), atol=0.02)
    np.testing.assert_array_equal(mixed.mode()(observation[:2]), np.full((2, 3), 5.0))


def test_the_mix_draws_anew_at_each_step():
    learner = summing(0, Schedule(Collection(uniform_mix=0.5)))
    observation = np.zeros((100, 1), np.float32)
    first, again, other = (learner.act(observation, step) for step in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


# What a run does to observations, and the precision of products


@dataclass(frozen=True)
class Watching(Summing):
    """Tells what an update is given."""

    def update(self, phase: str, state: Summed, feed: Feed, key: jax.Array) -> tuple:
        batch = feed.batch
        metrics = {
            "observation": jnp.mean(batch.observation),
            "next_observation": jnp.mean(batch.next_observation),
            "reward": jnp.mean(batch.reward),
        }
        metrics |= {name: jnp.mean(other) for name, other in feed.others.items()}
        metrics |= {name: jnp.mean(column) for name, column in feed.columns.items()}
        return state, metrics


def watched(learner: Learner, rows: np.ndarray) -> dict[str, float]:
    """Of an update on these rows, with the same as other observations and as a column."""
    others = {"negatives": rows[:, :1]}
    learner.learn("policy", 0, [Drawn(rows, others, {"column": rows[:, 0]})], room=1)
    learner.check(0)
    return {name: float(value) for name, value in learner.metrics.items()}


def test_online_the_normaliser_has_seen_each_batch_before_the_agent_does():
    rng = np.random.default_rng(0)
    several = [5 + 2 * rng.standard_normal((64, width(SPEC)), np.float32) for _ in range(3)]
    learner = Learner(Watching(), SPEC, Schedule(normalise_observations=True), 0)
    for number, rows in enumerate(several):
        told = watched(learner, rows)
        seen = np.concatenate(several[: number + 1]).astype(np.float64)
        mean, std = seen[:, 0].mean(), seen[:, 0].std()
        expected = (rows[:, 0].mean() - mean) / std
        assert told["observation"] == pytest.approx(expected, abs=1e-5)
        assert told["negatives"] == told["observation"]
        following = split(rows, SPEC).next_observation.mean()
        assert told["next_observation"] == pytest.approx((following - mean) / std, abs=1e-5)
        assert told["column"] == pytest.approx(rows[:, 0].mean(), abs=1e-5)  # as it is
        assert told["reward"] == pytest.approx(split(rows, SPEC).reward.mean(), abs=1e-5)
    assert float(learner.state.normaliser.count) == 3 * 64
    np.testing.assert_allclose(learner.state.normaliser.variance, [std**2], rtol=1e-5)


def test_not_asked_for_nothing_is_normalised():
    rows = 5 + np.random.default_rng(0).standard_normal((64, width(SPEC)), np.float32)
    told = watched(Learner(Watching(), SPEC, Schedule(), 0), rows)
    assert told["observation"] == pytest.approx(rows[:, 0].mean(), abs=1e-5)


def test_offline_the_statistics_are_those_of_the_dataset_and_stay():
    run = offline(np.zeros(101, np.float32), LOGGED_NORMALISED)
    for _ in range(2):
        np.testing.assert_allclose(run.state.normaliser.mean, [50.0], rtol=1e-6)
        np.testing.assert_allclose(run.state.normaliser.variance, [(101**2 - 1) / 12], rtol=1e-6)
        assert float(run.state.normaliser.count) == 101
        run.advance(30)
    watching = Learner(Watching(), SPEC, replace(LOGGED_NORMALISED, batch_size=2), 0)
    watching.normalise_by(a_set(np.zeros(101, np.float32)).transitions.observation)
    told = watched(watching, np.full((2, width(SPEC)), 50.0, np.float32))
    assert told["observation"] == 0.0


@dataclass(frozen=True)
class Multiplying(Summing):
    """Multiplies in an update, and backwards, as every network does."""

    def update(self, phase: str, state: Summed, feed: Feed, key: jax.Array) -> tuple:
        ones = jnp.ones((3, 1))
        value, slope = jax.value_and_grad(lambda x: jnp.sum(product(x, ones)[:1]))(
            feed.batch.action
        )
        back = product(slope[:1] + feed.batch.action[:1] - 1, ones)
        return state, {"product": value, "of_slope": back[0, 0]}


def test_bfloat16_is_of_products_in_updates_alone():
    """Operands lose digits, for 1 + 2^-9 is 1 in bfloat16; weights and acting keep theirs."""
    value = 1 + 2.0**-9
    for precision, expected in (("float32", 3 * value), ("bfloat16", 3.0)):
        learner = Learner(Multiplying(), SPEC, Schedule(precision=precision), 0)
        for room in (1, 2):
            learner.learn("policy", 0, [drawn(value)] * room, room)
            learner.check(0)
            assert {name: float(x) for name, x in learner.metrics.items()} == {
                "product": expected,
                "of_slope": expected,
            }
        assert {leaf.dtype for leaf in jax.tree.leaves(learner.state)} == {np.dtype(np.float32)}
    assert jax.config.jax_default_matmul_precision is None  # nothing is left of it
