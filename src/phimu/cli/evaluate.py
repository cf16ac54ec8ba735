"""What a run has learned: `phimu evaluate`, `phimu probe` and `phimu data penalty`."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from phimu.cli.arguments import command, plain_table
from phimu.cli.train import task_options
from phimu.data.logged import LoggedDataset
from phimu.data.sets.opening import open_set
from phimu.environments.task import open_task
from phimu.errors import InputError, at_least
from phimu.evaluation.episodes import check_video, evaluate, film, random_policy
from phimu.evaluation.fitted_q import FittedQ, discount_of, estimate
from phimu.evaluation.novelty import Novelty, cells_of, forms
from phimu.evaluation.probes import probe as linear_in_phi
from phimu.runs.config import RunConfig
from phimu.runs.progress import Progress
from phimu.session import load_run
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun
from phimu.types import Act


@command("phimu evaluate")
def main(
    run: Annotated[str, tyro.conf.Positional],
    policy: Literal["mode", "random"] = "mode",
    episodes: int = 10,
    seed: int = 0,
    option: tuple[str, ...] = (),
    video: Path | None = None,
    data: str | None = None,
    fqe_updates: int = 50_000,
) -> None:
    """Evaluate a trained run, or a random policy to compare it with.

    Prints one line of JSON: mean and standard deviation of the return, mean length in decisions
    and in simulator steps (the two differ where actions are repeated), the share of episodes that
    the environment itself ended. With --data, estimates by fitted Q evaluation instead, for which
    no environment is needed (docs/estimates.md).

    Args:
        run: a run directory; with --policy random, a task id such as mbbl/HopperET-v0.
        policy: the trained agent's mode action, or uniformly random actions.
        episodes: how many episodes.
        seed: of the episodes' starts, and of random actions.
        option: with --policy random, constructor arguments of the task, as name=value.
        video: also film the first of them into this MP4.
        data: estimate the run's value from this logged data, d4rl:FILE, minari:ID or an .npz.
        fqe_updates: of the Q that is fitted to the data; a thousand takes some seconds.
    """
    at_least(1, episodes=episodes)  # before anything is loaded
    if video is not None:
        check_video(video)
    if data is not None:
        if policy == "random" or video is not None:
            raise InputError("data is for the estimates of a run: no --policy random, no --video.")
        print(json.dumps(_estimates(Path(run), data, fqe_updates, seed)))
        return
    if policy == "random":
        name, options = run, task_options(option)
        task = open_task(name, **options)
        facts: dict[str, Any] = {"task": name, "agent": "random"}
        chosen: Callable[[], Act] = partial(random_policy, task.spec, seed)
    else:
        if option:
            raise InputError("option is for --policy random: a run has the options of its own.")
        config, loaded = load_run(Path(run))
        if config.evaluation_task is None:
            raise InputError(
                f"{run} was trained on data that names no environment to run it in: give --data "
                "for estimates from that data."
            )
        name, options = config.evaluation_task, config.task_options
        task, chosen = open_task(name, **options), loaded.policy
        facts = {"task": config.task, "agent": config.agent, "step": loaded.step}
    print(json.dumps(facts | evaluate(chosen(), task, episodes, seed).summary()))
    if video is not None:
        film(video, name, options, task, chosen(), seed)
        print(video)


def _estimates(path: Path, source: str, count: int, seed: int) -> dict[str, Any]:
    """Of the run's mode action, from logged data alone."""
    at_least(1, **{"fqe-updates": count})  # before the data is read
    logged = open_set(source)
    config, run = _run_on_data(path, logged)
    fitted = FittedQ(discount_of(config.settings))
    with Progress(count, 0, console=Console(stderr=True)) as progress:
        found = estimate(
            fitted, run.learner.acting, logged, count, seed, lambda done: progress.update(done, {})
        )
    penalties = {k: v for k, v in run.estimates().items() if k.startswith("penalty")}
    facts = {"task": config.task, "agent": config.agent, "step": run.step, "data": logged.name}
    return facts | found | penalties


