"""Exported policies act as the model does, in programs that know nothing of phimu."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from phimu import Ctrl, InputError, Model, Offline, Sac, from_arrays
from phimu.export import Exported, npz_bytes, steps_of
from phimu.normalisation import Acting, AsIs

ROOT = Path(__file__).parents[1]
TINY = {"actor_sizes": (8, 8), "critic_width": 8, "batch_size": 8}
FEATURES = {"feature_dim": 8, "feature_sizes": (8,), "negatives": 4}
LIMIT = 1e-5  # relative to half the range of an action


class Blocks(gymnasium.Env):
    """Observations and actions that are matrices, and a range of its own in each place."""

    observation_space = gymnasium.spaces.Box(-100, 100, (2, 3), np.float32)
    low = np.array([[0, -3], [-1, 5]], np.float32)
    action_space = gymnasium.spaces.Box(low, low + np.array([[10, 1], [2, 100]], np.float32))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        return self.np_random.normal(5, 20, (2, 3)).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        seen = self.np_random.normal(5, 20, (2, 3)).astype(np.float32)
        return seen, float(action.sum()), False, bool(self.np_random.uniform() < 0.1), {}


def logged() -> Any:
    rng = np.random.default_rng(0)
    return from_arrays(
        observation=rng.normal([5, -3, 0], [0.1, 10, 1], (60, 3)),
        action=rng.uniform(0, 4, (60, 2)),
        reward=rng.normal(size=60),
        terminated=np.zeros(60, bool),
        truncated=np.arange(60) % 20 == 19,
        action_low=0,
        action_high=4,
    )


def make(name: str) -> Model:
    online = TINY | {"learning_starts": 20}
    if name == "sac":
        return Sac("Pendulum-v1", **online, planner_layer_norm=False).learn(30)
    if name == "sac, relu":
        return Sac(Blocks(), **online, activation="relu", normalise_observations=True).learn(30)
    if name == "ctrl-ucb":
        more = {"normalise_observations": True}
        return Ctrl("Pendulum-v1", **online, **FEATURES, **more).learn(30)
    if name == "ppo":
        sizes = {"actor_sizes": (8, 8), "batch_size": 64, "envs": 1}
        return Model(Blocks(), "ppo", **sizes).learn(64)
    first = {"behaviour_sizes": (8,), "behaviour_updates": 3, "representation_updates": 3}
    settings = {
        "td3-bc": TINY,
        "ctrl-lcb": TINY | FEATURES | first,
        "cpc": TINY | first | {"embedding_sizes": (8,), "embedding_dim": 4},  # with swish
    }
    return Offline(logged(), name, **settings[name]).learn(4)


def observations(model: Model) -> np.ndarray:
    """Also such as lie far beyond everything seen, where normalised ones are clipped."""
    rng = np.random.default_rng(1)
    shape = model._shapes[0]
    near, far = rng.normal(size=(40, *shape)), 1e4 * rng.normal(size=(10, *shape))
    return np.concatenate([near, far]).astype(np.float32)


def assert_same(model: Model, actions: np.ndarray) -> None:
    ours, _ = model.predict(observations(model), deterministic=True)
    assert actions.shape == ours.shape
    half = (model.action_range.high - model.action_range.low).reshape(ours.shape[1:]) / 2
    assert np.abs((actions - ours) / half).max() < LIMIT
    assert np.ptp(ours, axis=0).min() > 0  # the policy does not always do the same


AGENTS = ["sac", "sac, relu", "ctrl-ucb", "ppo", "ctrl-lcb", "cpc", "td3-bc"]


SLOWER = ("ctrl-lcb", "cpc")  # phases before the policy's have programs of their own


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.thorough) if x in SLOWER else x for x in AGENTS],
)
def test_arrays_are_read_by_the_program_in_the_docs(name: str, tmp_path: Path) -> None:
    """In a Python that has NumPy and does not look for phimu."""
    model = make(name)
    model.export(tmp_path / "policy.npz")
    np.save(tmp_path / "observations.npy", observations(model))
    reader = (ROOT / "docs" / "export.md").read_text().split("```python\n")[3].split("```")[0]
    code = f"""{reader}
import sys
act = load_policy("policy.npz")
np.save("actions.npy", act(np.load("observations.npy")))
assert not {{"phimu", "jax"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-I", "-c", code], check=True, cwd=tmp_path)
    assert_same(model, np.load(tmp_path / "actions.npy"))


@pytest.mark.parametrize("name", AGENTS)
def test_onnx_is_run_by_onnxruntime(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = make(name)
    model.export(tmp_path / "policy.onnx")
    session = runtime.InferenceSession(tmp_path / "policy.onnx")
    (actions,) = session.run(["action"], {"observation": observations(model)})
    assert_same(model, actions)
    (one,) = session.run(["action"], {"observation": observations(model)[:1]})
    np.testing.assert_allclose(one, actions[:1], rtol=1e-5, atol=1e-6)
    props = session.get_modelmeta().custom_metadata_map
    assert (props["agent"], props["step"]) == (model.config.agent, str(model.run.step))


def test_what_cannot_be_exported_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("td3-bc")
    for name in ("policy", "policy.pt"):
        with pytest.raises(InputError, match=r"give it \.onnx or \.npz"):
            model.export(tmp_path / name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'phimu\[onnx\]'"):
        model.export(tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="kind object cannot be exported"):
        steps_of(Acting(AsIs(), object()), model.action_range)


def test_arrays_need_no_pickle() -> None:
    model = make("td3-bc")
    steps = steps_of(model.run.learner.acting, model.action_range)
    file = np.load(_stream(npz_bytes(Exported(steps, (3,), (2,), {}))), allow_pickle=False)
    assert all(file[name].dtype.kind in "fU" for name in file.files)


def _stream(content: bytes) -> Any:
    import io

    return io.BytesIO(content)
