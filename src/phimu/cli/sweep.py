"""`phimu sweep TASK --vary ...`: a search for good settings, trial by trial."""

import shlex
import typing
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from phimu.agents import preset as preset_of
from phimu.cli.arguments import command, plain_table
from phimu.cli.study import launcher, settings_of
from phimu.data.sets.opening import is_source
from phimu.environments.task import open_task
from phimu.errors import InputError, at_least
from phimu.runs.progress import number
from phimu.runs.stopping import stop_requests
from phimu.settings import hints, names, override, read
from phimu.studies.live_table import LiveTable
from phimu.studies.search import optuna
from phimu.studies.sweep import PICTURE, Pruner, Record, Runs, Sweep, Trial
from phimu.studies.sweeping import Sweeper
from phimu.studies.varied import read_varied

PARTS = 5  # evaluations of a trial, unless evaluate_every is set
TASK = tyro.conf.arg(metavar="TASK", help="a Gymnasium id, or logged data as phimu train takes it")


@command("phimu sweep", tyro.conf.FlagCreatePairsOff)
def main(
    task: Annotated[str, tyro.conf.Positional, TASK],
    vary: tuple[str, ...] = (),
    agent: str = "ctrl-ucb-m",
    preset: str = "small",
    steps: int = 20_000,
    trials: int = 20,
    seed: int = 0,
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
    pruner: Pruner = "median",
    out: Path = Path("runs/sweeps"),
    workers: int = 1,
    ray: str | None = None,
) -> None:
    """Search for settings of an agent. Kill it as you like: re-running the command goes on.

    A trial is a run of `phimu train` with one thread; its score is the last evaluation. From half
    of its steps on, one that evaluates below the median of the finished trials is given up. The
    sweep's directory has the runs, sweep.json and a picture; a larger --trials adds to it.

    Args:
        vary: what is searched: name=low..high, name=low..high:log or name=one,two,three.
        agent: one of phimu agents.
        preset: what else is set, as for phimu train.
        steps: environment steps of each trial; on logged data updates of the policy.
        trials: how many.
        seed: of the search, and of every run.
        settings: of all trials, as in --set discount=0.98; evaluate_every and checkpoint_every are
            a fifth of the steps if not given.
        pruner: median gives up poor trials early, none does not.
        out: where the directories of sweeps go.
        workers: how many trials at a time; with several, which are pruned depends on their speed.
        ray: run on a Ray cluster: auto for the one that this machine is in, or its address.
    """
    at_least(1, trials=trials, workers=workers, steps=steps)
    sweep = _sweep(task, agent, preset, steps, seed, settings, vary, pruner)
    optuna()  # what is missing is said before anything is made
    if not is_source(task):
        open_task(task).close()
    path = sweep.path(out)
    record, runs = Record(sweep, path), Runs(sweep, path)
    sweeper = Sweeper(record, runs, trials)
    start, slots = launcher(ray, workers)  # first, for Ray has handlers of its own for signals
    with stop_requests() as stop, LiveTable(f"sweep of {trials} trials") as live:
        sweeper.carry_out(start, slots, live.show, stop)
    _report(record)


def _sweep(
    task: str,
    agent: str,
    preset: str,
    steps: int,
    seed: int,
    settings: tuple[str, ...],
    vary: tuple[str, ...],
    pruner: Pruner,
) -> Sweep:
    """What is asked for, checked."""
    every = str(max(1, steps // PARTS))
    fixed = {"evaluate_every": every, "checkpoint_every": every} | settings_of(settings)
    parts = preset_of(agent, preset, is_source(task))
    for name in fixed:
        if name not in names(parts):
            override(parts, {name: ""})  # says which there are
    varied = read_varied(vary, read(parts, fixed))
    for each in varied:
        if each.name in settings_of(settings):
            raise InputError(f"{each.name} is both in set and in vary: leave one out.")
    fixed = {name: text for name, text in fixed.items() if name not in {v.name for v in varied}}
    return Sweep(task, agent, preset, steps, seed, fixed, varied, pruner)


def train_command(sweep: Sweep, trial: Trial) -> list[str]:
    """What trains with the settings of a trial; it is the trial's own configuration."""
    words = ["phimu", "train", sweep.task, "--agent", sweep.agent, "--preset", sweep.preset]
    words += ["--steps", str(sweep.steps), "--seed", str(sweep.seed)]
    texts = sweep.settings | trial.settings
    kinds = hints(read(preset_of(sweep.agent, sweep.preset, is_source(sweep.task)), texts))
    for name, text in texts.items():
        flag, kind = name.replace("_", "-"), kinds.get(name)
        if text.lower() in ("true", "false"):
            words.append(f"--{flag}" if text.lower() == "true" else f"--no-{flag}")
        elif typing.get_origin(kind) is tuple:
            words += [f"--{flag}", *text.split(",")]
        else:
            words += [f"--{flag}", "None" if text.lower() == "none" else text]
    return words


def _report(record: Record) -> None:
    from phimu.reports.sweep import sweep_figure  # Matplotlib takes a while

    trials, varied = record.trials, [each.name for each in record.sweep.varied]
    rows, best, none = [], record.best(), float("-inf")
    for trial in sorted(trials, key=lambda x: none if x.score is None else x.score, reverse=True):
        at = trial.evaluations[-1][0] if trial.evaluations else 0
        score = "" if trial.score is None else number(trial.score)
        marked = f"{trial.number}{' *' if trial is best else ''}"
        values = [trial.settings[name] for name in varied]
        rows.append([marked, trial.state, *values, f"{at:,}", score])
    Console(width=200).print(plain_table(["trial", "state", *varied], rows, ["step", "evaluation"]))
    picture = record.path / PICTURE
    sweep_figure(picture, record)
    if best is not None:
        print(f"\nbest      {shlex.join(train_command(record.sweep, best))}")
        print(f"run       {record.path / best.run}")
    print(f"picture   {picture}\nsweep     {record.path}")
    failed = [trial for trial in trials if trial.state == "failed"]
    if failed:
        first = f"trial {failed[0].number}: {failed[0].why}"
        raise InputError(
            f"{len(failed)} of {len(trials)} trials failed ({first}); once that is mended, "
            "re-running the command tries them again."
        )
