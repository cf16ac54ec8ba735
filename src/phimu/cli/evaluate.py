"""`phimu evaluate RUN`: episodes of a trained agent, or of random actions, and a film of one."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from phimu.cli.arguments import call
from phimu.cli.train import task_options
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.training.evaluation import Policy, evaluate, random_policy
from phimu.training.session import load_run
from phimu.training.video import check_video, film


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu evaluate")


def _run(
    run: Annotated[str, tyro.conf.Positional],
    policy: Literal["mode", "random"] = "mode",
    episodes: int = 10,
    seed: int = 0,
    option: tuple[str, ...] = (),
    video: Path | None = None,
) -> None:
    """Evaluate a trained run, or a random policy to compare it with.

    Prints one line of JSON: mean and standard deviation of the return, mean length in decisions
    and in simulator steps (the two differ where actions are repeated), the share of episodes that
    the environment itself ended.

    Args:
        run: a run directory; with --policy random, a task id such as mbbl/HopperET-v0.
        policy: the trained agent's mode action, or uniformly random actions.
        episodes: how many episodes.
        seed: of the episodes' starts, and of random actions.
        option: with --policy random, constructor arguments of the task, as name=value.
        video: also film the first of them into this MP4.
    """
    if episodes < 1:
        raise InputError(f"episodes is {episodes}: give at least 1.")  # before anything is loaded
    if video is not None:
        check_video(video)
    if policy == "random":
        name, options = run, task_options(option)
        task = open_task(name, **options)
        facts: dict[str, Any] = {"task": name, "agent": "random"}

        def chosen() -> Policy:
            return random_policy(task.spec.action_dim, seed)
    else:
        if option:
            raise InputError("option is for --policy random: a run has the options of its own.")
        config, loaded = load_run(Path(run))
        if config.evaluation_task is None:
            raise InputError(f"{run} was trained on data that names no environment to run it in.")
        name, options = config.evaluation_task, config.task_options
        task, chosen = open_task(name, **options), loaded.policy
        facts = {"task": config.task, "agent": config.agent, "step": loaded.step}
    print(json.dumps(facts | evaluate(chosen(), task, episodes, seed).summary()))
    if video is not None:
        film(video, name, options, task, chosen(), seed)
        print(video)
