"""`phimu evaluate RUN`: episodes of a trained agent in mode action, and a film of one."""

import json
from pathlib import Path
from typing import Annotated

import tyro

from phimu.errors import InputError
from phimu.training.evaluation import evaluate
from phimu.training.session import load_run
from phimu.training.video import check_video, film


def main(arguments: list[str]) -> None:
    tyro.cli(_run, args=arguments, prog="phimu evaluate")


def _run(
    run: Annotated[Path, tyro.conf.Positional],
    episodes: int = 10,
    seed: int = 0,
    video: Path | None = None,
) -> None:
    """Evaluate a trained run.

    Args:
        run: a run directory.
        episodes: how many episodes.
        seed: of the episodes' starts.
        video: also film the first of them into this MP4.
    """
    if episodes < 1:
        raise InputError(f"episodes is {episodes}: give at least 1.")
    if video is not None:
        check_video(video)
    config, loaded = load_run(run)
    result = evaluate(loaded.policy(), loaded.task, episodes, seed).summary()
    print(json.dumps({"task": config.task, "agent": config.agent, "step": loaded.step} | result))
    if video is not None:
        film(config, loaded, video, seed)
        print(video)
