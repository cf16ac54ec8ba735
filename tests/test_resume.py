"""`phimu resume DIR`: a run directory alone says how the run goes on, to the bit."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from phimu import Model
from phimu.cli import main
from phimu.data.sets.arrays import from_arrays
from phimu.errors import InputError
from phimu.runs import checkpoint
from phimu.session import order_of
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun

SIZES = "--actor-sizes 8 --critic-width 8 --batch-size 8 --checkpoint-every 25 --log-every 10"
ONLINE = f"""phimu/probe-MatchObservation-v0 --agent sac --steps 60 {SIZES} --learning-starts 20
    --buffer-size 50 --evaluate-every 20 --evaluation-episodes 1 --seed 3 --quiet"""
LOGGED = f"""--agent ctrl-lcb --steps 40 {SIZES} --feature-dim 8 --feature-sizes 8 --bonus-kernel
    16 0.5 --behaviour-sizes 8 --representation-updates 30 --behaviour-updates 20
    --evaluate-every 20 --seed 3 --quiet"""


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """A file of arrays that names no environment."""
    rng = np.random.default_rng(0)
    path = tmp_path / "data" / "swings.npz"
    path.parent.mkdir()
    walk = rng.normal(size=(61, 2)).astype(np.float32)
    np.savez(
        path,
        observation=walk[:-1],
        action=rng.uniform(-1, 1, (60, 1)).astype(np.float32),
        reward=rng.normal(size=60).astype(np.float32),
        next_observation=walk[1:],
        terminated=np.zeros(60, bool),
        truncated=np.arange(60) % 20 == 19,
    )
    return path


def train(source: str, words: str, run: Path) -> int:
    return main(["train", *source.split(), *words.split(), "--run-dir", str(run)])


def everything(run: Path) -> dict[str, bytes]:
    """Agent, facts, metrics, and the replay buffer whichever files it lies in."""
    saved = checkpoint.load(run / "checkpoint", pytest.fail)
    assert saved is not None
    parts = {name: array.tobytes() for name, array in saved.arrays.items()}
    parts["facts"] = json.dumps([saved.step, saved.facts]).encode()
    parts["metrics"] = (run / "metrics.jsonl").read_bytes()
    files = [run / "checkpoint" / "replay" / s.name for s in saved.segments if s.kind == "rows"]
    loaded = [load_file(file) for file in files]
    for column in loaded[0] if loaded else ():
        parts[column] = np.concatenate([each[column] for each in loaded])[-50:].tobytes()
    return parts


def manifest(run: Path) -> dict:
    return json.loads((run / "manifest.json").read_bytes())


def change_manifest(run: Path, **changes: object) -> None:
    """None takes an entry out."""
    values = {k: v for k, v in (manifest(run) | changes).items() if v is not None}
    (run / "manifest.json").write_text(json.dumps(values))


def test_online_it_goes_on_to_the_bit(tmp_path: Path, stopped_before, capsys):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert train("", ONLINE, whole) == 0
    with stopped_before(OnlineRun, 33):
        assert train("", ONLINE, broken) == 128 + signal.SIGTERM
        assert "re-run to resume" in capsys.readouterr().err
    assert main(["resume", str(broken), "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(broken)
    assert everything(broken) == everything(whole)
    assert manifest(broken)["preset"] == "small"
    assert [each["steps"] for each in manifest(broken)["sessions"]] == [60]
    assert main(["resume", str(broken), "--quiet"]) == 0
    assert "Already trained to step 60" in capsys.readouterr().err


def test_steps_make_it_longer_and_are_remembered(tmp_path: Path, stopped_before):
    whole, short = tmp_path / "whole", tmp_path / "short"
    assert train("", ONLINE, whole) == 0
    assert train("", ONLINE.replace("--steps 60", "--steps 41"), short) == 0
    with stopped_before(OnlineRun, 50):
        assert main(["resume", str(short), "--steps", "60", "--quiet"]) == 143
    assert main(["resume", str(short), "--quiet"]) == 0
    assert everything(short) == everything(whole)


@pytest.mark.parametrize("step", [12, 41, 70])  # in each phase: phi, behaviour, policy
def test_on_logged_data_it_goes_on_to_the_bit_from_any_directory(
    step: int, tmp_path: Path, logged: Path, monkeypatch, stopped_before
):
    """The source was named relative to another directory than that of `resume`."""
    monkeypatch.chdir(logged.parent)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert train("swings.npz", LOGGED, whole) == 0
    with stopped_before(OfflineRun, step):
        assert train("swings.npz", LOGGED, broken) == 128 + signal.SIGTERM
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "broken", "--quiet"]) == 0
    assert everything(broken) == everything(whole)
    told = manifest(broken)
    assert (told["data"], told["preset"], told["steps"]) == (str(logged), "small", 90)
    config = json.loads((broken / "config.json").read_bytes())
    assert len(config["dataset"]["sha256"]) == 64
    order = order_of(broken)
    assert (order.steps, order.last_step, order.data) == (40, 90, str(logged))


def test_data_that_was_moved_is_one_sentence_with_the_fix(
    tmp_path: Path, logged: Path, stopped_before, capsys
):
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert train(str(logged), LOGGED, whole) == 0
    with stopped_before(OfflineRun, 12):
        assert train(str(logged), LOGGED, run) == 128 + signal.SIGTERM
    moved = logged.rename(tmp_path / "elsewhere.npz")
    before = everything(run)
    capsys.readouterr()
    assert main(["resume", str(run), "--quiet"]) == 2
    assert capsys.readouterr().err == (
        f"phimu: {run} learned from {logged}, which is not there: say where its data is with "
        "--data.\n"
    )
    with np.load(moved) as file:
        other = {name: file[name] for name in file.files}
    np.savez(logged, **other | {"reward": other["reward"] + 1})  # something else in its place
    assert main(["resume", str(run), "--quiet"]) == 2
    assert f"{logged} is damaged or another file" in capsys.readouterr().err
    assert everything(run) == before
    assert main(["resume", str(run), "--data", str(moved), "--quiet"]) == 0
    assert everything(run) == everything(whole)
    assert order_of(run).data == str(moved)  # the last place that it was found in


def test_a_directory_of_minaris_is_found_again(tmp_path: Path, monkeypatch, stopped_before):
    """By whatever it was called: what is looked for is the file in it."""
    pytest.importorskip("h5py", reason="the extra offline is not installed")
    monkeypatch.chdir(tmp_path)
    words = ["--policy", "random", "--steps", "60", "--layout", "minari", "--out", "walks"]
    assert main(["data", "collect", "phimu/probe-MatchObservation-v0", *words]) == 0
    for number, source in enumerate(("minari:walks", f"minari:{tmp_path / 'walks'}")):
        run = tmp_path / str(number)
        with stopped_before(OfflineRun, 12):
            assert train(source, f"--agent td3-bc --steps 40 {SIZES} --quiet", run) == 143
        assert main(["resume", str(run), "--quiet"]) == 0
        assert order_of(run).data == f"minari:{tmp_path / 'walks'}"
        assert checkpoint.glance(run / "checkpoint")[0] == 40


def test_what_the_directory_does_not_say_is_asked_for(tmp_path: Path, logged: Path, capsys):
    """Models saved from Python have no last step, and a set in memory has no file."""
    sizes = {"actor_sizes": (8,), "critic_width": 8, "learning_starts": 20, "batch_size": 8}
    run = tmp_path / "run"
    Model("phimu/probe-MatchObservation-v0", "sac", **sizes).learn(25).save(run)
    assert manifest(run)["preset"] == "small"
    assert main(["resume", str(run), "--quiet"]) == 2
    assert capsys.readouterr().err == (
        f"phimu: {run} does not say how far it was to be trained: give --steps.\n"
    )
    assert main(["resume", str(run), "--steps", "30", "--data", "x.npz"]) == 2
    assert "leave --data out" in capsys.readouterr().err
    assert main(["resume", str(run), "--steps", "30", "--quiet"]) == 0
    assert everything(run)["facts"].startswith(b"[30, ")
    with np.load(logged) as file:
        data = from_arrays(**file)
    run = tmp_path / "offline"
    sizes.pop("learning_starts")
    Model(data, "td3-bc", **sizes).learn(5).save(run)
    with pytest.raises(InputError, match=r"learned from an unknown place: say where .* --data"):
        order_of(run, 10)


def test_what_is_no_run_is_refused(tmp_path: Path, capsys):
    assert main(["resume", str(tmp_path / "absent")]) == 2
    assert "is not a run directory" in capsys.readouterr().err
    assert not (tmp_path / "absent").exists()
    run = tmp_path / "run"
    assert train("", ONLINE, run) == 0
    change_manifest(run, steps=None)
    capsys.readouterr()
    assert main(["resume", str(run)]) == 2
    assert f"{run} does not say how far it was to be trained: give --steps." in (
        capsys.readouterr().err
    )
    (run / "manifest.json").unlink()
    assert main(["resume", str(run)]) != 0
    assert capsys.readouterr().err.count("\n") == 1
