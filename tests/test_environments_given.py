"""A model is evaluated in what it was given, and goes on in nothing else without being told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import NormalizeObservation, RescaleAction, TimeLimit, TransformReward

import phimu
from phimu import InputError, Model, Offline, Sac, from_arrays
from phimu.cli import main
from phimu.environments.given import copy_of, describe

SMALL = {"actor_sizes": (8,), "critic_width": 8, "batch_size": 8, "learning_starts": 20}
PENDULUM = "Pendulum-v1"


class PaysOne(gymnasium.RewardWrapper):
    """Takes nothing but the environment."""

    def reward(self, reward: Any) -> float:
        return 1.0


class Pays(gymnasium.RewardWrapper):
    """Does not record what it was constructed with."""

    def __init__(self, env: gymnasium.Env, wage: float = 1.0):
        super().__init__(env)
        self.wage = wage

    def reward(self, reward: Any) -> float:
        return self.wage


class PaysOnRecord(gymnasium.RewardWrapper, RecordConstructorArgs):
    def __init__(self, env: gymnasium.Env, wage: float):
        RecordConstructorArgs.__init__(self, wage=wage)
        gymnasium.RewardWrapper.__init__(self, env)
        self.wage = wage

    def reward(self, reward: Any) -> float:
        return self.wage


def pendulum(**options: Any) -> gymnasium.Env:
    return gymnasium.make(PENDULUM, **options)


def sac(env: Any, steps: int = 0) -> Model:
    model = Sac(env, **SMALL)
    return model.learn(steps) if steps else model


@pytest.mark.parametrize(
    ("env", "paid", "length"),
    [
        (lambda: PaysOne(pendulum()), 200, 200),
        (lambda: PaysOne(PaysOnRecord(pendulum(), wage=5.0)), 200, 200),
        (lambda: PaysOnRecord(PaysOne(pendulum()), wage=5.0), 1_000, 200),
        (lambda: TransformReward(pendulum(), lambda reward: 2.0), 400, 200),
        (lambda: PaysOne(pendulum(max_episode_steps=30)), 30, 30),
        (lambda: TimeLimit(PaysOne(pendulum()), 50), 50, 50),
        # Gymnasium's own copy of this has 500 steps: the outer limit hides the inner one.
        (lambda: TimeLimit(PaysOne(pendulum()), 500), 200, 200),
        (lambda: pendulum(max_episode_steps=40), None, 40),
    ],
)
@pytest.mark.parametrize("steps", [0, 25])
def test_evaluated_in_a_copy_of_what_was_given(
    env: Callable[[], gymnasium.Env], paid: float | None, length: int, steps: int
) -> None:
    summary = sac(env(), steps).evaluate(episodes=1)
    assert summary["length"] == length
    if paid is not None:
        assert summary["return"] == paid


def test_what_cannot_be_made_again_is_refused_and_can_be_given() -> None:
    model = sac(Pays(pendulum(), wage=3.0), 25)
    with pytest.raises(InputError, match=r"Pays around Pendulum-v1 does not record .* as env\.$"):
        model.evaluate(1)
    assert model.evaluate(1, env=Pays(pendulum(), 3.0))["return"] == 600
    assert model.evaluate(1, env=lambda: Pays(pendulum(), 2.0))["return"] == 400
    assert model.evaluate(1, env=PENDULUM)["return"] < 0
    made = sac(lambda: Pays(pendulum(), 4.0), 25)  # a function makes as many as are wanted
    assert made.evaluate(1)["return"] == 800


def test_constructor_arguments_are_kept(tmp_path: Path) -> None:
    model = sac(pendulum(g=0.0), 25)
    assert (model.config.task, model.config.task_options) == (PENDULUM, {"g": 0.0})
    expected = model.evaluate(2, env=pendulum(g=0.0))
    assert model.evaluate(2) == expected
    assert model.evaluate(2, env=pendulum()) != expected
    model.save(tmp_path)
    loaded = Sac.load(tmp_path)
    assert loaded.run.task.env.unwrapped.g == 0.0
    assert loaded.evaluate(2) == expected


def changed_by_hand() -> gymnasium.Env:
    env = pendulum()
    env.unwrapped.g = 1.0
    return env


@pytest.mark.parametrize("env", [changed_by_hand, lambda: NormalizeObservation(pendulum())])
@pytest.mark.parametrize("steps", [25, 205])
def test_a_copy_that_does_otherwise_is_refused(
    env: Callable[[], gymnasium.Env], steps: int
) -> None:
    """In the first episode and in the second."""
    model = sac(env(), steps)
    with pytest.raises(InputError, match=r"a copy is not the same .* as env\.$"):
        model.evaluate(1)
    assert model.evaluate(1, env=env())["length"] == 200


def test_the_environment_that_is_learned_in_is_not_taken_away() -> None:
    env = pendulum()
    for model in (sac(env, 25), sac(lambda: env, 25)):
        for given in (env, TimeLimit(env, 10)):
            with pytest.raises(InputError, match="the one that the model learns in"):
                model.evaluate(1, env=given)
    with pytest.raises(InputError, match="the one that the model learns in"):
        model.evaluate(1)  # the function makes nothing new


def test_an_environment_of_other_spaces_is_refused() -> None:
    model = sac(PENDULUM)
    other = RescaleAction(pendulum(), -1.0, 1.0)
    with pytest.raises(InputError, match=r"actions lie in \[-1.0\] to \[1.0\], those of the pol"):
        model.evaluate(1, env=other)
    with pytest.raises(InputError, match="have 2 and 1 numbers, not 3 and 1"):
        model.set_env("MountainCarContinuous-v0")
    assert model.run.task.name == PENDULUM


def test_data_is_not_evaluated_in_an_environment_of_another_range() -> None:
    """Torques of [-1, 1] are not those of Pendulum's [-2, 2], which would double them."""
    rng = np.random.default_rng(0)
    columns = {
        "observation": rng.normal(size=(20, 3)),
        "action": rng.uniform(-1, 1, (20, 1)),
        "reward": rng.normal(size=20),
        "terminated": np.zeros(20, bool),
        "episode": np.zeros(20),
    }
    settings = {"actor_sizes": (8,), "critic_width": 8, "batch_size": 8}
    model = Offline(from_arrays(**columns, task=PENDULUM), "td3-bc", **settings)
    with pytest.raises(InputError, match="those of the policy in"):
        model.evaluate(1)
    named = from_arrays(**columns, task=PENDULUM, action_low=-2, action_high=2)
    assert Offline(named, "td3-bc", **settings).evaluate(1)["length"] == 200
    unnamed = from_arrays(**columns, action_low=-2, action_high=2)
    model = Offline(unnamed, "td3-bc", **settings)
    with pytest.raises(InputError, match="names no environment: give one as env"):
        model.evaluate(1)
    assert model.evaluate(1, env=PaysOne(pendulum()))["return"] == 200
    model.set_env(lambda: PaysOne(pendulum()))
    assert model.evaluate(1)["return"] == 200


