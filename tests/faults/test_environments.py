"""Environments that raise, and those that never end: what was learned is saved first, then said."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import phimu
from phimu import Sac
from phimu.cli import main
from phimu.evaluation import episodes
from phimu.runs import checkpoint
from phimu.runs.log import read_metrics

SOURCE = str(Path(next(iter(phimu.__path__))).parent)
FLAGS = (
    "--agent sac --actor-sizes 8 --critic-width 8 --batch-size 8 --learning-starts 20 "
    "--checkpoint-every 20 --log-every 5 --evaluation-episodes 1 --quiet"
)
SOFTWARE = 70


class Broken(gymnasium.Env):
    """Seven steps an episode. While the file `broken` is there, `call` number `at` raises."""

    def __init__(self, broken: str = "", call: str = "step", at: int = 38, limit: int = 7) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.broken, self.call, self.at, self.limit = broken, call, at, limit
        self.calls = {"step": 0, "reset": 0}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.steps = 0
        self._count("reset")
        return self.np_random.normal(size=1).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps += 1
        self._count("step")
        observation = self.np_random.normal(size=1).astype(np.float32)
        return observation, float(action[0]), False, self.steps == self.limit, {}

    def _count(self, call: str) -> None:
        self.calls[call] += 1
        there = self.broken and Path(self.broken).exists()
        if there and call == self.call and self.calls[call] == self.at:
            raise FileNotFoundError(2, "the joint is gone", "joint")


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    gymnasium.register("Broken-v0", Broken, disable_env_checker=True)
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    del gymnasium.registry["Broken-v0"]


def train(
    run: Path, broken: Path, call: str = "step", at: int = 38, evaluate_every: int = 0
) -> int:
    options = {"broken": str(broken), "call": call, "at": at}
    given = [f"{name}={json.dumps(value)}" for name, value in options.items()]
    words = ["--steps", "60", "--run-dir", str(run), "--evaluate-every", str(evaluate_every)]
    return main(["train", "Broken-v0", *FLAGS.split(), *words, "--option", *given])


@pytest.mark.parametrize(
    ("call", "at", "step"), [("step", 38, 37), ("reset", 6, 35), ("step", 2, 1)]
)
def test_what_was_learned_is_saved_first(
    call: str, at: int, step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then its own traceback, and one sentence; once it is mended, the run ends as any other."""
    broken = tmp_path / "broken"
    assert train(tmp_path / "whole", broken, call, at) == 0
    broken.touch()
    run = tmp_path / "run"
    assert train(run, broken, call, at) == SOFTWARE
    *above, sentence = capsys.readouterr().err.splitlines()
    where = "its reset" if call == "reset" else f"step {(at - 1) % 7 + 1} of the episode"
    assert sentence == (
        "phimu: Broken-v0 raised FileNotFoundError ([Errno 2] the joint is gone: 'joint') in "
        f"{where}. The run is saved at step {step}; mend the environment and re-run to resume."
    )
    assert above[0] == "Traceback (most recent call last):"
    assert "FileNotFoundError: [Errno 2] the joint is gone: 'joint'" in above[-1]
    files = [line for line in above if line.startswith("  File ")]
    assert all(str(Path(__file__)) in line for line in files[-2:])
    assert not any("phimu/session.py" in line for line in files)
    saved = checkpoint.load(run / "checkpoint", pytest.fail)
    assert saved is not None
    assert saved.step == step
    broken.unlink()
    capsys.readouterr()
    assert train(run, broken, call, at) == 0
    rows = (tmp_path / name / "metrics.jsonl" for name in ("whole", "run"))
    assert len({path.read_bytes() for path in rows}) == 1


def test_within_an_evaluation_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The environment of the evaluations fails in the second of them, which is made later."""
    broken = tmp_path / "broken"
    broken.touch()
    run = tmp_path / "run"
    assert train(run, broken, "step", 9, evaluate_every=7) == SOFTWARE
    broken.unlink()
    assert train(run, broken, "step", 9, evaluate_every=7) == 0
    assert train(tmp_path / "whole", broken, "step", 9, evaluate_every=7) == 0
    rows = (tmp_path / name / "metrics.jsonl" for name in ("whole", "run"))
    assert len({path.read_bytes() for path in rows}) == 1


def test_an_error_of_ours_is_not_taken_for_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("phimu.data.replay.Replay.add", wrong)
    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "run", tmp_path / "absent")


def test_in_python_the_error_is_the_environments_own_and_the_model_goes_on(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    model = Sac(Broken(str(broken)), actor_sizes=(8,), critic_width=8, batch_size=8)
    with pytest.raises(FileNotFoundError) as raised:
        model.learn(60)
    assert "in step 3 of the episode" in raised.value.__notes__[0]
    assert model.run.step == model.run.replay.added == 37
    broken.unlink()
    model.learn(23)
    assert model.run.step == 60


def test_a_run_in_an_endless_environment_goes_on_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(episodes, "LONGEST", 30)
    words = ["--steps", "40", "--run-dir", str(tmp_path / "run"), "--evaluate-every", "10"]
    assert main(["train", "Broken-v0", *FLAGS.split(), *words, "--option", "limit=-1"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "Broken-v0 had not ended after 30 steps and was cut there" in said[0]
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    lengths = [row["length"] for row in rows if row["kind"] == "evaluation"]
    assert lengths == [30.0] * 4


def test_an_option_of_the_wrong_type_is_one_sentence(tmp_path: Path) -> None:
    words = ["train", "Pendulum-v1", *FLAGS.split(), "--option", "g=abc", "--run-dir", "run"]
    done = subprocess.run(
        [sys.executable, "-m", "phimu", *words],
        env=os.environ | {"PYTHONPATH": SOURCE},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "phimu: option g is 'abc', but Pendulum-v1 has a number there, by default 10.0: give one.\n"
    )
    assert list(tmp_path.iterdir()) == []
