"""Evaluation against sums taken by hand."""

import gymnasium
import numpy as np
import pytest

import phimu
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.evaluation import episodes
from phimu.evaluation.episodes import evaluate, random_policy
from phimu.types import Spec


class Counting(gymnasium.Env):
    """Ends after as many decisions as its reset seed's last digit says, each of three steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.left, self.done = 1 + seed % 10, 0
        self.seeds = [*getattr(self, "seeds", []), seed]
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left, self.done = self.left - 1, self.done + 1
        counts = {"decisions": self.done, "simulator_steps": 3 * self.done}
        return np.zeros(1, np.float32), float(action[0]), self.left == 0, False, counts


def test_counts_decisions_and_simulator_steps():
    env = Counting()
    result = evaluate(lambda observation: np.array([0.5]), env, episodes=4, seed=7)
    lengths = np.array([1 + seed % 10 for seed in env.seeds])
    np.testing.assert_array_equal(result.lengths, lengths)
    np.testing.assert_array_equal(result.simulator_steps, 3 * lengths)
    np.testing.assert_array_equal(result.returns, 0.5 * lengths)
    summary = result.summary()
    assert summary["return"] == pytest.approx(0.5 * sum(lengths) / 4)
    assert summary["return_std"] == pytest.approx(
        np.sqrt(np.mean((lengths / 2 - summary["return"]) ** 2))
    )
    assert (summary["simulator_steps"], summary["terminated"]) == (3 * summary["length"], 1.0)


def test_without_action_repeat_the_two_counts_are_one():
    task = open_task("Pendulum-v1")
    result = phimu.evaluate(random_policy(Spec(3, 1), seed=0), task, episodes=2, seed=0)
    np.testing.assert_array_equal(result.simulator_steps, [200, 200])
    again = phimu.evaluate(random_policy(Spec(3, 1), seed=0), "Pendulum-v1", episodes=2, seed=0)
    np.testing.assert_array_equal(again.returns, result.returns)


def test_no_episode_is_refused():
    with pytest.raises(InputError, match="episodes is 0: give at least 1"):
        evaluate(random_policy(Spec(3, 1), seed=0), "Pendulum-v1", episodes=0)


class Endless(gymnasium.Env):
    """Pays one a step, for ever."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


def test_an_endless_episode_is_cut_and_said(monkeypatch):
    monkeypatch.setattr(episodes, "LONGEST", 50)
    with pytest.warns(UserWarning, match=r"Endless had not ended after 50 steps .*TimeLimit"):
        result = evaluate(random_policy(Spec(3, 1), seed=0), Endless(), episodes=2)
    np.testing.assert_array_equal(result.returns, [50, 50])
    np.testing.assert_array_equal(result.terminated, [False, False])


def test_an_episode_that_declares_its_limit_is_never_cut(monkeypatch):
    monkeypatch.setattr(episodes, "LONGEST", 50)
    limited = gymnasium.wrappers.TimeLimit(Endless(), 70)
    said = []
    result = evaluate(random_policy(Spec(3, 1), seed=0), limited, episodes=1, say=said.append)
    assert (result.lengths[0], said) == (70, [])
