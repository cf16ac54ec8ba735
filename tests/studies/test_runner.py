"""Who gets which attempt, and what becomes of those that fail: attempts here are scripted."""

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from phimu.agents import preset
from phimu.errors import Stopped
from phimu.runs.config import RunConfig
from phimu.runs.stopping import Stop
from phimu.session import Order
from phimu.studies import runner
from phimu.studies.live_table import LiveTable, summary, table
from phimu.studies.local import Process
from phimu.studies.plan import Run
from phimu.studies.runner import End, Job, carry_out
from phimu.studies.worker import GONE

STEPS = 100
KILLED, BUSY, INPUT, GOOD = End(-9, ""), End(75, "busy"), End(2, "x is 1: give 2."), End(0, "")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(runner, "BUSY_SECONDS", 0.01)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    config = RunConfig("phimu/probe-TimeLimit-v0", "sac", *preset("sac", "small"))
    order = Order(config, STEPS)
    return [Run(n, config.task, "sac", order, tmp_path / str(n)) for n in (1, 2, 3)]


def save(path: Path, step: int) -> None:
    folder = path / "checkpoint" / f"step-{step:09d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts.json").write_text("{}")


def log(path: Path, step: int, **values: float) -> None:
    path.mkdir(exist_ok=True)
    kind = "evaluation" if values else "train"
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "kind": kind} | values) + "\n")


class Script:
    """Starts attempts that go on for some polls, save up to a step and end in a given way."""

    def __init__(self, runs: list[Run], **ends: list[tuple[int, End]]) -> None:
        self.paths = {str(run.number): run.path for run in runs}
        self.ends = {number.removeprefix("run"): each for number, each in ends.items()}
        self.begun: list[str] = []
        self.at_work: list[str] = []
        self.most = 0

    def start(self, command: list[str]) -> "Scripted":
        assert command[0] == "resume"
        number = Path(command[1]).name
        assert (self.paths[number] / "config.json").exists()  # all that a worker is told
        self.begun.append(number)
        self.at_work.append(number)
        self.most = max(self.most, len(self.at_work))
        step, end = self.ends[number].pop(0) if self.ends.get(number) else (STEPS, GOOD)
        return Scripted(self, number, step, end)


class Scripted:
    def __init__(self, script: Script, number: str, step: int, end: End) -> None:
        self.script, self.number, self.step, self.ending = script, number, step, end
        self.polls = 3

    def end(self) -> End | None:
        self.polls -= 1
        if self.polls > 0:
            return None
        if self.step:
            save(self.script.paths[self.number], self.step)
        self.script.at_work.remove(self.number)
        return self.ending

    def stop(self) -> None:
        self.polls, self.ending, self.step = 1, End(143, "stopped"), 50


def carried(runs: list[Run], script: Script, slots: int = 2) -> list[Job]:
    return carry_out(runs, script.start, lambda: slots, lambda jobs: None, Stop())


def test_finished_runs_are_skipped_and_the_rest_share_the_slots(runs: list[Run]) -> None:
    save(runs[0].path, STEPS)
    script = Script(runs)
    assert [job.status for job in carried(runs, script)] == ["done"] * 3
    assert script.begun == ["2", "3"]
    assert script.most == 2
    again = Script(runs)
    assert [job.status for job in carried(runs, again)] == ["done"] * 3
    assert again.begun == []


def test_killed_attempts_are_begun_again_as_long_as_they_bring_the_run_on(runs: list[Run]) -> None:
    kills = [(step, KILLED) for step in (10, 20, 30, 40, 50, 60)]
    script = Script(runs, run1=kills)
    assert [job.status for job in carried(runs, script, slots=1)] == ["done"] * 3
    assert script.begun == ["1"] * 7 + ["2", "3"]


def test_a_run_that_gets_nowhere_is_given_up(runs: list[Run]) -> None:
    script = Script(runs, run2=[(0, End(1, "ZeroDivisionError: division by zero"))] * 10)
    jobs = carried(runs, script)
    assert [job.status for job in jobs] == ["done", "failed", "done"]
    assert jobs[1].why == "ZeroDivisionError: division by zero"
    assert script.begun.count("2") == 1 + runner.RETRIES


