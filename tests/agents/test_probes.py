"""Every agent that learns a Q online finds the known answers of the probes, through the loop."""

import numpy as np
import pytest

import phimu.environments  # noqa: F401  (registers the probes)
from phimu.agents import AGENTS, learners, protocol
from phimu.environments.task import open_task
from phimu.training.online import OnlineRun

DISCOUNT = 0.8
ROUNDS = 100  # of updates, after the warm-up: off policy one after each step


def values_actions(agent):
    """Whether it has a Q to ask for; one that plans on a model has none."""
    first = next(iter(AGENTS[agent].presets(logged=False).values()))
    return protocol.answers(first.settings, "q_value")


pytestmark = pytest.mark.parametrize("agent", filter(values_actions, learners(logged=False)))


@pytest.fixture
def learn(tiny, agent):
    def learned(probe):
        settings, schedule = tiny(agent)
        run = OnlineRun(settings, open_task(f"phimu/probe-{probe}-v0"), schedule, seed=0)
        for _ in range(schedule.collection.learning_starts + ROUNDS * run.round_steps):
            run.advance()
        return Answers(run)

    return learned


class Answers:
    """What an agent has learned, at observations given as numbers."""

    def __init__(self, run):
        self.run = run
        self.has_q = protocol.answers(run.agent, "q_value")

    def action(self, *observations):
        """The mode action at each."""
        policy = self.run.policy()
        return np.array([policy(np.array([s], np.float32))[0] for s in observations])

    def value(self, *observations, action=None):
        """Q of each, of the policy's own action if none is given: then it may also be V."""
        if not self.has_q:
            assert action is None
            return self.run.learner.query("value", np.array(observations, np.float32)[:, None])
        actions = (
            self.action(*observations) if action is None else np.full(len(observations), action)
        )
        columns = [np.asarray(x, np.float32)[:, None] for x in (observations, actions)]
        return self.run.learner.query("q_value", *columns)


def test_constant_reward(learn):
    """Termination does not bootstrap: with it Q would be 5."""
    answers = learn("ConstantReward")
    np.testing.assert_allclose(answers.value(0.0), 1.0, atol=0.1)
    if answers.has_q:
        np.testing.assert_allclose(answers.value(0.0, action=-0.5), 1.0, atol=0.1)


def test_observation_reward(learn):
    answers = learn("ObservationReward")
    np.testing.assert_allclose(answers.value(-1.0, 1.0), [-1.0, 1.0], atol=0.1)


def test_delayed_reward(learn):
    """Bootstrapping past the end would give 1 / (1 - 0.64) = 2.8, and not at all Q(0) = 0."""
    answers = learn("DelayedReward")
    np.testing.assert_allclose(answers.value(0.0, 1.0), [DISCOUNT, 1.0], atol=0.08)


def test_action_reward(learn):
    answers = learn("ActionReward")
    np.testing.assert_allclose(answers.action(0.0), 0.5, atol=0.15)
    np.testing.assert_allclose(answers.value(0.0), 0.0, atol=0.1)
    if answers.has_q:
        np.testing.assert_allclose(answers.value(0.0, action=-0.5), -1.0, atol=0.2)


def test_match_observation(learn):
    answers = learn("MatchObservation")
    np.testing.assert_allclose(answers.action(-0.8, 0.0, 0.8), [-0.4, 0.0, 0.4], atol=0.15)
    # -(a - s / 2)^2: 0 where they match, -0.64 where they are crossed.
    np.testing.assert_allclose(answers.value(-0.8, 0.0, 0.8), 0.0, atol=0.25)
    if answers.has_q:
        np.testing.assert_allclose(answers.value(-0.8, 0.8, action=0.4), [-0.64, 0.0], atol=0.25)
        np.testing.assert_allclose(answers.value(-0.8, 0.8, action=-0.4), [0.0, -0.64], atol=0.25)


def test_time_limit_bootstraps(learn):
    """Taken for an end, the tenth step would leave 1 / (1 - 0.9 * 0.8) = 3.6."""
    answers = learn("TimeLimit")
    np.testing.assert_allclose(answers.value(0.0), 1 / (1 - DISCOUNT), atol=0.4)
