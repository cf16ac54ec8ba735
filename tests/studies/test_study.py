"""`phimu study` in one process: what it lists, what it does not do, and what it says to bad input.

Studies that train are in tests/faults/test_studies.py.
"""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from phimu.agents import preset
from phimu.cli import main
from phimu.cli.train import order_for, parse
from phimu.runs.config import RunConfig
from phimu.studies.cost import _updates, shared_out
from phimu.studies.plan import expand, narrow
from phimu.studies.tables import STUDIES

PROBE = "phimu/probe-TimeLimit-v0"
VARIANTS = len(STUDIES["table1"].variants)
SMALL = ["table1", "--preset", "small", "--steps", "2000", "--seeds", "2", "--tasks"]
BENCH = {
    "threads": 2,
    "updates": [
        {"name": "large", "gflop": 40.0, "gflops": 80.0},
        {"name": "small", "gflop": 0.5, "gflops": 50.0},
    ],
    "loop": [
        {"name": "sac 256-256", "first_update_seconds": 5.0, "memory_mb": 500.0},
        {"name": "ctrl-ucb-m 256-256-256", "first_update_seconds": 9.0, "memory_mb": 600.0},
    ],
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def study(*words: object) -> int:
    return main(["study", *map(str, words)])


def finish(path: Path, returns: float) -> None:
    """What a finished run leaves, as far as it is looked at."""
    config = {"task": PROBE, "agent": "sac", "settings": {}, "schedule": {}, "seed": 0}
    folder = path / "checkpoint" / "step-000002000"
    folder.mkdir(parents=True)
    (folder / "facts.json").write_text("{}")
    (path / "config.json").write_text(json.dumps(config | {"seed": int(path.name[-1])}))
    row = {"step": 2_000, "kind": "evaluation", "return": returns}
    (path / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def test_dry_run_lists_runs_and_starts_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert study(*SMALL, PROBE, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["1", PROBE, "ctrl-ucb-m", "0", "new"],
        ["2", PROBE, "ctrl-ucb-l", "0", "new"],
    ]
    assert [line.split()[0] for line in lines[1:11]] == [str(n) for n in range(1, 11)]
    assert "not known here: run `OMP_NUM_THREADS=1 phimu bench`" in lines[-1]
    assert not Path("runs").exists()


def test_dry_run_needs_no_simulator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a plain `pip install` the whole table is listed; a real run says what is missing."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("mujoco", "dm_control")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("mujoco", "dm_control"):
        monkeypatch.setitem(sys.modules, name, None)
    assert study("table1", "--preset", "small", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "?" not in said
    assert sum(line.split()[-1:] == ["new"] for line in said.splitlines()) == 10 * VARIANTS * 4
    assert study(*SMALL, "mbbl/HalfCheetah-v0") == 2
    assert 'to get it, run: pip install "phimu[mujoco]"' in capsys.readouterr().err
    assert not Path("runs").exists()


def test_dry_run_estimates_time_and_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SAC of preset small has 0.29 GFLOP an update: 1,000 at 50 GFLOP/s take 6 seconds."""
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(BENCH))
    words = "--agents", "sac", "--workers", 2, "--dry-run", "--bench", file
    assert study(*SMALL, PROBE, *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[4:] == ["new", "0:15", "507", "MB"]  # 9 s until the first update
    assert lines[-3:] == [
        "  1 at a time: 0:30, 507 MB at most",
        "  2 at a time: 0:15, 1,013 MB at most",
        "The bench had 2 threads, a run has one: it takes longer than this.",
    ]


def test_runs_are_shared_out_as_workers_get_free() -> None:
    assert shared_out([5.0, 1.0, 1.0, 1.0, 4.0], 2) == 7.0
    assert shared_out([5.0, 1.0], 1) == 6.0
    assert shared_out([5.0, 1.0], 9) == 5.0


def test_a_finished_study_is_only_scored(capsys: pytest.CaptureFixture[str]) -> None:
    asked = replace(
        narrow(STUDIES["table1"], [PROBE], ["sac"]), preset="small", steps=2_000, seeds=2
    )
    runs = expand(asked, {}, Path(), Path("runs"))
    for run, returns in zip(runs, (10.0, 14.0), strict=True):
        finish(run.path, returns)
    assert study(*SMALL, PROBE, "--agents", "sac") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "table1: 2 of 2 done"
    assert said[2].split() == ["return", "sac"]
    assert said[3].split() == [PROBE, "12", "±", "2.83", "(2)"]


def test_what_is_finished_is_kept_as_small_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under names of the study, without checkpoints and without paths of this machine."""
    asked = replace(narrow(STUDIES["table1"], [PROBE], ["sac"]), preset="small", steps=2_000)
    done, *_ = expand(asked, {}, Path(), tmp_path / "runs")
    finish(done.path, 10.0)
    command = ["phimu", "study", "table1", "--runs", str(tmp_path / "runs"), "--steps", "2000"]
    source = f"d4rl:{tmp_path / 'hopper.hdf5'}"
    manifest = {"command": command, "data": source, "seconds": 3.5, "sessions": []}
    (done.path / "manifest.json").write_text(json.dumps(manifest))
    words = "--agents", "sac", "--runs", tmp_path / "runs", "--keep", tmp_path / "kept"
    assert study(*SMALL, PROBE, *words, "--only", 1) == 0
    (target,) = (tmp_path / "kept" / "table1").glob("*/*/*")
    assert target.parts[-3:] == ("phimu-probe-TimeLimit-v0", "sac", "seed-0")
    assert sorted(path.name for path in target.iterdir()) == [
        *("config.json", "manifest.json", "metrics.jsonl")
    ]
    kept = json.loads((target / "manifest.json").read_text())
    assert str(tmp_path) not in json.dumps(kept)
    assert kept["command"] == [*command[:4], "runs", *command[5:]]
    assert kept["data"] == "d4rl:hopper.hdf5"
    assert kept["seconds"] == 3.5
    assert (target / "metrics.jsonl").read_text() == (done.path / "metrics.jsonl").read_text()


def test_settings_on_the_command_line_are_those_of_the_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run of train with the same settings is one of the study."""
    words = ["--batch-size", "128", "--actor-sizes", "64", "64", "--ratio", "linear"]
    request = parse([PROBE, "--agent", "ctrl-ucb-m", *words])
    finish(order_for(request, None).config.path(Path("runs"), "phimu"), 3.0)
    given = ["--set", "batch_size=128", "actor-sizes=64,64", "ratio=linear"]
    assert study(*SMALL, PROBE, "--agents", "ctrl-ucb-m", *given, "--dry-run") == 0
    states = [line.split()[4] for line in capsys.readouterr().out.splitlines()[1:3]]
    assert states == ["finished", "new"]


def test_options_on_the_command_line_are_for_the_tasks_of_their_suite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    walker = "dmc/walker-run-v0"
    request = parse([walker, "--agent", "sac", "--preset", "small", "--option", "action_repeat=2"])
    finish(order_for(request, None).config.path(Path("runs"), "dmc"), 3.0)
    asked = ["table2", "--preset", "small", "--agents", "sac", "--seeds", "1", "--steps", "200"]
    asked += ["--tasks", walker, PROBE, "--option", "dmc/action_repeat=2", "--dry-run"]
    assert study(*asked) == 0
    lines = capsys.readouterr().out.splitlines()
    (own,) = (line for line in lines if f" {walker} " in line and " sac " in line)
    assert own.split()[-1] == "finished"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["table4"], "There is no study 'table4': choose one of table1, table2,"),
        (
            [*SMALL, PROBE, "--agents", "dqn"],
            "agent is 'dqn': to train in an environment choose one of ctrl-ucb-m,",
        ),
        ([*SMALL, "Pendulun"], "task 'Pendulun' is not a registered Gymnasium id"),
        ([*SMALL, PROBE, "--only", "99"], f"only is 99: give numbers from 1 to {2 * VARIANTS}."),
        ([*SMALL, PROBE, "--workers", "0"], "workers is 0: give at least 1."),
        ([*SMALL, PROBE, "--set", "batch_size"], "set is 'batch_size': write it as name=value."),
        ([*SMALL, PROBE, "--option", "noise"], "option is 'noise': write it as name=value."),
        ([*SMALL, PROBE, "--set", "batch_size=x"], "batch_size is 'x': give an integer."),
        (["table3", "--preset", "small"], "data/halfcheetah_medium.hdf5"),
        ([*SMALL, PROBE, "--dry-run", "--bench", "x"], "x is not what a whole `phimu bench"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study(*words) == 2
    said = capsys.readouterr().err
    assert said.startswith("phimu: ")
    assert sentence in said
    assert said.count("\n") == 1


def test_updates_on_logged_data_are_counted_by_phase() -> None:
    brac = RunConfig("walk", "brac", *preset("brac", "small", logged=True))
    assert [count for count, _ in _updates(brac, 25_000)] == [20_000, 5_000]
    sac = RunConfig("walk", "sac", *preset("sac", "small", logged=True))
    ((count, gflop),) = _updates(sac, 25_000)
    assert count == 25_000
    assert gflop == pytest.approx(0.58174, rel=1e-4)  # as `phimu bench` counts SAC's online


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_it_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert study(*SMALL, PROBE, "--ray", "auto") == 2
    said = capsys.readouterr().err
    assert said == 'phimu: --ray needs a package: pip install "phimu[ray]".\n'
