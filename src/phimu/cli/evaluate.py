"""`phimu evaluate RUN`: episodes of a trained agent in mode action, and a film of one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import tyro

from phimu.errors import InputError
from phimu.training.evaluation import evaluate
from phimu.training.session import load_run


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
    config, loaded = load_run(run)
    result = evaluate(loaded.policy(), loaded.task, episodes, seed).summary()
    print(json.dumps({"task": config.task, "agent": config.agent, "step": loaded.step} | result))
    if video is not None:
        # In a process of its own: a graphics driver that fails can abort the whole process.
        film = [sys.executable, "-m", "phimu.training.video", str(run), str(video), str(seed)]
        code = subprocess.run(film, check=False).returncode
        if code == 2:
            sys.exit(2)  # it has said why
        if code:
            raise InputError(f"No video was written to {video}: filming ended with code {code}.")
        print(video)
