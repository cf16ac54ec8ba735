"""Rounds of agents that learn from what they have just done: what an update is given, and when."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents import preset, protocol
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Collection, Schedule
from phimu.data.replay import Replay
from phimu.data.rows import join, split
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.policies import Gaussian
from phimu.runs import checkpoint
from phimu.settings import names, override
from phimu.training.online import OnlineRun
from phimu.types import Spec


class Counting(gymnasium.Env):
    """It shows its own number and its steps so far, and is cut after five of them."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, number):
        self.number, self.steps = number, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([self.number, 0], np.float32), {}

    def step(self, action):
        self.steps += 1
        seen = np.array([self.number, self.steps], np.float32)
        return seen, float(action[0]), False, self.steps == 5, {}


class RecorderState(NamedTuple):
    actor: Gaussian
    batch: tuple


@dataclass(frozen=True)
class Recorder:
    """It keeps what its last update was given, and never changes its policy."""

    rows: int
    envs: int
    phases: ClassVar = (Phase(updates=1, on_policy=True),)

    def init(self, spec, key):
        shape = self.rows // self.envs, self.envs
        sizes = (*shape, 2), (*shape, 1), shape, (*shape, 2), shape, shape
        return RecorderState(
            Gaussian(*spec[:2], (4,), key), tuple(jnp.zeros(size) for size in sizes)
        )

    def policy(self, state):
        return state.actor

    def update(self, phase, state, feed, key):
        return RecorderState(state.actor, tuple(feed.batch)), {"rows": jnp.sum(feed.batch.reward)}


def run_of(envs=3, rows=12, normalise=False, **collection):
    schedule = Schedule(
        Collection(**{"learning_starts": 0, "buffer_size": 50, "envs": envs} | collection),
        batch_size=rows,
        normalise_observations=normalise,
    )
    tasks = [open_task(Counting(number)) for number in range(envs)]
    return OnlineRun(Recorder(rows, envs), tasks, schedule, seed=0)


def small(agent, **changes):
    sizes = {"actor_sizes": (4,), "critic_sizes": (4,), "critic_minibatches": 2, "minibatches": 2}
    chosen = preset(agent, "small")
    own = names(chosen)
    return override(chosen, {n: x for n, x in sizes.items() if n in own} | changes)


def advanced(run, step):
    while run.step < step:
        run.advance()
    run.check()
    return run


def test_an_update_gets_the_last_rows_by_time_and_environment():
    run = advanced(run_of(), 11)
    assert (run.step, run.updates) == (12, 1)
    run = advanced(run, 24)
    assert run.updates == 2
    observation, action, reward, following, terminated, truncated = run.state.agent.batch
    np.testing.assert_array_equal(observation[..., 0], np.tile(np.arange(3.0), (4, 1)))
    # Steps 5 to 8 of each environment, whose episodes have five: one is over, three of another.
    np.testing.assert_array_equal(observation[:, 0, 1], [4, 0, 1, 2])
    np.testing.assert_array_equal(following[:, 2, 1], [5, 1, 2, 3])
    np.testing.assert_array_equal(truncated[:, 1], [1, 0, 0, 0])
    assert not np.asarray(terminated).any()
    # Actions are those of the policy, also beyond the range; the environment got them clipped.
    assert np.abs(action).max() > 1
    np.testing.assert_allclose(reward, np.clip(action[..., 0], -1, 1), rtol=1e-6)


def test_every_transition_is_learned_from_once():
    """Also where a buffer that is no multiple of a round has wrapped."""
    run, rewards = run_of(buffer_size=31), []
    while run.step < 120:
        before = run.updates
        run.advance()
        if run.updates > before:
            rewards.append(np.asarray(run.state.agent.batch[2]).reshape(-1))
    assert len(rewards) == 10
    held = run.replay.rows.reward[np.arange(run.step - 24, run.step) % 31]
    np.testing.assert_array_equal(np.concatenate(rewards[-2:]), held)