def test_load_goes_on_in_what_was_wrapped_or_not_at_all(tmp_path: Path, capsys: Any) -> None:
    model = sac(PaysOne(pendulum()), 25)
    assert "PaysOne(TimeLimit(OrderEnforcing(" in str(model.config.environment)
    model.save(tmp_path)
    with pytest.raises(InputError, match=r"learned in PaysOne\(.* which its id alone does not"):
        Sac.load(tmp_path)
    for command in (["evaluate", str(tmp_path)], ["resume", str(tmp_path), "--steps", "50"]):
        assert main(command) != 0
        assert "learned in PaysOne(" in capsys.readouterr().err
    loaded = Sac.load(tmp_path, env=PaysOne(pendulum()))
    assert loaded.config == model.config
    assert loaded.evaluate(1)["return"] == 200
    for each in (model, loaded):
        each.learn(10)
    here, there = (each.run.replay.rows.reward[:35] for each in (model, loaded))
    np.testing.assert_array_equal(here, there)
    assert (here == 1).all()
    model.save(tmp_path)
    assert Sac.load(tmp_path, lambda: PaysOne(pendulum())).num_timesteps == 35


def test_an_environment_is_described_by_id_and_options_where_these_make_it() -> None:
    assert describe(pendulum()) == (PENDULUM, {}, None)
    assert describe(pendulum(render_mode="rgb_array")) == (PENDULUM, {}, None)
    assert describe(pendulum(g=1.0)) == (PENDULUM, {"g": 1.0}, None)
    assert describe(pendulum(max_episode_steps=9)) == (PENDULUM, {"max_episode_steps": 9}, None)
    unlimited = gymnasium.make(PENDULUM, max_episode_steps=-1)
    assert describe(unlimited) == (PENDULUM, {"max_episode_steps": -1}, None)
    for odd in (np.float32(1), np.ones(3)):
        assert describe(pendulum(g=odd))[2] is not None  # not to be written down
    maze = gymnasium.make("phimu/FourRooms-v0", reward="dense")
    assert describe(maze) == ("phimu/FourRooms-v0", {"reward": "dense"}, None)
    for env in (TimeLimit(pendulum(), 300), PaysOne(pendulum()), Pays(pendulum())):
        name, options, what = describe(env)
        assert (name, options) == (PENDULUM, {})
        assert type(env).__name__ in str(what)


