"""Models of discrete actions take and give the integers of the environment."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import phimu
from phimu import Ctrl, InputError, Model, Offline, Sac, from_arrays
from phimu.agents import AGENTS
from phimu.callbacks import Evaluate
from phimu.cli import main

TINY = {"actor_sizes": (8,), "critic_width": 8, "batch_size": 8, "learning_starts": 20}
FEATURES = {"feature_dim": 8, "feature_sizes": (8,), "negatives": 4, "bonus_scale": 1.0}
PROBE = "phimu/probe-ChooseObservation-v0"  # whose actions are -1, 0 and 1


class Walk(gymnasium.Env):
    """A place on a line and a load, shown as a dict; one of three steps is taken."""

    observation_space = Dict(place=Discrete(4), load=Box(-1.0, 1.0, (2,)))
    action_space = Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return self._seen(), {}

    def step(self, action: int) -> tuple:
        assert self.action_space.contains(action)
        self.place, self.steps = int(np.clip(self.place + action - 6, 0, 3)), self.steps + 1
        return self._seen(), float(self.place == 3), False, self.steps == 12, {}

    def _seen(self) -> dict[str, Any]:
        return {"place": self.place, "load": self.np_random.uniform(-1, 1, 2).astype(np.float32)}


def sac(env: Any = PROBE, steps: int = 30, **more: Any) -> Sac:
    return Sac(env, **TINY, **more).learn(steps)


@pytest.fixture(scope="module")
def ctrl() -> Ctrl:
    return Ctrl(PROBE, **TINY, **FEATURES).learn(30)


def test_predict_gives_integers_of_the_environment(ctrl: Ctrl) -> None:
    seen = np.random.default_rng(0).uniform(-1, 1, (40, 1)).astype(np.float32)
    for deterministic in (False, True):
        many, _ = ctrl.predict(seen, deterministic=deterministic)
        assert (many.shape, many.dtype) == ((40,), np.int64)
        assert set(many.tolist()) <= {-1, 0, 1}
        one, _ = ctrl.predict(seen[0], deterministic=deterministic)
        assert one.shape == ()
        assert ctrl.run.task.env.action_space.contains(one)
    assert len({int(ctrl.predict(seen[0])[0]) for _ in range(30)}) > 1
    assert ctrl.predict(seen[:0])[0].shape == (0,)


def test_queries_take_integers_of_the_environment(ctrl: Ctrl) -> None:
    seen, chosen = np.zeros((3, 1)), np.array([-1, 0, 1])
    for word in ("q_value", "phi", "bonus"):
        inside = ctrl.run.learner.query(word, np.float32(seen), np.eye(3, dtype=np.float32))
        for given in (chosen, chosen.tolist(), chosen.astype(np.float64)):
            np.testing.assert_array_equal(getattr(ctrl, word)(seen, given), inside)
    base = ctrl.base_measure()
    ratio = ctrl.density_ratio(seen, chosen, base.points)
    np.testing.assert_allclose(ratio @ base.weights, 1, rtol=1e-5)
    assert ctrl.log_z(seen, chosen).shape == (3,)
    assert len(ctrl.q_value(seen[:0], chosen[:0])) == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([0, 0, 2], r"action in row 2 is 2, which is none of the integers -1 to 1"),
        ([0, -2, 0], r"action in row 1 is -2, which is none of"),
        ([0, 0.5, 0], r"action in row 1 is 0\.5, which is none of"),
        ([0, np.nan, 0], "action is not finite in row 1"),
        ([0, 0], "action has 2 rows: give 3"),
        ([[0], [0], [0]], r"action has shape \(3, 1\): give a batch \[B\]"),
        (["x", "y", "z"], "action is no array of numbers"),
    ],
)
def test_what_is_no_action_is_refused(ctrl: Ctrl, wrong: list, said: str) -> None:
    for word in ("q_value", "phi", "bonus", "log_z"):
        with pytest.raises(InputError, match=said):
            getattr(ctrl, word)(np.zeros((3, 1)), wrong)


@pytest.mark.parametrize("envs", [1, 2])
def test_a_saved_model_goes_on_to_the_bit(tmp_path: Path, envs: int) -> None:
    """Within an episode, which is replayed from its seed and actions."""
    straight = sac(Walk, 30, envs=envs)
    straight.save(tmp_path)
    loaded = Sac.load(tmp_path, env=Walk)
    for model in (straight, loaded):
        model.learn(14)
    here, there = (model.run.learner.arrays() for model in (straight, loaded))
    for name, array in here.items():
        np.testing.assert_array_equal(array, there[name])
    rows = straight.run.replay.rows
    np.testing.assert_array_equal(rows.action[:44], loaded.run.replay.rows.action[:44])
    assert (rows.action[:44].sum(axis=1) == 1).all()


def test_uniform_mix_is_uniform_over_the_actions() -> None:
    model = sac(PROBE, 320, uniform_mix=1.0, train_freq=400)
    np.testing.assert_allclose(model.run.replay.rows.action[20:320].mean(axis=0), 1 / 3, atol=0.1)
    assert (model.run.replay.rows.action[20:320].max(axis=1) == 1).all()


def test_observations_of_a_dict_are_given_as_they_are_or_flat() -> None:
    model = sac(Walk)
    one = {"place": 2, "load": np.array([0.5, -0.5], np.float32)}
    flat = np.float32(gymnasium.spaces.flatten(Walk.observation_space, one))
    two = {"place": np.array([2, 0]), "load": np.array([[0.5, -0.5], [0, 0]], np.float32)}
    expected, _ = model.predict(flat, deterministic=True)
    assert model.predict(one, deterministic=True)[0] == expected
    assert 5 <= expected <= 7
    assert model.predict(two, deterministic=True)[0].tolist()[0] == expected
    alone = model.q_value(flat[None], [5])
    np.testing.assert_allclose(model.q_value(two, [5, 7])[:1], alone, rtol=1e-5)
    for wrong in ({"place": 2}, {"place": 9, "load": np.zeros(2)}, {"place": 1, "load": [0]}):
        with pytest.raises(InputError, match="observation is not of Dict"):
            model.predict(wrong)
    with pytest.raises(InputError, match=r"observation has shape \(3,\): give \(6,\)"):
        model.predict(np.zeros(3))


def test_evaluation_of_models_functions_and_callbacks() -> None:
    model = sac(Walk, 30)
    summary = model.evaluate(2, seed=4)
    assert phimu.evaluate(model, Walk(), 2, seed=4).summary() == summary

    def rightward(observation: dict) -> int:
        assert Walk.observation_space.contains(observation)
        return 7

    assert phimu.evaluate(rightward, Walk(), 1).summary()["return"] == 10
    with pytest.raises(InputError, match="is 8, which is none of the integers 5 to 7"):
        phimu.evaluate(lambda o: 8, Walk(), 1)
    model.learn(10, callback=Evaluate(every=10, episodes=1))
    assert model.history[-1]["kind"] == "evaluation"


def test_an_environment_of_other_actions_is_refused() -> None:
    model = sac(Walk)
    moved = type("Moved", (Walk,), {"action_space": Discrete(3)})
    with pytest.raises(InputError, match=r"actions lie in the integers 0 to 2, those of .* 5 to 7"):
        model.set_env(moved)
    box = type("Continuous", (Walk,), {"action_space": Box(-1.0, 1.0, (3,))})
    with pytest.raises(InputError, match=r"actions lie in \[-1\.0, .*the integers 5 to 7"):
        model.evaluate(1, env=box)


def test_an_exported_policy_chooses_as_the_model(tmp_path: Path) -> None:
    model = sac(Walk, normalise_observations=True)
    seen = np.random.default_rng(1).uniform(-3, 3, (50, 6)).astype(np.float32)
    expected, _ = model.predict(seen, deterministic=True)
    assert len(set(expected.tolist())) > 1
    model.export(tmp_path / "policy.npz")
    page = Path(__file__).parents[1] / "docs" / "export.md"
    space: dict[str, Any] = {}
    exec(page.read_text().split("```python\n")[3].split("```")[0], space)  # noqa: S102
    actions = space["load_policy"](tmp_path / "policy.npz")(seen)
    np.testing.assert_array_equal(actions, expected)
    assert actions.dtype == np.int64
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model.export(tmp_path / "policy.onnx")
    session = runtime.InferenceSession(tmp_path / "policy.onnx")
    action, logits = session.run(["action", "logits"], {"observation": seen})
    np.testing.assert_array_equal(action, expected)
    np.testing.assert_array_equal(5 + logits.argmax(axis=1), expected)


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    flags = {**TINY, **FEATURES, "evaluate_every": 20, "evaluation_episodes": 1}
    words = ["train", "CartPole-v1", "--steps", "130", "--run-dir", str(path), "--quiet"]
    for name, value in flags.items():
        values = value if isinstance(value, tuple) else (value,)
        words += ["--" + name.replace("_", "-"), *map(str, values)]
    assert main(words) == 0
    return path


def test_a_run_is_evaluated_probed_and_collected_from(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(run_directory), "--episodes", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["return"] >= 8
    assert main(["probe", str(run_directory)]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["action_share"] <= 10
    assert main(["resume", str(run_directory), "--steps", "140", "--quiet"]) == 0
    capsys.readouterr()
    h5py = pytest.importorskip("h5py")
    for mode in ([], ["--mode"]):
        out = tmp_path / f"set{len(mode)}.hdf5"
        words = ["CartPole-v1", "--policy", str(run_directory), "--steps", "50", "--quiet", *mode]
        assert main(["data", "collect", *words, "--out", str(out)]) == 0
        with h5py.File(out) as file:
            actions = file["actions"][:]
        assert (actions.dtype, actions.shape) == (np.int64, (50,))
        assert set(actions.tolist()) <= {0, 1}
    assert main(["data", "show", str(out)]) == 2
    assert "holds an integer a row, so actions are discrete" in capsys.readouterr().err


def test_random_actions_of_a_task_are_its_integers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "CartPole-v1", "--policy", "random", "--episodes", "20"]) == 0
    assert 15 < json.loads(capsys.readouterr().out)["return"] < 35


def test_what_is_done_to_observations_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "Blackjack-v1", "--agent", "sac", "--steps", "25", "--run-dir", str(tmp_path)]
    assert main([*words, "--learning-starts", "20", "--evaluate-every", "0"]) == 0
    assert "Blackjack-v1 has Tuple observations: they are flattened to" in capsys.readouterr().out


def test_an_agent_that_cannot_choose_says_who_can(monkeypatch: pytest.MonkeyPatch) -> None:
    able = [name for name, entry in AGENTS.items() if entry.discrete]
    monkeypatch.setitem(AGENTS, "sac", AGENTS["sac"]._replace(discrete=False))
    with pytest.raises(InputError) as told:
        Sac("CartPole-v1", **TINY)
    others = ", ".join(name for name in able if name != "sac")
    assert str(told.value) == (
        "sac needs continuous actions, but those of CartPole-v1 are discrete: choose one of "
        f"{others}."
    )


def test_logged_integers_are_refused_and_a_policy_of_numbers_does_not_choose() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "observation": rng.normal(size=(20, 1)),
        "reward": rng.normal(size=20),
        "terminated": np.zeros(20, bool),
        "episode": np.zeros(20),
    }
    with pytest.raises(InputError, match="holds an integer a row, so actions are discrete"):
        from_arrays(action=rng.integers(2, size=20), **columns)
    data = from_arrays(action=rng.uniform(-1, 1, (20, 3)), **columns)
    model: Model = Offline(data, "td3-bc", actor_sizes=(8,), critic_width=8, batch_size=8)
    with pytest.raises(InputError, match="lie in the integers -1 to 1, those of the policy in"):
        model.evaluate(1, env=PROBE)