def test_bad_input_is_not_tried_again(runs: list[Run]) -> None:
    script = Script(runs, run1=[(0, INPUT)])
    jobs = carried(runs, script)
    assert (jobs[0].status, jobs[0].why) == ("failed", "x is 1: give 2.")
    assert script.begun.count("1") == 1


def test_a_directory_of_something_else_fails_alone(runs: list[Run]) -> None:
    runs[1].path.mkdir()
    (runs[1].path / "notes.txt").write_text("mine")
    script = Script(runs)
    jobs = carried(runs, script)
    assert [job.status for job in jobs] == ["done", "failed", "done"]
    assert "2 is not a run directory" in jobs[1].why
    assert script.begun == ["1", "3"]
    assert [path.name for path in runs[1].path.iterdir()] == ["notes.txt"]


def test_what_another_process_has_is_waited_for(runs: list[Run]) -> None:
    script = Script(runs, run1=[(0, BUSY)] * 9 + [(STEPS, BUSY)])  # which finishes it in the end
    assert [job.status for job in carried(runs, script)] == ["done"] * 3
    assert script.begun.count("1") == 10


def test_an_end_that_finished_nothing_is_a_failure(runs: list[Run]) -> None:
    script = Script(runs, run3=[(0, GOOD)] * 9)
    jobs = carried(runs, script)
    assert (jobs[2].status, jobs[2].why) == ("failed", "it ended with code 0")


def test_asked_to_stop_it_waits_for_those_at_work(runs: list[Run]) -> None:
    stop, script = Stop(), Script(runs)

    def show(jobs: list[Job]) -> None:
        stop.number = signal.SIGTERM

    with pytest.raises(Stopped, match="SIGTERM; 3 of 3 runs are left, and the same") as stopped:
        carry_out(runs, script.start, lambda: 2, show, stop)
    assert stopped.value.exit_code == 143
    assert script.begun == ["1", "2"]
    assert script.at_work == []
    assert [run.saved()[0] for run in runs] == [50, 50, 0]


def test_the_table_tells_how_far_each_run_is(runs: list[Run]) -> None:
    save(runs[0].path, STEPS)
    log(runs[0].path, STEPS, **{"return": 12.5})
    jobs = [Job(run) for run in runs]
    jobs[1].begin(Script(runs).start, 0.0)
    for now, step in ((3.0, 10), (6.0, 30), (9.0, 40)):
        log(runs[1].path, step)
        jobs[1].update(now)
        jobs[1]._attempt.polls = 9
    jobs[2].status, jobs[2].why = "failed", "x is 1: give 2."
    assert jobs[1].rate == pytest.approx(5.0)
    assert summary(jobs) == "1 of 3 done, 1 failed, 1 running, left 0:12"
    console = Console(width=120, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(table("table1", jobs, rows=2))
    figures = ["40/100", "5", "0:12"]
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("table1: 1 of 3 done")
    assert lines[2].split()[:6] == ["3", runs[2].task, "sac", "0", "failed", "x"]
    assert lines[3].split() == ["2", runs[1].task, "sac", "0", "running", *figures]
    assert lines[4] == "and 1 more"


def test_elsewhere_than_on_a_terminal_each_change_is_a_line(runs: list[Run]) -> None:
    console = Console(width=80, file=io.StringIO())
    with LiveTable("table1", console) as live:
        carry_out(runs, Script(runs).start, lambda: 3, live.show, Stop())
    said = console.file.getvalue().splitlines()
    assert said[0] == "table1: 0 of 3 done, 3 running"
    assert said[1:] == [f"{run.name}  done" for run in runs]


def test_a_process_ends_with_its_code_and_last_words() -> None:
    process = Process(["frobnicate"])
    deadline = time.monotonic() + 60
    while (end := process.end()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert end.code == 2
    assert end.said.startswith("There is no command 'frobnicate': use one of train, ")


def test_a_process_without_its_parent_does_not_begin() -> None:
    stray = [sys.executable, "-m", "phimu.studies.worker", "1", "frobnicate"]
    done = subprocess.run(stray, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{GONE}\n")
