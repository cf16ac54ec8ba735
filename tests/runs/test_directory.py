import json
from pathlib import Path

import pytest

from phimu.errors import InputError
from phimu.runs.directory import add_facts, open_run, read_config, run_path, sessions
from phimu.runs.json_form import config_hash


def test_run_path_takes_the_suite_off_the_task() -> None:
    config = {"a": 1}
    path = run_path(Path("runs"), "phimu", "phimu/FourRooms-v0", "ctrl_ucb", config, 3)
    assert path == Path("runs/phimu/FourRooms-v0/ctrl_ucb") / config_hash(config) / "seed-3"
    assert path == run_path(Path("runs"), "phimu", "FourRooms-v0", "ctrl_ucb", config, 3)


@pytest.mark.parametrize(
    "task", ["../../etc", "..", "phimu/..", "a/../../b", "/etc/passwd", "a\\b", "a\0b", "é :"]
)
def test_run_path_stays_below_the_root(tmp_path: Path, task: str) -> None:
    path = run_path(tmp_path, task, task, task, {}, 0)
    parts = path.relative_to(tmp_path).parts
    assert len(parts) == 5
    assert ".." not in parts
    assert path.resolve() == path
    assert all(part.isascii() and not set(part) & set("/\\\0 :") for part in parts)


def test_run_path_refuses_an_empty_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        run_path(tmp_path, "phimu", "phimu/", "sac", {}, 0)


def test_new_run_records_how_it_was_made(tmp_path: Path) -> None:
    config = {"rate": 0.1, "sizes": (1, 2)}
    run = open_run(tmp_path / "a" / "b", config, ["phimu", "train"])
    assert read_config(run.path) == {"rate": 0.1, "sizes": [1, 2]}
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["command"] == ["phimu", "train"]
    assert {"python", "phimu", "jax", "jaxlib", "mujoco"} <= manifest["versions"].keys()
    assert manifest["versions"]["jax"].count(".") == 2
    assert {"created", "platform", "cpu_count", "revision"} <= manifest.keys()
    assert manifest["sessions"] == []
    assert run.metrics.parent == run.checkpoints.parent == run.path


def test_facts_are_added_to_the_latest_session(tmp_path: Path) -> None:
    run = open_run(tmp_path, {}, ["first"])
    add_facts(run.path, {"seconds": 1.0})
    open_run(tmp_path, {}, ["second"])
    for seconds in (2.0, 3.0):
        add_facts(run.path, {"seconds": seconds})
    assert [(each["command"], each["seconds"]) for each in sessions(run.path)] == [
        (["first"], 1.0),
        (["second"], 3.0),
    ]


def test_resume_appends_a_session_and_keeps_the_rest(tmp_path: Path) -> None:
    run = open_run(tmp_path / "r", {"a": 1}, ["first"])
    before = json.loads((run.path / "manifest.json").read_text())
    for command in ("second", "third"):
        assert open_run(tmp_path / "r", {"a": 1}, [command]) == run
    after = json.loads((run.path / "manifest.json").read_text())
    assert [session["command"] for session in after["sessions"]] == [["second"], ["third"]]
    assert {"time", "revision", "versions"} <= after["sessions"][0].keys()
    assert after | {"sessions": []} == before


def test_other_config_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    run = open_run(tmp_path / "r", {"agent": {"rate": 0.1, "size": 4}}, ["first"])
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    with pytest.raises(InputError, match=r"agent\.rate = 0\.1, but now it is 0\.2") as error:
        open_run(run.path, {"agent": {"rate": 0.2, "size": 8}}, ["second"])
    assert str(run.path) in str(error.value)
    with pytest.raises(InputError, match=r"agent\.size = 4, but now it is \(absent\)"):
        open_run(run.path, {"agent": {"rate": 0.1}}, ["second"])
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before


def test_foreign_directory_and_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for path in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(InputError, match="is not a run directory"):
            open_run(path, {}, [])
    with pytest.raises(InputError, match="is not a run directory"):
        read_config(tmp_path / "absent")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_kill_between_the_first_writes_does_not_block_the_run(tmp_path: Path) -> None:
    (tmp_path / "config.json.tmp").write_text('{"a"')
    open_run(tmp_path, {"a": 1}, ["first"])
    (tmp_path / "manifest.json").unlink()
    open_run(tmp_path, {"a": 1}, ["second"])
    assert json.loads((tmp_path / "manifest.json").read_text())["command"] == ["second"]


@pytest.mark.parametrize("file", ["config.json", "manifest.json"])
def test_unreadable_json_is_named_and_kept(tmp_path: Path, file: str) -> None:
    run = open_run(tmp_path / "r", {"a": 1}, ["first"])
    (run.path / file).write_text('{"a": ')
    with pytest.raises(InputError, match=file):
        open_run(run.path, {"a": 1}, ["second"])
    assert (run.path / file).read_text() == '{"a": '