def _run_on_data(path: Path, data: LoggedDataset) -> tuple[RunConfig, OfflineRun]:
    """An offline run that has a policy, with a dataset to ask it about."""
    config, run = load_run(path, data=data)
    if not isinstance(run, OfflineRun):
        raise InputError(
            f"{path} was trained in {config.task}, not on data: phimu evaluate runs it there."
        )
    if run.kind != "train":
        raise InputError(f"{path} has not begun to learn its policy: let it train on.")
    return config, run


@command("phimu data penalty")
def penalty(
    run: Annotated[Path, tyro.conf.Positional],
    data: str,
    other: tuple[str, ...] = (),
    picture: Path | None = None,
    seed: int = 0,
) -> None:
    """Say how large the elliptical penalty of a run is on its data, and away from it.

    Prints mean, median and 95 % quantile of the penalty on the data's pairs of state and action, on
    its states with the policy's and with random actions, on the pairs of other datasets,
    and on random states far off; and the ratio of each mean to that of the data.

    Args:
        run: a run directory of ctrl-lcb.
        data: what it was trained on: d4rl:FILE, minari:ID or an .npz.
        other: further datasets of the same task, such as another policy's.
        picture: also draw the distributions into this PNG or SVG.
        seed: of random actions and states.
    """
    from phimu.reports.figures import check_suffix
    from phimu.reports.penalty import penalties, penalty_figure, table

    if picture is not None:
        check_suffix(picture)  # before the work
    logged = open_set(data)
    config, loaded = _run_on_data(run, logged)
    others = {}
    for source in other:
        others[source] = open_set(source)
        if others[source].spec != logged.spec:
            raise InputError(
                f"{source} has other sizes than {data}: name a dataset of the same task."
            )
    found = penalties(loaded, logged, others, seed)
    titles = ("pairs", "mean", "median", "95 %", "x the data's")
    rows = ([pairs, *(f"{number:.3g}" for number in numbers)] for pairs, *numbers in table(found))
    Console(width=200).print(plain_table(titles, rows))
    if picture is not None:
        penalty_figure(picture, found, f"{config.task}, step {loaded.step:,}")
        print(picture)


@command("phimu probe", tyro.conf.FlagCreatePairsOff)
def probe(
    run: Annotated[Path, tyro.conf.Positional], rows: int = 30_000, bonus: bool = False
) -> None:
    """Say how much of reward, action, state and its change is linear in a run's phi.

    Prints one line of JSON: shares of variance on held-out transitions of the replay buffer (s in
    units of its own deviation), how much of phi's distance another action makes, and how many
    principal directions hold 99 % of phi's variance.

    With --bonus, whether the bonus sees what is new, in a task with two coordinates (a maze,
    MountainCarContinuous-v0, Pendulum-v1): its rank correlation with 1 / sqrt(visits) over the
    visited cells of a grid, the mean bonus of unvisited over that of visited cells, and of
    observations times ten over that of the data; of the run's own bonus, and of every other form
    on the same phi and data.

    Args:
        run: a run directory of an agent that has a phi.
        rows: use the last so many transitions.
        bonus: print the table of bonuses instead.
    """
    config, loaded = load_run(run)
    if not isinstance(loaded, OnlineRun) or not hasattr(loaded.agent, "phi"):
        raise InputError(f"{run} has no phi and replay buffer: name an online run of CTRL.")
    if bonus:
        _print_novelty(loaded)
        return
    learner = loaded.learner
    found = linear_in_phi(lambda s, a: learner.query("phi", s, a), loaded.replay.latest(rows))
    facts = {"task": config.task, "agent": config.agent, "step": loaded.step}
    print(json.dumps(facts | {name: round(x, 4) for name, x in found._asdict().items()}))


def _print_novelty(run: OnlineRun) -> None:
    cells = cells_of(run.task)
    if cells is None:
        raise InputError(f"{run.task.name} has no two bounded coordinates to count visits on.")
    found = forms(run, cells)
    titles = ("bonus", "correlation", "unvisited / visited", "times ten / data", "cells visited")
    rows = (
        [name, f"{x.correlation:.2f}", f"{x.unvisited:.2f}", f"{x.far:.3g}", _of(x)]
        for name, x in found.items()
    )
    Console(width=200).print(plain_table(titles[:1], rows, titles[1:]))


def _of(found: Novelty) -> str:
    return f"{found.visited} of {found.cells}"