def test_statistics_are_taken_in_after_the_update():
    """An update sees observations as the policy saw them that made its rows."""
    run = advanced(run_of(normalise=True), 12)
    rows = run.replay.latest(12)
    first = run.state
    np.testing.assert_allclose(first.agent.batch[0].reshape(-1, 2), rows.observation, rtol=1e-5)
    np.testing.assert_allclose(first.normaliser.mean, rows.observation.mean(axis=0), rtol=1e-6)
    run = advanced(run_of(normalise=True), 24)
    rows = run.replay.latest(12)
    seen = first.normaliser(jnp.asarray(rows.observation))
    np.testing.assert_allclose(run.state.agent.batch[0].reshape(-1, 2), seen, rtol=1e-6)
    every = run.replay.latest(24).observation
    np.testing.assert_allclose(run.state.normaliser.mean, every.mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("agent", ["ppo", "trpo"])
def test_the_density_of_actions_is_what_it_was_when_they_were_taken(agent):
    """So that nothing of it has to be stored."""
    chosen = small(agent, envs=2, batch_size=16, buffer_size=16)
    tasks = [open_task("phimu/probe-TimeLimit-v0") for _ in range(2)]
    run = advanced(OnlineRun(chosen.settings, tasks, chosen.schedule, seed=0), 16)
    acting = run.learner.acting
    seen, taken = [], []
    for _ in range(7):
        observation = np.stack([seat.observation for seat in run.seats])
        run.advance()
        normalised = acting.normaliser(jnp.asarray(observation))
        action = run.replay.latest(2).action
        seen.append(acting.policy.log_density(normalised, jnp.asarray(action)))
        taken.append(action)
    drawn = protocol.draw(run.agent, "policy", replace_size(run.replay, 14), None)
    batch = split(jnp.asarray(drawn.rows), run.task.spec)
    again = acting.policy.log_density(acting.normaliser(batch.observation), batch.action)
    np.testing.assert_array_equal(batch.action, np.stack(taken))
    np.testing.assert_allclose(again, np.stack(seen), rtol=1e-5)


def replace_size(replay, size):
    replay.batch_size = size
    return replay


@pytest.mark.parametrize("agent", ["ppo", "trpo"])
def test_several_environments_resume_bit_exactly(agent, tmp_path):
    """Half-way through a round, and without any random steps before."""
    chosen = small(agent, envs=3, batch_size=30, buffer_size=70)

    def fresh():
        tasks = [open_task("phimu/probe-TimeLimit-v0") for _ in range(3)]
        return OnlineRun(chosen.settings, tasks, chosen.schedule, seed=1)

    whole, broken = advanced(fresh(), 120), fresh()
    for stop in (18, 60, 99):
        advanced(broken, stop).save(tmp_path)
        broken = fresh()
        broken.restore(checkpoint.load(tmp_path), pytest.fail)
    advanced(broken, 120)
    assert broken.updates == whole.updates == 4
    for name, array in whole.learner.arrays().items():
        assert array.tobytes() == broken.learner.arrays()[name].tobytes(), name


def test_rounds_of_other_agents_are_as_long_as_they_were():
    sac = preset("sac", "maze")
    assert protocol.round_steps(*sac) == 25
    assert not protocol.on_policy(sac.settings, "policy")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rows": 13}, "batch_size is 13: with 3 envs give a multiple of that"),
        ({"train_freq": 4}, "train_freq is 4, but this agent learns after every batch_size"),
        ({"buffer_size": 6}, "buffer_size is 6, but an update eats batch_size, 12: give at least"),
    ],
)
def test_what_makes_no_round_is_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        run_of(**changes)


def test_rows_are_joined_as_they_were_split():
    replay, rng = Replay(Spec(3, 2), 10, 0), np.random.default_rng(0)
    for _ in range(7):
        ends = rng.uniform(size=2) < 0.3
        replay.add(rng.normal(size=3), rng.normal(size=2), rng.normal(), rng.normal(size=3), *ends)
    rows = join(replay.latest(5))
    assert rows.dtype == np.float32
    for column, expected in zip(split(rows, replay.spec), replay.latest(5), strict=True):
        np.testing.assert_array_equal(column, expected)
