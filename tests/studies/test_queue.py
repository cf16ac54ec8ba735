"""`phimu queue`: studies in order, what is kept of them, and the page."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from phimu.cli import main
from phimu.studies.plan import Run, expand, narrow
from phimu.studies.queue_page import queue_page
from phimu.studies.runner import Job
from phimu.studies.tables import STUDIES

PROBE = "phimu/probe-TimeLimit-v0"
LINE = f"table1 --preset small --steps 2000 --seeds 2 --agents sac --tasks {PROBE}"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def queue(*lines: str, flags: tuple[str, ...] = ()) -> int:
    Path("studies.txt").write_text("\n".join(lines))
    return main(["queue", "studies.txt", *flags])


def runs() -> list[Run]:
    """Those of LINE."""
    asked = narrow(STUDIES["table1"], [PROBE], ["sac"])
    return expand(replace(asked, preset="small", steps=2_000, seeds=2), {}, Path(), Path("runs"))


def finish(run: Run) -> None:
    """What it leaves, as far as it is looked at."""
    folder = run.path / "checkpoint" / "step-000002000"
    folder.mkdir(parents=True)
    (folder / "facts.json").write_text("{}")
    (run.path / "config.json").write_text(json.dumps(run.config.to_json()))
    (run.path / "manifest.json").write_text(json.dumps({"command": ["phimu"], "sessions": []}))
    row = {"step": 2_000, "kind": "evaluation", "return": 7.0}
    (run.path / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def test_what_is_done_and_left_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    finish(runs()[0])
    assert queue("# a comment", LINE, "", flags=("--dry-run",)) == 0
    said = capsys.readouterr().out
    assert f"| `{LINE}` | 1 of 2 |" in said
    assert "phimu bench" in said  # without it there are no times
    assert not Path("results").exists()


def test_the_page_has_what_runs_and_what_failed() -> None:
    running, failed = map(Job, runs())
    running.status, running.step, running.result = "running", 500, 3.25
    failed.status, failed.why = "failed", "no such | thing"
    page = queue_page({"a study": [running, failed]}, None, 1)
    assert f"| {running.run.name} | 500 of 2,000 |  | 3.25 |" in page
    assert f"| {failed.run.name} | no such \\| thing |" in page


def test_a_study_that_cannot_be_run_does_not_keep_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was finished of the next is kept, and the page is of both."""
    for run in runs():
        finish(run)
    for name in [name for name in sys.modules if name.split(".")[0] == "mujoco"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # as where it is not installed
    missing = "table1 --preset small --seeds 1 --agents sac --tasks mbbl/HalfCheetah-v0"
    assert queue(missing, LINE, flags=("--page", "page.md")) == 2
    said = capsys.readouterr().err
    assert "1 did not come to an end" in said
    assert missing in said
    assert "phimu[mujoco]" in said
    kept = sorted(Path("results").glob("table1/*/sac/seed-*/manifest.json"))
    assert [path.parent.name for path in kept] == ["seed-0", "seed-1"]
    assert f"| `{LINE}` | 2 of 2 |" in Path("page.md").read_text()


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([LINE, "table4"], "Line 2 of studies.txt: There is no study 'table4'"),
        (["table1 --sedes 3"], "Line 1 of studies.txt: "),
        (["table1 --tasks 'Pend"], "Line 1 of studies.txt: No closing quotation"),
        (["# nothing"], "studies.txt has no study: write a line such as"),
    ],
)
def test_a_wrong_line_is_named_before_anything_begins(
    lines: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert queue(*lines) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "nowhere.txt"]) == 2
    assert "nowhere.txt cannot be read as a queue" in capsys.readouterr().err
