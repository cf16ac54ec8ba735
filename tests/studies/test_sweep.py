"""`phimu sweep`: what is varied, which trials are made, how they end, what a kill leaves."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from phimu.agents import preset
from phimu.cli import main
from phimu.cli.sweep import _report, train_command
from phimu.cli.train import order_for, parse
from phimu.errors import InputError
from phimu.runs.stopping import Stop
from phimu.studies.processes import End
from phimu.studies.sweep import Record, Runs, Sweep, Trial
from phimu.studies.sweeping import Sweeper
from phimu.studies.varied import read_varied

pytest.importorskip("optuna", reason="the extra sweep is not installed")
from phimu.studies.search import prunable, suggest

PARTS = preset("sac", "small")
VARY = ("critic_learning_rate=1e-4..1e-2:log", "batch_size=64,128,256")
SWEEP = Sweep(
    "phimu/probe-TimeLimit-v0",
    "sac",
    "small",
    100,
    0,
    {"evaluate_every": "20", "checkpoint_every": "20", "actor_sizes": "8,8"},
    read_varied(VARY, PARTS),
)


def test_ranges_and_choices_are_read() -> None:
    rate, size = read_varied(VARY, PARTS)
    assert (rate.low, rate.high, rate.log, rate.whole) == (1e-4, 1e-2, True, False)
    assert size.choices == ("64", "128", "256")
    (sizes,) = read_varied(["actor-sizes=8,8|16"], PARTS)
    assert sizes.choices == ("8,8", "16")
    (whole,) = read_varied(["batch_size=2..9"], PARTS)
    assert (whole.whole, whole.count(), whole.text(3.0)) == (True, 8, "3")
    assert rate.text(0.00123456) == "0.001235"
    assert rate.text(0.009999999) == "0.01"  # never beyond the range


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch_size", "write it as name=low..high"),
        ("batch_sizes=1,2", "did you mean batch_size?"),
        ("batch_size=64", "give at least two different choices"),
        ("batch_size=64,x", "batch_size is 'x': give an integer"),
        ("batch_size=9..2", "give the lower end first"),
        ("batch_size=2.5..9", "but batch_size is whole: give integers"),
        ("discount=0..1:log", "a logarithm needs a range above 0"),
        ("discount=0.9..1:lin", "after the range comes :log or nothing"),
        ("actor_sizes=2..9", "but actor_sizes is no number: give choices"),
        ("discount=a..b", "write it as name=low..high"),
    ],
)
def test_what_cannot_be_varied_is_said(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("?", r"\?")):
        read_varied([text], PARTS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trials", "0"], "trials is 0: give at least 1."),
        ([], "vary is missing: say what is searched"),
        (["--vary", "batch_size=64,128", "--trials", "3"], "there are only 2 different ones."),
        (["--vary", "batch_size=64,128", "--set", "batch_size=3"], "both in set and in vary"),
        (["--vary", "batch_size=64,128", "--set", "nothing=3"], "There is no setting 'nothing'"),
        (["--vary", "batch_size=64,128", "--set", "evaluate_every=0"], "evaluate_every is 0"),
    ],
)
def test_what_cannot_be_searched_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    where = ["--out", str(tmp_path / "out"), "--agent", "sac"]
    assert main(["sweep", SWEEP.task, *where, *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_next_trial_depends_on_those_before_alone() -> None:
    trials: list[Trial] = []
    for number in range(7):
        settings = suggest(SWEEP, trials)
        assert settings == suggest(SWEEP, trials)
        trials.append(Trial(number, settings, "done", [(20, float(number))], str(number)))
    assert len({trial.settings["critic_learning_rate"] for trial in trials}) == 7
    assert suggest(replace(SWEEP, seed=1), trials) != suggest(SWEEP, trials)
    assert suggest(SWEEP, trials, attempt=1) != suggest(SWEEP, trials)


def test_a_trial_below_the_median_is_given_up() -> None:
    settings = {"critic_learning_rate": "0.001", "batch_size": "64"}
    trials = [Trial(n, settings, "done", [(60, float(n)), (100, 9.0)]) for n in range(4)]
    for value, poor in ((1.0, True), (2.0, False)):
        now = [*trials, Trial(4, settings, "running", [(60, value)])]
        assert prunable(SWEEP, now, 4) is poor
        assert not prunable(replace(SWEEP, pruner="none"), now, 4)
    lucky = Trial(4, settings, "running", [(20, 99.0), (60, 1.0)])  # before it learned
    assert prunable(SWEEP, [*trials, lucky], 4)
    assert not prunable(SWEEP, [*trials[:3], Trial(3, settings, "running", [(60, -9.0)])], 3)
    early = [Trial(n, settings, "done", [(20, float(n)), (100, 9.0)]) for n in range(4)]
    assert not prunable(SWEEP, [*early, Trial(4, settings, "running", [(20, -9.0)])], 4)


class Worker:
    """Instead of a process: writes what a run would, at once, or is told to stop."""

    begun: list[str]

    def __init__(self, command: list[str]):
        path = Path(command[1])
        Worker.begun.append(path.parent.name)
        steps, value = int(command[3]), len(Worker.begun)
        rows = [
            {"step": step, "kind": "evaluation", "return": -value * step}
            for step in range(20, steps + 1, 20)
        ]
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (path / "saved").write_text(str(steps))

    def end(self) -> End:
        return End(0, "")

    def stop(self) -> None:
        pass


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> type[Worker]:
    def saved(run) -> tuple[int, dict]:
        file = run.path / "saved"
        return (int(file.read_text()) if file.exists() else 0), {}

    monkeypatch.setattr("phimu.studies.plan.Run.saved", saved)
    monkeypatch.setattr("phimu.studies.sweeping.POLL_SECONDS", 0.0)
    Worker.begun = []
    return Worker


def carry_out(path: Path, count: int, worker, stop: Stop | None = None) -> Record:
    record = Record(SWEEP, path)
    sweeper = Sweeper(record, Runs(SWEEP, path), count)
    sweeper.carry_out(worker, lambda: 1, lambda jobs: None, stop or Stop())
    return record


class Killed(BaseException):
    pass


def test_each_trial_is_done_once_whenever_the_driver_dies(tmp_path: Path, worker) -> None:
    def killed_at(count: int):
        def start(command: list[str]) -> Worker:
            if len(worker.begun) == count:
                raise Killed
            return worker(command)

        return start

    whole = carry_out(tmp_path / "whole", 8, worker).trials
    assert [trial.state for trial in whole[:4]] == ["done"] * 4
    assert {trial.state for trial in whole[4:]} == {"pruned"}  # each is worse than those before
    assert all(trial.evaluations[-1][0] == 60 for trial in whole[4:])
    worker.begun = []
    for count in (2, 5):
        with pytest.raises(Killed):
            carry_out(tmp_path / "killed", 8, killed_at(count))
        assert len(json.loads((tmp_path / "killed" / "sweep.json").read_text())["trials"]) > count
    assert carry_out(tmp_path / "killed", 8, worker).trials == whole
    assert len(worker.begun) == len(set(worker.begun)) == 8
    carry_out(tmp_path / "killed", 8, worker)  # nothing is left to do
    assert len(worker.begun) == 8
    assert len(carry_out(tmp_path / "killed", 9, worker).trials) == 9


def test_the_best_settings_are_a_command_that_makes_the_same_run(
    tmp_path: Path, worker, capsys: pytest.CaptureFixture[str]
) -> None:
    record = carry_out(tmp_path, 2, worker)
    _report(record)
    said = capsys.readouterr().out
    best = record.trials[0]
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    words = train_command(SWEEP, best)
    assert shlex.join(words) in said
    config = order_for(parse(words[2:]), None).config
    assert config == Runs(SWEEP, tmp_path).run(best.settings).config
    assert json.loads((tmp_path / "sweep.json").read_text())["best"] == 0


def test_a_sweep_is_driven_by_one_process(tmp_path: Path, worker) -> None:
    from phimu.runs.lock import locked

    with locked(tmp_path / "driver", print), pytest.raises(InputError, match="Another phimu sweep"):
        carry_out(tmp_path, 2, worker)


@pytest.mark.parametrize("text", ["{", "[]", '{"sweep": {}, "trials": []}', '{"trials": 3}'])
def test_a_file_that_is_no_sweep_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(InputError, match=r"sweep\.json"):
        Record(SWEEP, tmp_path)
