"""`phimu.Offline`: from arrays to a policy in the data's own range, and back from a directory."""

import json

import numpy as np
import pytest

from phimu import Ctrl, InputError, Model, Offline, Sac, from_arrays, open_set

SMALL = {
    "feature_dim": 4,
    "feature_sizes": (8,),
    "negatives": 4,
    "actor_sizes": (8,),
    "critic_width": 8,
    "batch_size": 8,
    "behaviour_sizes": (8,),
    "behaviour_updates": 3,
    "representation_updates": 3,
}


def swings(rows: int = 40, shift: float = 0.0, scale: float = 1.0, **more):
    """Random pairs of Pendulum's sizes, with torques of [-2, 2], or `scale` times these."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(rows + 1, 3)), axis=0)
    return from_arrays(
        observation=walk[:-1],
        action=scale * rng.uniform(-2, 2, (rows, 1)),
        reward=rng.normal(size=rows) + shift,
        next_observation=walk[1:],
        terminated=np.zeros(rows, bool),
        truncated=np.arange(rows) % 10 == 9,
        action_low=[-2.0 * scale],
        action_high=[2.0 * scale],
        **more,
    )


def test_learns_predicts_in_the_datas_range_and_comes_back(tmp_path):
    model = Offline(swings(task="Pendulum-v1"), seed=1, **SMALL).learn(4)
    assert model.run.step == 3 + 3 + 4
    observations = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    actions, _ = model.predict(observations, deterministic=True)
    assert actions.shape == (5, 1)
    one, _ = model.predict(observations[2], deterministic=True)
    np.testing.assert_allclose(one, actions[2], rtol=1e-5)
    np.testing.assert_allclose(actions, 2 * model.run.policy()(observations), rtol=1e-5)
    assert model.evaluate(episodes=1)["length"] == 200
    model.save(tmp_path)
    again = Offline.load(tmp_path, data=swings(task="Pendulum-v1"))
    np.testing.assert_array_equal(again.predict(observations, deterministic=True)[0], actions)
    pairs = observations, actions
    np.testing.assert_array_equal(again.penalty(*pairs), model.penalty(*pairs))
    np.testing.assert_array_equal(again.q_value(*pairs), model.q_value(*pairs))
    for learner in (model, again):
        learner.learn(3)
    here, there = (each.predict(observations, deterministic=True)[0] for each in (again, model))
    np.testing.assert_array_equal(here, there)
    samples, _ = model.predict(np.repeat(observations, 40, axis=0))
    assert (np.abs(samples) <= 2).all()
    assert len(np.unique(samples)) == 200  # without `deterministic` they are drawn, as of others


def test_without_its_data_a_model_acts_but_does_not_learn(tmp_path):
    Offline(swings(), **SMALL).learn(1).save(tmp_path)
    model = Offline.load(tmp_path)
    assert model.predict(np.zeros(3))[0].shape == (1,)
    with pytest.raises(InputError, match="no data to learn from"):
        model.learn(1)
    with pytest.raises(InputError, match="names no environment"):
        model.evaluate()


def test_load_refuses_other_data(tmp_path):
    """As it does with a file whose checksum is another: learning would go on elsewhere."""
    Offline(swings(), **SMALL).learn(1).save(tmp_path / "model")
    for other in (swings(41), swings(shift=1.0)):
        with pytest.raises(InputError, match=r"has sha256 .* but the model learned from"):
            Offline.load(tmp_path / "model", data=other)
        with pytest.raises(InputError, match="has sha256"):
            Offline.load(tmp_path / "model", other)  # as the second argument too
    with pytest.raises(InputError, match="actions of another range"):
        Offline.load(tmp_path / "model", swings(scale=4.0))
    assert Offline.load(tmp_path / "model", swings()).learn(1).num_timesteps == 2


def test_a_file_is_opened_again_in_the_range_that_was_said(tmp_path):
    data = swings()
    columns = data.transitions._asdict() | {"action": data.action / 4}  # within [-1, 1] by chance
    np.savez(tmp_path / "swings.npz", **columns)
    opened = open_set(tmp_path / "swings.npz", action_low=-0.5, action_high=0.5)
    model = Offline(opened, **SMALL).learn(1)
    model.save(tmp_path / "model")
    again = Offline.load(tmp_path / "model", tmp_path / "swings.npz")
    for each in (model, again):
        each.learn(2)
    np.testing.assert_array_equal(again.predict(np.ones(3))[0], model.predict(np.ones(3))[0])


def test_any_agent_on_logged_data_is_asked_alike(tmp_path):
    """preset and seed mean what they mean for Ctrl and Sac; a plain Model loads what it saved."""
    settings = {"actor_sizes": (8,), "critic_width": 8, "batch_size": 8}
    model = Offline(swings(), "td3-bc", "paper-d4rl", 3, **settings)
    assert (model.config.agent, model.config.seed) == ("td3-bc", 3)
    assert model.config == Model(swings(), "td3-bc", "paper-d4rl", 3, **settings).config
    model.save(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["preset"] == "paper-d4rl"
    loaded, observation = Model.load(tmp_path), np.ones((1, 3), np.float32)
    here, there = (each.predict(observation, deterministic=True)[0] for each in (model, loaded))
    np.testing.assert_array_equal(here, there)
    pair = observation, np.zeros((1, 1), np.float32)
    assert model.q_value(*pair).shape == (1,)
    for name in ("phi", "bonus", "penalty"):
        with pytest.raises(InputError, match=rf"^td3-bc has no {name}\.$"):
            getattr(model, name)(*pair)


def test_estimates_are_of_the_data_and_of_the_policy():
    found = Offline(swings(), **SMALL).learn(2).estimates()
    assert found.keys() == {"estimated_value", "penalty_data", "penalty_policy"}


def test_bad_input_is_named(tmp_path):
    with pytest.raises(InputError, match="agent is 'ctrl-ucb-m'"):
        Offline(swings(), agent="ctrl-ucb-m")
    with pytest.raises(InputError, match="did you mean behaviour_weight"):
        Offline(swings(), behavior_weight=1.0)
    model = Offline(swings(), **SMALL)
    with pytest.raises(InputError, match=r"observation has shape \(4,\): give \(3,\)"):
        model.predict(np.zeros(4))
    with pytest.raises(InputError, match="total_timesteps is 0"):
        model.learn(0)
    with pytest.raises(InputError, match=r"^ctrl-lcb has no bonus\.$"):
        model.bonus(np.zeros((1, 3)), np.zeros((1, 1)))
    model.save(tmp_path)
    for online in (Sac, Ctrl):
        with pytest.raises(InputError, match="load it with Offline"):
            online.load(tmp_path)
