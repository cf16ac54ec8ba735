"""Each probe pays what its docstring says, so that its known value is the true one."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import phimu.environments  # noqa: F401  (registers the probes)

NAMES = [name for name in gymnasium.registry if name.startswith("phimu/probe-")]


def episode(name, action=0.0, seed=None):
    """(observations, rewards, terminated, truncated) of one episode of a constant action."""
    env = gymnasium.make(f"phimu/probe-{name}-v0")
    observations, rewards = [env.reset(seed=seed)[0]], []
    terminated = truncated = False
    while not (terminated or truncated):
        action_ = np.array([action], np.float32)
        observation, reward, terminated, truncated, _ = env.step(action_)
        observations.append(observation)
        rewards.append(reward)
    return np.concatenate(observations).tolist(), rewards, terminated, truncated


def test_all_probes_are_registered():
    assert len(NAMES) == 8


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_checks_pass_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(name).unwrapped)


def test_constant_reward_is_worth_one():
    assert episode("ConstantReward") == ([0.0, 0.0], [1.0], True, False)


def test_observation_reward_is_worth_the_observation():
    seen = set()
    for seed in range(20):
        observations, rewards, terminated, _ = episode("ObservationReward", seed=seed)
        assert rewards == observations[:1]
        assert terminated
        seen.add(observations[0])
    assert seen == {-1.0, 1.0}


def test_delayed_reward_is_worth_the_discount():
    observations, rewards, terminated, _ = episode("DelayedReward")
    assert (observations[:2], rewards, terminated) == ([0.0, 1.0], [0.0, 1.0], True)
    assert observations[2] == 0.0  # so that a bootstrap past the end is seen


@pytest.mark.parametrize(("action", "reward"), [(0.5, 0.0), (0.0, -0.25), (-1.0, -2.25)])
def test_action_reward_peaks_at_one_half(action, reward):
    assert episode("ActionReward", action) == ([0.0, 0.0], [reward], True, False)


def test_match_observation_peaks_at_half_the_observation():
    first = [episode("MatchObservation", seed=seed)[0][0] for seed in range(50)]
    assert min(first) < -0.8
    assert max(first) > 0.8
    for seed, observation in enumerate(first):
        assert episode("MatchObservation", observation / 2, seed)[1:] == ([0.0], True, False)
        assert episode("MatchObservation", observation / 2 + 0.25, seed)[1][0] < -0.06


def test_the_time_limit_truncates_and_never_terminates():
    assert episode("TimeLimit") == ([0.0] * 11, [1.0] * 10, False, True)
    assert episode("Terminated") == ([0.0, 0.0], [1.0], True, False)


def test_choose_observation_pays_for_the_integer_that_is_shown():
    env = gymnasium.make("phimu/probe-ChooseObservation-v0")
    observation, _ = env.reset(seed=0)
    shown = []
    for step in range(10):
        shown.append(int(observation[0]))
        right = step % 2 == 0
        action = shown[-1] if right else (shown[-1] + 2) % 3 - 1
        observation, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated, truncated) == (float(right), False, step == 9)
    assert set(shown) == {-1, 0, 1}


def test_the_count_begins_anew_with_each_episode():
    env = gymnasium.make("phimu/probe-TimeLimit-v0")
    for _ in range(2):
        env.reset()
        assert [env.step(np.zeros(1, np.float32))[3] for _ in range(10)] == [False] * 9 + [True]