def test_a_copy_has_the_same_parts() -> None:
    env = TimeLimit(PaysOnRecord(PaysOne(pendulum(g=3.0)), wage=2.0), 20)
    copy = copy_of(env)
    assert str(copy) == str(env)
    assert copy.unwrapped is not env.unwrapped
    assert copy.unwrapped.g == 3.0
    bare = gymnasium.make(PENDULUM).unwrapped
    assert type(copy_of(bare)) is type(bare)


# Going on elsewhere


def test_set_env_goes_on_in_another_environment(tmp_path: Path) -> None:
    model = sac(PENDULUM, 30)
    model.save(tmp_path / "before")
    model.set_env(PaysOne(pendulum()))
    model.learn(10)
    rows = model.run.replay.rows
    assert (rows.reward[:30] < 1).all()
    assert (rows.reward[30:40] == 1).all()
    assert rows.truncated[:40].tolist() == [0.0] * 29 + [1.0] + [0.0] * 10  # the episode was cut
    assert model.num_timesteps == 40
    assert model.evaluate(1)["return"] == 200
    with pytest.raises(InputError, match="was made with"):
        model.save(tmp_path / "before")  # it is no run of the plain task any more
    model.save(tmp_path / "after")
    loaded = Sac.load(tmp_path / "after", env=PaysOne(pendulum()))
    assert loaded.run.replay.rows.truncated[:40].tolist() == rows.truncated[:40].tolist()
    for each in (model, loaded):
        each.learn(5)
    here, there = (each.predict(np.ones(3), deterministic=True)[0] for each in (model, loaded))
    np.testing.assert_array_equal(here, there)


def test_an_episode_cut_by_set_env_is_cut_in_the_same_directory(tmp_path: Path) -> None:
    """Its last row was saved as one of an episode that goes on."""
    model = sac(pendulum, 30)
    model.save(tmp_path)
    model.set_env(pendulum)
    model.save(tmp_path)
    assert Sac.load(tmp_path).run.replay.rows.truncated[:30].tolist() == [0.0] * 29 + [1.0]


def test_set_env_after_an_episode_checks_copies_by_its_own_episodes() -> None:
    model = sac(PENDULUM, 200)  # one whole episode
    model.set_env(PaysOne(pendulum()))
    assert model.evaluate(1)["return"] == 200  # nothing was seen of it yet
    assert model.learn(5).evaluate(1)["return"] == 200


def test_a_model_says_what_it_is(tmp_path: Path) -> None:
    model = sac(PENDULUM, 25)
    assert repr(model) == "Sac(Pendulum-v1, agent='sac', preset='small', seed=0, num_timesteps=25)"
    assert model.num_timesteps == 25
    model.save(tmp_path)
    assert repr(Model.load(tmp_path)).startswith("Model(Pendulum-v1, agent='sac', preset='small'")
    assert repr(sac(Pays(pendulum()))).startswith("Sac(Pays(TimeLimit(")


