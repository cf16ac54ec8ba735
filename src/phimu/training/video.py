"""Films the first episode of an evaluation."""

import importlib.util
from pathlib import Path

import numpy as np

from phimu.environments import rendering
from phimu.errors import InputError
from phimu.training.evaluation import episode_seeds, run_episode
from phimu.training.online import OnlineRun
from phimu.training.session import RunConfig


def check_video(out: Path) -> None:
    """Whether a film can be written there, asked before the episodes are run."""
    if out.suffix != ".mp4":
        raise InputError(f"video is {out}: give a name that ends in .mp4.")
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise InputError('A video needs imageio: pip install "phimu[video]".')


def film(config: RunConfig, run: OnlineRun, out: Path, seed: int) -> None:
    """The first episode that `evaluate` runs under this seed."""
    check_video(out)
    first = episode_seeds(seed, 1)[0]
    policy = run.policy()
    actions: list[np.ndarray] = []

    def remembered(observation: np.ndarray) -> np.ndarray:
        actions.append(policy(observation))
        return actions[-1]

    total, _, _ = run_episode(remembered, run.task, first)
    rendering.film(out, config.task, config.task_options, first, np.array(actions), total)
