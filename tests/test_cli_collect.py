"""`phimu data collect`, `join` and `replay`, as they are typed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import minari
import numpy as np
import pytest

from phimu.cli import main
from phimu.data.sets.opening import open_set

MAZE = "phimu/FourRooms-v0"
OPTIONS = ["--option", "max_episode_steps=25"]
TRAIN = (
    "--agent sac --actor-sizes 8 --critic-width 8 --batch-size 8 --buffer-size 100 "
    "--learning-starts 20 --evaluate-every 0 --checkpoint-every 20 --steps 60"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    search = os.pathsep.join(str(Path(path).resolve()) for path in inherited if path)
    monkeypatch.setenv("PYTHONPATH", search)
    monkeypatch.chdir(tmp_path)


def data(*arguments: object) -> int:
    return main(["data", *map(str, arguments)])


def said(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def collect(out: str, *more: object, steps: int = 60, policy: object = "random") -> int:
    flags = ("--policy", policy, "--steps", steps, "--out", out, "--quiet")
    return data("collect", MAZE, *flags, *(more or OPTIONS))


def test_collect_writes_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("a.hdf5") == 0
    report = said(capsys)
    assert (report["steps"], report["episodes"], report["score"]) == (60, 3, None)
    assert report["steps_per_second"] > 0
    found = open_set("a.hdf5", report["sha256"])
    assert (found.task, found.name, len(found)) == (MAZE, "a", 60)
    returns = np.bincount(found.transitions.episode, found.transitions.reward)
    assert report["return"] == pytest.approx(returns.mean())
    assert np.flatnonzero(found.transitions.truncated).tolist() == [24, 49, 59]


def test_a_seed_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("again").mkdir()
    for out, seed in (("a.hdf5", 0), ("again/a.hdf5", 0), ("b.hdf5", 1)):
        assert collect(out, *OPTIONS, "--seed", seed) == 0
    assert Path("a.hdf5").read_bytes() == Path("again/a.hdf5").read_bytes()
    assert Path("a.hdf5.sha256").read_bytes() == Path("again/a.hdf5.sha256").read_bytes()
    assert not np.array_equal(
        open_set("a.hdf5").transitions.action, open_set("b.hdf5").transitions.action
    )


def test_both_layouts_hold_the_same() -> None:
    assert collect("a.hdf5") == 0
    assert collect("a", *OPTIONS, "--layout", "minari", "--gzip") == 0
    one, other = open_set("a.hdf5"), open_set("a")
    assert one.task == other.task == MAZE
    for name, column in one.transitions._asdict().items():
        np.testing.assert_array_equal(column, getattr(other.transitions, name))
    environment = minari.MinariDataset("a/data").recover_environment()
    assert environment.spec.kwargs == {}
    assert environment.spec.max_episode_steps == 25


def test_a_run_collects_and_gives_its_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", MAZE, *TRAIN.split(), *OPTIONS, "--run-dir", "run", "--quiet"]) == 0
    # Without --option the task has the run's own, so the first episode is over after 25 steps.
    flags = ("--policy", "run", "--steps", 30, "--quiet")
    assert data("collect", MAZE, *flags, "--out", "sampled.hdf5") == 0
    assert data("collect", MAZE, *flags, "--out", "mode.hdf5", "--mode") == 0
    for name in ("sampled", "mode"):
        with h5py.File(f"{name}.hdf5") as file:
            words = f"sac on {MAZE}, seed 0, step 60, {name} actions"
            assert file.attrs["policy"] == words
            assert np.flatnonzero(file["timeouts"]).tolist() == [24, 29]
    assert data("replay", "run", "--out", "replay.hdf5") == 0
    assert said(capsys)["episodes"] == 3
    assert data("replay", "run", "--until", 40, "--out", "first.hdf5") == 0
    first, whole = open_set("first.hdf5").transitions, open_set("replay.hdf5").transitions
    assert (len(first.reward), len(whole.reward)) == (40, 60)
    np.testing.assert_array_equal(first.action, whole.action[:40])
    assert data("collect", "Pendulum-v1", *flags, "--out", "other.hdf5", "--option", "g=9.8") == 2
    assert f"which was trained on {MAZE}, of other sizes" in capsys.readouterr().err


def test_replay_ends_where_the_policy_is_good_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", MAZE, *TRAIN.split(), *OPTIONS, "--run-dir", "run", "--quiet"]) == 0
    returns = {20: 5.0, 40: 12.0, 60: 30.0}
    log = Path("run/metrics.jsonl")
    rows = [{"step": s, "kind": "evaluation", "return": r} for s, r in returns.items()]
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert data("replay", "run", "--until-return", 10, "--out", "medium_replay.hdf5") == 0
    assert len(open_set("medium_replay.hdf5")) == 40
    capsys.readouterr()
    assert data("replay", "run", "--until-return", 31, "--out", "better.hdf5") == 2
    assert "until_return is 31" in (said := capsys.readouterr().err)
    assert "the best is 30" in said
    assert data("replay", "run", "--until", 5, "--until-return", 1, "--out", "b.hdf5") == 2
    assert "give one of them" in capsys.readouterr().err


def test_join(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("a.hdf5") == 0
    assert collect("b.hdf5", *OPTIONS, "--seed", 1, steps=30) == 0
    assert data("join", "a.hdf5", "b.hdf5", "--out", "ab.hdf5") == 0
    assert said(capsys)["episodes"] == 5
    assert data("join", "a.hdf5", "b.hdf5", "a.hdf5", "--out", "aba", "--layout", "minari") == 0
    a, b, ab, aba = (open_set(name) for name in ("a.hdf5", "b.hdf5", "ab.hdf5", "aba"))
    assert ab.task == aba.task == MAZE
    assert len(aba) == 150
    for name, column in ab.transitions._asdict().items():
        parts = [getattr(each.transitions, name) for each in (a, b)]
        if name == "episode":
            parts[1] = parts[1] + 3
        np.testing.assert_array_equal(column, np.concatenate(parts))


def test_only_sets_of_one_task_are_joined(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("a.hdf5") == 0
    flags = ("--policy", "random", "--steps", 9, "--out", "b.hdf5", "--quiet")
    assert data("collect", "Pendulum-v1", *flags) == 0
    assert np.abs(h5py.File("b.hdf5")["actions"][:]).max() > 1  # torques to +-2
    assert np.abs(open_set("b.hdf5").transitions.action).max() <= 1
    assert data("join", "a.hdf5", "b.hdf5", "--out", "c.hdf5") == 2
    assert "join sets of one task" in capsys.readouterr().err
    assert data("join", "a.hdf5", "--out", "c.hdf5") == 2
    assert "name at least two" in capsys.readouterr().err
    assert not Path("c.hdf5").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "absent.npz"], "no such run directory and no such file"),
        (["--policy", "."], "is not a run directory"),
        (["--policy", "random", "--mode"], "random actions have none"),
        (["--policy", "random", "--out", "there.hdf5"], "which exists"),
        (["--policy", "random", "--steps", "0"], "steps is 0"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there.hdf5").write_bytes(b"precious")
    assert data("collect", MAZE, "--steps", 9, "--out", "new.hdf5", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert os.listdir() == ["there.hdf5"]
    assert Path("there.hdf5").read_bytes() == b"precious"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(number: signal.Signals) -> None:
    command = ["data", "collect", MAZE, "--policy", "random", "--steps", "100000000"]
    # A job in the background ignores SIGINT, and its children would too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "phimu", *command, "--out", "a.hdf5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    assert process.stdout.readline() == "Collecting a.hdf5: uniformly random actions\n"
    time.sleep(0.1)
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert error.splitlines()[-1] == f"phimu: stopped by {number.name}; nothing was written."
    assert os.listdir() == []


def test_cut_leaves_a_region_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("a.hdf5") == 0
    whole = open_set("a.hdf5")
    middle = float(np.median(whole.transitions.observation[:, 0]))
    region = f"0:0:{middle}", "1:-1:21"
    assert data("cut", "a.hdf5", "--within", *region, "--out", "cut.hdf5") == 0
    report = said(capsys)
    found = open_set("cut.hdf5", report["sha256"])
    assert 0 < report["cut"] == len(whole) - len(found) < len(whole)
    rows = found.transitions
    for observation in (rows.observation, rows.next_observation):
        assert (observation[:, 0] >= middle).all()
    assert (found.task, found.name) == (MAZE, "cut")


@pytest.mark.parametrize("within", ["0:1", "2:0:1", "0:1:1", "x:0:1"])
def test_a_region_is_named_as_it_should_be(within: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("a.hdf5") == 0
    assert data("cut", "a.hdf5", "--within", within, "--out", "cut.hdf5") != 0
    assert f"within is '{within}'" in capsys.readouterr().err
