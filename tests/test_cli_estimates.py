"""What can be said of a run without an environment, from the command line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from phimu.cli import main

SIZES = (
    "--feature-dim 4 --feature-sizes 8 --negatives 4 --critic-width 8 --actor-sizes 8 "
    "--behaviour-sizes 8 --batch-size 8 --representation-updates 5 --behaviour-updates 5 --steps 5"
)


def phimu(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def write_set(path: Path, seed: int = 0, observation_dim: int = 3) -> Path:
    rng = np.random.default_rng(seed)
    walks = rng.normal(size=(3, 21, observation_dim)).cumsum(axis=1).astype(np.float32)
    np.savez(
        path,
        observation=walks[:, :-1].reshape(60, -1),
        action=rng.uniform(-1, 1, (60, 2)),
        reward=np.ones(60),
        next_observation=walks[:, 1:].reshape(60, -1),
        terminated=np.zeros(60, bool),
        truncated=np.arange(60) % 20 == 19,
        episode=np.arange(60) // 20,
    )
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(run directory, its data)."""
    place = tmp_path_factory.mktemp("offline")
    data = write_set(place / "logged.npz")
    assert phimu("train", data, *SIZES.split(), "--run-dir", place / "run", "--quiet") == 0
    return place / "run", data


def test_estimates_are_called_estimates(run, capsys):
    path, data = run
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert phimu("evaluate", path, "--data", data, "--fqe-updates", 20) == 0
    out, _ = capsys.readouterr()
    result = json.loads(out)  # one line, and nothing else
    assert (result["agent"], result["step"], result["data"]) == ("ctrl-lcb", 15, "logged")
    assert result["estimated_by"] == "fitted Q evaluation, 20 updates"
    assert result["data_value"] == pytest.approx(np.sum(0.99 ** np.arange(20)))
    assert result["data_episodes"] == 3
    assert np.isfinite(result["estimated_value"])
    assert 0 < result["penalty_data"] <= 2
    assert 0 < result["penalty_policy"] <= 2
    assert not {"return", "score"} & result.keys()
    assert files == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_training_says_how_to_get_them(run, tmp_path, capsys):
    path, data = run
    assert phimu("train", data, *SIZES.split(), "--run-dir", path) == 0
    assert f"phimu evaluate {path} --data {data}" in capsys.readouterr().err
    assert phimu("evaluate", path) == 2
    assert "give --data for estimates" in capsys.readouterr().err


def test_resume_finds_the_data_of_the_run(run, tmp_path, capsys):
    """5 updates of phi, 5 of the clone, then those of the policy that --steps counts."""
    path, data = run
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["data"], manifest["steps"]) == (str(data), 15)
    copy = shutil.copytree(path, tmp_path / "copy")
    assert phimu("resume", copy, "--steps", 7, "--quiet") == 0
    assert sorted(step.name for step in (copy / "checkpoint").glob("step-*"))[-1][-2:] == "17"
    for name, content in (("elsewhere.npz", "elsewhere.npz"), (None, "where its data is")):
        manifest |= {"data": name, "sessions": []}
        kept = {key: value for key, value in manifest.items() if value is not None}
        (copy / "manifest.json").write_text(json.dumps(kept))
        capsys.readouterr()
        assert phimu("resume", copy, "--steps", 9) == 2
        error = capsys.readouterr().err
        assert content in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        (["--fqe-updates", 0], "fqe-updates is 0"),
        (["--policy", "random"], "no --policy random"),
        (["--data", "absent.npz"], "absent.npz"),
    ],
)
def test_bad_input_is_one_sentence(run, arguments, mentioned, capsys):
    path, data = run
    assert phimu("evaluate", path, "--data", data, *arguments) == 2
    error = capsys.readouterr().err
    assert mentioned in error
    assert error.count("\n") == 1


def test_data_of_other_sizes_is_refused(run, tmp_path, capsys):
    other = write_set(tmp_path / "wide.npz", observation_dim=5)
    assert phimu("evaluate", run[0], "--data", other) == 2
    assert "observations of 5 and actions of 2 numbers" in capsys.readouterr().err


def test_the_penalty_is_told_and_drawn(run, tmp_path, capsys):
    path, data = run
    other = write_set(tmp_path / "other.npz", seed=1)
    picture = tmp_path / "penalty.png"
    arguments = ["data", "penalty", path, "--data", data, "--picture", picture]
    assert phimu(*arguments, "--other", other) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == str(picture)
    assert out[0].split() == ["pairs", "mean", "median", "95", "%", "x", "the", "data's"]
    assert out[1].startswith("the data's pairs")
    assert out[1].split()[-1] == "1"
    assert picture.read_bytes().startswith(b"\x89PNG")
    wide = write_set(tmp_path / "wide.npz", observation_dim=5)
    assert phimu(*arguments, "--other", wide) == 2
    assert "other sizes" in capsys.readouterr().err
