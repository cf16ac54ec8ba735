"""`phimu evaluate RUN`: episodes of a trained agent, or of random actions, and a film of one.

With --data, estimates from logged transitions in place of episodes.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from phimu.cli.arguments import call
from phimu.cli.train import task_options
from phimu.data.logged import LoggedDataset
from phimu.data.sets.opening import open_set
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.evaluation.episodes import evaluate, random_policy
from phimu.evaluation.film import check_video, film
from phimu.evaluation.fitted_q import FittedQ, discount_of, estimate
from phimu.runs.config import RunConfig
from phimu.runs.progress import Progress
from phimu.session import load_run
from phimu.training.offline import OfflineRun
from phimu.types import Act


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu evaluate")


def _run(
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
    if episodes < 1:
        raise InputError(f"episodes is {episodes}: give at least 1.")  # before anything is loaded
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

        def chosen() -> Act:
            return random_policy(task.spec.action_dim, seed)
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
    if count < 1:
        raise InputError(f"fqe-updates is {count}: give at least 1.")  # before the data is read
    logged = open_set(source)
    config, run = run_on_data(path, logged)
    fitted = FittedQ(discount_of(config.settings))
    with Progress(count, 0, console=Console(stderr=True)) as progress:
        found = estimate(
            fitted, run.learner.acting, logged, count, seed, lambda done: progress.update(done, {})
        )
    penalties = {k: v for k, v in run.estimates().items() if k.startswith("penalty")}
    facts = {"task": config.task, "agent": config.agent, "step": run.step, "data": logged.name}
    return facts | found | penalties


def run_on_data(path: Path, data: LoggedDataset) -> tuple[RunConfig, OfflineRun]:
    """An offline run that has a policy, with a set to ask it about."""
    config, run = load_run(path, data=data)
    if not isinstance(run, OfflineRun):
        raise InputError(
            f"{path} was trained in {config.task}, not on data: phimu evaluate runs it there."
        )
    if run.kind != "train":
        raise InputError(f"{path} has not begun to learn its policy: let it train on.")
    return config, run
