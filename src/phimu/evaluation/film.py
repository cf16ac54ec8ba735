"""Films the first episode of an evaluation."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from phimu.environments import rendering
from phimu.environments.task import Task
from phimu.errors import InputError
from phimu.evaluation.episodes import episode_seeds, run_episode
from phimu.types import Act


def check_video(out: Path) -> None:
    """Whether a film can be written there, asked before the episodes are run."""
    if out.suffix != ".mp4":
        raise InputError(f"video is {out}: give a name that ends in .mp4.")
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise InputError('A video needs imageio: pip install "phimu[video]".')


def film(
    out: Path, task_id: str, options: dict[str, Any], task: Task, policy: Act, seed: int
) -> None:
    """The first episode that `evaluate` runs under this seed, in `task`, which the id opened."""
    first = episode_seeds(seed, 1)[0]
    actions: list[np.ndarray] = []

    def remembered(observation: np.ndarray) -> np.ndarray:
        actions.append(policy(observation))
        return actions[-1]

    total, *_ = run_episode(remembered, task, first)
    rendering.film(out, task_id, options, first, np.array(actions), total)
