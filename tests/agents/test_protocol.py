"""What a run does where an agent is silent: one with `init`, `policy` and `update` alone."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import phimu.environments  # noqa: F401  (registers the probes)
from phimu.agents import protocol
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Collection, Schedule
from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.environments.task import open_task
from phimu.training.learner import Learner
from phimu.training.online import OnlineRun
from phimu.types import Drawn, Spec


class Constant(eqx.Module):
    """A policy that always does the same."""

    action: jax.Array

    def mode(self, observation):
        return jnp.broadcast_to(self.action, (*observation.shape[:-1], 1))

    def sample(self, observation, key):
        return self.mode(observation), jnp.zeros(observation.shape[:-1])


class MeanState(NamedTuple):
    policy: Constant
    reward: jax.Array


@dataclass(frozen=True)
class Mean:
    """It does the mean of what was done, and knows the mean reward: of each batch anew."""

    def init(self, spec, key):
        return MeanState(Constant(jnp.zeros(spec.action_dim)), jnp.zeros(()))

    def policy(self, state):
        return state.policy

    def update(self, phase, state, feed, key):
        assert (phase, feed.others, feed.columns) == ("policy", {}, {})
        mean = MeanState(Constant(jnp.mean(feed.batch.action, 0)), jnp.mean(feed.batch.reward))
        return mean, {"reward": mean.reward}


AGENT = Mean()


def replay_of(rows=20, batch_size=4):
    replay, rng = Replay(Spec(2, 1), 50, 0, batch_size), np.random.default_rng(0)
    for number in range(rows):
        s, following = rng.normal(size=(2, 2))
        replay.add(s, rng.uniform(-1, 1, 1), float(number), following, False, False)
    return replay


def test_its_only_phase_is_the_policy_as_long_as_asked():
    assert protocol.phases(AGENT) == (Phase("policy", updates=0, begin_every=0),)


def test_it_begins_nothing():
    state, replay = AGENT.init(Spec(2, 1), None), replay_of()
    begun, store = protocol.begin(AGENT, "policy", state, replay, None, None)
    assert begun is state
    assert store is replay


def test_it_draws_a_batch_and_nothing_else():
    replay = replay_of()
    drawn = protocol.draw(AGENT, "policy", replay, np.random.default_rng(3))
    assert isinstance(drawn, Drawn)
    np.testing.assert_array_equal(drawn.rows, replay.sample(np.random.default_rng(3)).rows)
    assert (drawn.others, drawn.columns) == ({}, {})


def test_what_an_agent_has_is_asked_first():
    """Each of the three with the arguments that it is given."""

    class Eager(Mean):
        phases = (Phase("model", 3), Phase("policy", begin_every=5))

        def begin(self, *given):
            return "begun", given

        def draw(self, *given):
            return given

    assert protocol.phases(Eager()) == Eager.phases
    begun = protocol.begin(Eager(), "model", "state", "store", "normaliser", "rng")
    assert begun == ("begun", ("model", "state", "store", "normaliser", "rng"))
    assert protocol.draw(Eager(), "model", "store", "rng") == ("model", "store", "rng")


def test_a_learner_needs_no_more():
    replay = replay_of()
    learner = Learner(AGENT, Spec(2, 1), Schedule(), seed=0)
    drawn = protocol.draw(AGENT, "policy", replay, np.random.default_rng(3))
    learner.learn("policy", 0, [drawn], room=1)
    learner.check(1)
    batch = split(drawn.rows, replay.spec)
    np.testing.assert_allclose(learner.metrics["reward"], batch.reward.mean(), rtol=1e-6)
    np.testing.assert_allclose(learner.mode()(np.zeros(2)), batch.action.mean(0), rtol=1e-5)
    np.testing.assert_allclose(learner.act(np.zeros(2), 0), batch.action.mean(0), rtol=1e-5)


@pytest.mark.parametrize("gradient_steps", [1, 3])
def test_an_online_run_needs_no_more(gradient_steps):
    schedule = Schedule(Collection(learning_starts=10, gradient_steps=gradient_steps), batch_size=8)
    run = OnlineRun(AGENT, open_task("phimu/probe-ActionReward-v0"), schedule, seed=0)
    for _ in range(20):
        run.advance()
    assert run.updates == 11 * gradient_steps
    assert np.isfinite(run.policy()(np.zeros(1, np.float32))).all()
    # What it does after the warm-up is what it has learned before: the mean of a batch.
    assert np.abs(run.replay.rows.action[10:20]).max() <= np.abs(run.replay.rows.action[:10]).max()
