"""Fitted Q evaluation against values by linear algebra, on a chain of two states."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents import learners, preset
from phimu.confidence import Elliptical
from phimu.data.logged import LoggedDataset, Transitions
from phimu.errors import InputError
from phimu.evaluation.fitted_q import FittedQ, discount_of, estimate, returns_to_go, starts
from phimu.normalisation import Acting, AsIs
from phimu.types import Batch, Feed

DISCOUNT = 0.9
# Of state (rows) and action -1, 1 (columns): reward, chance of state 1 next, chance of the end.
REWARD = np.array([[0.0, 1.0], [3.0, -2.0]])
TO_ONE = np.array([[0.2, 0.9], [0.7, 0.4]])
END = np.array([[0.0, 0.1], [0.05, 0.0]])


class Chosen(NamedTuple):
    """1 in state 0 and -1 in state 1; or, not deterministic, either with half a chance."""

    weight: jax.Array  # of no use but to be there

    def mode(self, observation):
        return -observation

    def sample(self, observation, key):
        return jnp.sign(jax.random.uniform(key, observation.shape, minval=-1.0)), None


def chosen() -> Acting:
    return Acting(AsIs(), Chosen(jnp.ones(3)))


def logged(rows: int, seed: int = 0) -> LoggedDataset:
    """Uniformly random actions, episodes cut after 50 steps. The observation is -1 or 1."""
    rng = np.random.default_rng(seed)
    table, state, length, episode = [], 0, 0, 0
    for _ in range(rows):
        action = int(rng.integers(2))
        following = int(rng.random() < TO_ONE[state, action])
        ended = bool(rng.random() < END[state, action])
        length += 1
        cut = length == 50 and not ended
        table.append((state, action, REWARD[state, action], following, ended, cut, episode))
        if ended or cut:
            following, length, episode = 0, 0, episode + 1
        state = following
    columns = [np.array(column) for column in zip(*table, strict=True)]
    signs = [(2.0 * columns[place][:, None] - 1).astype(np.float32) for place in (0, 1, 3)]
    flags = (column.astype(bool) for column in columns[4:6])
    transitions = Transitions(
        *signs[:2], columns[2].astype(np.float32), signs[2], *flags, columns[6].astype(np.int32)
    )
    return LoggedDataset(transitions, "chain", "arrays", "0" * 64)


def exact(policy: np.ndarray) -> np.ndarray:
    """V of both states: (I - discount P)^-1 r for the chances of the actions [2, 2]."""
    reward = np.sum(policy * REWARD, axis=1)
    to_one = np.sum(policy * (1 - END) * TO_ONE, axis=1)
    to_zero = np.sum(policy * (1 - END) * (1 - TO_ONE), axis=1)
    return np.linalg.solve(np.eye(2) - DISCOUNT * np.stack([to_zero, to_one], 1), reward)


@pytest.fixture(scope="module")
def data() -> LoggedDataset:
    return logged(20_000)


def settings(deterministic: bool = True) -> FittedQ:
    return FittedQ(DISCOUNT, deterministic, (32,), learning_rate=1e-3, target_rate=0.05)


@pytest.mark.parametrize(
    ("deterministic", "policy"),
    [(True, np.array([[0.0, 1.0], [1.0, 0.0]])), (False, np.full((2, 2), 0.5))],
)
def test_finds_the_value_of_another_policy_than_the_one_that_logged(data, deterministic, policy):
    done = []
    found = estimate(settings(deterministic), chosen(), data, 3_000, progress=done.append)
    expected = exact(policy)[0]  # every episode begins in state 0
    uniform = exact(np.full((2, 2), 0.5))[0]
    assert abs(exact(np.array([[0.0, 1.0], [1.0, 0.0]]))[0] / uniform - 1) > 0.5
    assert found["estimated_value"] == pytest.approx(expected, rel=0.03)
    assert found["estimated_reward_per_step"] == pytest.approx(0.1 * found["estimated_value"])
    assert found["data_value"] == pytest.approx(uniform, rel=0.06)  # some hundred episodes
    assert found["estimated_by"] == "fitted Q evaluation, 3000 updates"
    assert done[-1] == 3_000


def test_nothing_of_the_policy_is_taken_away_and_the_same_seed_is_the_same_estimate(data):
    acting = chosen()
    first = estimate(settings(), acting, data, 7, seed=1)
    assert estimate(settings(), acting, data, 7, seed=1) == first
    assert estimate(settings(), acting, data, 7, seed=2) != first
    np.testing.assert_array_equal(acting.policy.weight, np.ones(3))


def test_one_update_by_hand(data):
    """The loss: mean squared distance to r + discount (1 - terminated) Q', in its own units."""
    fitted = settings()
    state = fitted.init(chosen(), data, seed=0)
    rows = data.transitions
    flags = (column.astype(np.float32) for column in (rows.terminated, rows.truncated))
    whole = Batch(*rows[:4], *flags)  # every transition once
    _, metrics = fitted.update("fit", state, Feed(whole), jax.random.PRNGKey(0))

    def q(observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        inputs = np.concatenate([state.normaliser(observation), action], axis=1)
        return np.asarray(state.network(inputs)[:, 0], np.float64)

    scale = returns_to_go(rows, DISCOUNT).std()
    centre = rows.reward.mean() / (1 - DISCOUNT * (1 - rows.terminated.mean()))
    future = centre + scale * q(rows.next_observation, -rows.next_observation)
    target = rows.reward + DISCOUNT * ~rows.terminated * future
    error = q(rows.observation, rows.action) - (target - centre) / scale
    assert abs(target).max() < 20  # nothing to clip
    np.testing.assert_allclose(metrics["fit_loss"], np.mean(error**2), rtol=1e-4)


@pytest.mark.parametrize("agent", learners(logged=True))
def test_the_discount_is_the_agents_own(agent):
    assert discount_of(preset(agent, "small", logged=True).settings) == 0.99


def test_without_a_discount_of_its_own_an_agent_is_given_one():
    assert discount_of(Elliptical()) == FittedQ().discount


def test_returns_to_go_are_those_of_each_episode(data):
    rows = data.transitions
    found = returns_to_go(rows, DISCOUNT)
    first = np.flatnonzero(starts(rows))
    assert len(first) == rows.episode[-1] + 1
    for begin, end in zip(first, [*first[1:], len(rows.reward)], strict=True):
        rewards = rows.reward[begin:end].astype(np.float64)
        expected = np.sum(rewards * DISCOUNT ** np.arange(len(rewards)))
        assert found[begin] == pytest.approx(expected)
    np.testing.assert_allclose(found[first[1:] - 1], rows.reward[first[1:] - 1])


def test_constant_rewards_and_bad_numbers(data):
    rows = data.transitions
    nothing = LoggedDataset(rows._replace(reward=0 * rows.reward), "zero", "arrays", "0" * 64)
    found = estimate(settings(), chosen(), nothing, 1_000)
    assert found["estimated_value"] == pytest.approx(0.0, abs=0.02)
    huge = LoggedDataset(rows._replace(reward=rows.reward * 1e38), "huge", "arrays", "0" * 64)
    with (
        pytest.raises(InputError, match="scale the reward of the data"),
        np.errstate(over="ignore"),
    ):
        estimate(settings(), chosen(), huge, 5)