# Several side by side


def vector(*makers: Callable[[], gymnasium.Env]) -> gymnasium.vector.SyncVectorEnv:
    return gymnasium.vector.SyncVectorEnv(list(makers))


def test_several_environments_are_evaluated_in_a_copy_of_one(tmp_path: Path) -> None:
    """Also where the first has just begun an episode, and by functions and ids."""
    wrapped = [lambda: PaysOne(pendulum())] * 2
    for steps in (30, 400):
        model = sac(vector(*wrapped), steps)
        assert model.evaluate(1)["return"] == 200
    with pytest.raises(InputError, match="the one that the model learns in"):
        model.evaluate(1, env=model.run.seats[1].task.env)
    model.save(tmp_path)
    with pytest.raises(InputError, match=r"learned in PaysOne\("):
        Sac.load(tmp_path)
    assert Sac.load(tmp_path, vector(*wrapped)).learn(2).num_timesteps == 402
    made = Sac(wrapped[0], envs=2, **SMALL)  # a function is asked twice
    assert made.learn(30).evaluate(1)["return"] == 200
    assert made.run.stride == 2
    named = Sac(vector(lambda: pendulum(g=2.0), lambda: pendulum(g=2.0)), **SMALL)
    assert (named.config.task_options, named.config.environment) == ({"g": 2.0}, None)


def test_environments_that_differ_are_not_evaluated_in_one_of_them() -> None:
    model = sac(vector(pendulum, lambda: pendulum(g=1.0)), 30)
    assert "and others beside it" in str(model.config.environment)
    with pytest.raises(InputError, match="none stands for all"):
        model.evaluate(1)
    changed = sac(vector(changed_by_hand, pendulum), 30)
    with pytest.raises(InputError, match="a copy is not the same"):
        changed.evaluate(1)


def test_set_env_of_several_cuts_the_episode_of_each(tmp_path: Path) -> None:
    model = Sac(PENDULUM, envs=2, **SMALL).learn(30)
    model.set_env(lambda: PaysOne(pendulum()))
    model.learn(6)
    rows = model.run.replay.rows
    assert rows.truncated[:36].tolist() == [0.0] * 28 + [1.0] * 2 + [0.0] * 6
    assert (rows.reward[30:36] == 1).all()
    assert [seat.episode for seat in model.run.seats] == [2, 3]
    model.save(tmp_path)
    loaded = Sac.load(tmp_path, env=lambda: PaysOne(pendulum()))
    for each in (model, loaded):
        each.learn(4)
    here, there = (each.run.replay.rows.observation[:40] for each in (model, loaded))
    np.testing.assert_array_equal(here, there)
    with pytest.raises(InputError, match="envs is 2, but env is one environment"):
        model.set_env(pendulum())


# phimu.evaluate


def test_any_policy_is_evaluated_in_the_range_of_the_environment() -> None:
    env = gymnasium.make(PENDULUM)
    seeds = [int(s) for s in np.random.SeedSequence(3).generate_state(2)]
    expected = []
    for seed in seeds:
        total, (observation, _) = 0.0, env.reset(seed=seed)
        for _ in range(200):
            action = np.array([1.5 * np.sign(observation[2])], np.float32)
            observation, reward, *_ = env.step(action)
            total += float(reward)
        expected.append(total)
    found = phimu.evaluate(lambda o: np.array([1.5 * np.sign(o[2])]), PENDULUM, 2, seed=3)
    np.testing.assert_allclose(found.returns, expected, rtol=1e-6)
    with pytest.raises(InputError, match=r"is 2\.5, outside of its range -2 to 2"):
        phimu.evaluate(lambda o: np.array([2.5]), PENDULUM, 1)
    with pytest.raises(InputError, match=r"action has shape \(1, 2\)"):
        phimu.evaluate(lambda o: np.zeros(2), PENDULUM, 1)
    model = sac(PENDULUM, 25)
    here = phimu.evaluate(model, PENDULUM, 2, seed=4).summary()
    there = model.evaluate(2, seed=4)
    assert here["return"] == pytest.approx(there["return"], rel=1e-4)
