"""`phimu study NAME`: every run of one of the paper's tables, figures or ablations."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from phimu.cli.arguments import command, plain_table
from phimu.cli.train import task_options
from phimu.errors import InputError, at_least
from phimu.reports.rows import gather
from phimu.reports.statistics import mean_and_std
from phimu.runs.progress import duration, number
from phimu.runs.stopping import stop_requests
from phimu.studies.cost import Estimate, estimate, read_bench, shared_out
from phimu.studies.keeping import keeper
from phimu.studies.live_table import LiveTable
from phimu.studies.plan import Run, expand, find_study, narrow, try_tasks, under
from phimu.studies.processes import Process
from phimu.studies.runner import Job, Start, carry_out
from phimu.studies.study import Study
from phimu.studies.tables import STUDIES, TASK_TITLES
from phimu.training.threads import cores

NAME = tyro.conf.arg(metavar="NAME", help=", ".join(STUDIES))
NO_BENCH = "Time and memory are not known here: run `OMP_NUM_THREADS=1 phimu bench` once."


@command("phimu study", tyro.conf.FlagCreatePairsOff)
def main(
    name: Annotated[str, tyro.conf.Positional, NAME],
    tasks: tuple[str, ...] = (),
    agents: tuple[str, ...] = (),
    seeds: int | None = None,
    steps: int | None = None,
    preset: str | None = None,
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
    option: tuple[str, ...] = (),
    runs: Path = Path("runs"),
    data: Path = Path("data"),
    workers: int | None = None,
    ray: str | None = None,
    keep: Path | None = None,
    only: tuple[int, ...] = (),
    dry_run: bool = False,
    bench: Path | None = None,
) -> None:
    """Carry out a study: finished runs are skipped, broken ones resumed, so kill it as you like.

    Without arguments it is what the paper ran. Each run is a `phimu train` with one thread, in the
    directory that this command has by itself.

    Args:
        tasks: instead of the study's: Gymnasium ids, what the paper calls them, or logged data.
        agents: only these; one that is not in the study is added to it.
        seeds: how many, from 0 on.
        steps: environment steps of each run; on logged data updates of the policy.
        preset: instead of the one with the paper's hyperparameters.
        settings: of all runs whose agent has them, as in --set batch_size=128 actor_sizes=64,64.
        option: constructor arguments of the tasks beside the study's own, as name=value; with a
            suite before the name for its tasks alone, as in dmc/action_repeat=2.
        runs: where run directories go.
        data: where the files of datasets are, such as hopper_medium.hdf5.
        workers: how many runs at a time; as many as there are cores if not given.
        ray: run on a Ray cluster: auto for the one that this machine is in, or its address.
        keep: copy the small text of each run that is finished to here, as
            NAME/task/variant/seed-N; `phimu report` reads it like the runs themselves.
        only: the runs with these numbers in the list of --dry-run, as for an array job.
        dry_run: list the runs, with the time and memory that they will take, and do nothing.
        bench: what `phimu bench --json FILE` wrote, for that; by default what it last found here.
    """
    at_least(1, workers=1 if workers is None else workers)
    chosen = choose(name, tasks, agents, seeds, steps, preset, settings, option, only)
    study, planned = chosen.study, chosen.runs(data, runs)
    if dry_run:
        _list(planned, bench, workers or cores())
        return
    try_tasks(planned)
    start, slots = launcher(ray, workers)  # first, for Ray has handlers of its own for signals
    look = (lambda jobs: None) if keep is None else keeper(name, keep)
    with stop_requests() as stop, LiveTable(name) as live:

        def show(jobs: list[Job]) -> None:
            live.show(jobs)
            look(jobs)

        jobs = carry_out(planned, start, slots, show, stop)
    _report(study.metric, jobs, runs)


class Chosen(NamedTuple):
    """A study as it was asked for."""

    study: Study
    settings: dict[str, str]
    only: tuple[int, ...]

    def runs(self, data: Path, runs: Path) -> list[Run]:
        return expand(self.study, self.settings, data, runs, self.only)


def choose(
    name: Annotated[str, tyro.conf.Positional, NAME],
    tasks: tuple[str, ...] = (),
    agents: tuple[str, ...] = (),
    seeds: int | None = None,
    steps: int | None = None,
    preset: str | None = None,
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
    option: tuple[str, ...] = (),
    only: tuple[int, ...] = (),
) -> Chosen:
    """What `phimu study` with these arguments is of."""
    asked: dict[str, Any] = {"seeds": seeds, "steps": steps}
    study = narrow(find_study(name), tasks, agents)
    study = study if preset is None else under(study, preset)
    options = dict(study.options) | task_options(option)
    study = replace(study, options=tuple(options.items()))
    study = replace(study, **{key: value for key, value in asked.items() if value is not None})
    return Chosen(study, settings_of(settings), only)


def settings_of(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not text:
            raise InputError(f"set is {pair!r}: write it as name=value.")
        found[name.replace("-", "_")] = text
    return found


def launcher(ray: str | None, workers: int | None) -> tuple[Start, Callable[[], int]]:
    """How commands are started, and how many at a time."""
    if ray is None:
        return Process, lambda: workers or cores()
    from phimu.studies.ray_cluster import Cluster

    cluster = Cluster(ray)
    return cluster.start, lambda: min(cluster.cores(), workers or sys.maxsize)


def _list(planned: list[Run], file: Path | None, workers: int) -> None:
    """What --dry-run prints."""
    bench = read_bench(file)
    found, rows = [], []
    for run in planned:
        cells: list[str] = []
        step, _ = run.saved()
        state = f"begun, step {step:,}" if step else "new"
        state = "finished" if run.next_command() is None else state
        if bench is not None:
            found.append(estimate(run, bench))
            cells = [duration(found[-1].seconds), _megabytes(found[-1].memory_mb)]
        rows.append([str(run.number), run.task, run.label, str(run.seed), state, *cells])
    titles = ("run", "task", "agent", "seed", "state")
    estimated = () if bench is None else ("time", "memory")
    Console(width=200).print(plain_table(titles, rows, estimated), "")
    if bench is None:
        print(NO_BENCH)
        return
    for count in sorted({1, 2, 4, 8, 16, 32, 64, workers}):
        if count <= max(workers, len(found)):
            print(_total(found, count))
    if bench.threads not in (None, 1):
        print(f"The bench had {bench.threads} threads, a run has one: it takes longer than this.")


def _total(found: list[Estimate], workers: int) -> str:
    time = duration(shared_out([each.seconds for each in found], workers))
    sizes = [each.memory_mb for each in found if each.memory_mb is not None]
    needed = sum(sorted(sizes, reverse=True)[:workers])
    memory = f", {_megabytes(needed)} at most" if len(sizes) == len(found) else ""
    return f"{workers:>3} at a time: {time}{memory}"


def _megabytes(size: float | None) -> str:
    return "" if size is None else f"{size:,.0f} MB"  # on logged data it depends on the dataset


def _report(metric: str, jobs: list[Job], runs: Path) -> None:
    """The scores; then, if some runs failed, that they did."""
    if any(job.status == "done" for job in jobs):
        Console(width=200).print("", _scores(metric, jobs))
        print(f"Mean ± standard deviation over seeds. Beside others: phimu report {runs}")
    failed = [job for job in jobs if job.status == "failed"]
    if failed:
        first = f"{failed[0].run.name}: {failed[0].why}"
        again = "once that is mended, the same command goes on with them."
        raise InputError(f"{len(failed)} of {len(jobs)} runs failed ({first}); {again}")


def _scores(metric: str, jobs: list[Job]) -> Table:
    """A row per task, a column per variant."""
    done = [job.run for job in jobs if job.status == "done"]
    results = {result.path.resolve(): result for result in gather([run.path for run in done])}
    values: dict[tuple[str, str], list[float]] = {}
    for run in done:
        result = results[run.path.resolve()]
        score = result.maze.get(metric) if run.heat_map else result.score
        if score is not None:
            values.setdefault((run.task, run.label), []).append(score)
    labels = dict.fromkeys(job.run.label for job in jobs)
    rows = [
        [TASK_TITLES.get(task, task), *(_cell(values.get((task, label))) for label in labels)]
        for task in dict.fromkeys(job.run.task for job in jobs)
    ]
    return plain_table([metric], rows, labels)


def _cell(scores: list[float] | None) -> str:
    if scores is None:
        return "not run"
    mean, std = mean_and_std(np.array(scores))
    spread = "" if std is None else f" ± {number(std)}"
    return f"{number(mean)}{spread} ({len(scores)})"
