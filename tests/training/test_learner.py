"""Compiled calls: however updates are put into them, they are the same updates."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents.presets import override
from phimu.data.replay import split
from phimu.environments.task import open_task
from phimu.errors import NotFinite
from phimu.training import online
from phimu.training.learner import Learner, update
from phimu.training.online import OnlineRun
from phimu.training.streams import INIT, key
from phimu.types import Batch, Spec


class State(NamedTuple):
    acting: jax.Array


@dataclass(frozen=True)
class Summing:
    """An agent that adds up rewards, with the greatest as its gradient."""

    def init(self, spec: Spec, key: jax.Array) -> State:
        return State(jnp.zeros(spec.action_dim))

    def act(self, acting: jax.Array, *_: object) -> jax.Array:
        return acting

    def update(self, state: State, batch: Batch, key: jax.Array) -> tuple:
        noise = jax.random.uniform(key, state.acting.shape)
        metrics = {"td_loss": jnp.ones(()), "critic_gradient": jnp.max(batch.reward)}
        return State(state.acting + jnp.sum(batch.reward) * noise), metrics


def data(reward: float) -> list[np.ndarray]:
    return [np.full((2, 7), reward, np.float32)]  # two transitions of 1 + 3 + 1 + 1 + 1 numbers


def test_updates_run_from_the_first_to_the_last_that_is_there():
    spec, several = Spec(1, 3), [data(reward) for reward in (1.0, 2.0, 3.0)]
    singly, at_once = Learner(Summing(), spec, 7), Learner(Summing(), spec, 7)
    for number, each in enumerate(several):
        singly.learn(10 + number, each)
        singly.check(0)
    at_once.learn_several(10, several, room=5)  # two places stay empty
    at_once.check(0)
    assert np.abs(singly.state.acting).min() > 0
    np.testing.assert_array_equal(singly.state.acting, at_once.state.acting)
    assert {name: float(x) for name, x in at_once.metrics.items()} == {
        "td_loss": 1.0,
        "critic_gradient": 3.0,
    }
    np.testing.assert_array_equal(at_once.act(np.zeros(1), 0), singly.state.acting)


@pytest.mark.parametrize("bad", [0, 2, 3])
def test_the_batch_that_brought_a_number_that_is_not_finite_is_found(bad):
    learner = Learner(Summing(), Spec(1, 3), 0)
    rewards = [1.0] * bad + [np.inf] + [np.nan] * (3 - bad)  # what follows is not to be blamed
    learner.learn_several(0, [data(reward) for reward in rewards], room=4)
    for _ in range(2):  # it stays bad: nothing is saved afterwards
        with pytest.raises(NotFinite, match="critic_gradient is inf at step 1,234: ") as caught:
            learner.check(1_234)
        assert caught.value.arrays.keys() == set(Batch._fields)
        np.testing.assert_array_equal(caught.value.arrays["reward"], [np.inf] * 2)


@pytest.mark.parametrize(("agent", "most"), [("sac", 32), ("ctrl-ucb-l", 3)])
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
    single, at_once = (jax.tree.leaves((run.state, run.metrics)) for run in runs)
    for here, there in zip(single, at_once, strict=True):
        np.testing.assert_array_equal(here, there)


def test_the_public_update_is_the_one_of_the_loop(tiny):
    settings = tiny("sac").settings
    spec = Spec(1, 1)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((8, 5), np.float32)
    learner = Learner(settings, spec, 3)
    state = settings.init(spec, key(3, INIT, 0))
    for number in range(2):
        learner.learn(number, [rows])
        state, metrics = update(settings, state, 3, number, split(rows, spec))
    for here, there in zip(jax.tree.leaves(learner.state), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(here, there)
    assert metrics.keys() == {*learner.metrics, "finite"}
