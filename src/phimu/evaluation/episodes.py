"""Evaluation of a policy, trained or any other: whole episodes, what they came to, and a film."""

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phimu.environments import rendering
from phimu.environments.task import Task, open_task
from phimu.errors import InputError, at_least
from phimu.types import Act, Spec

LONGEST = 10_000  # steps of an episode in an environment that declares no time limit


class Evaluation(NamedTuple):
    """What a policy did, an entry per episode."""

    returns: np.ndarray
    lengths: np.ndarray  # decisions
    simulator_steps: np.ndarray  # more than decisions where actions are repeated
    terminated: np.ndarray  # ended by the environment, not by the time limit

    def summary(self) -> dict[str, float]:
        return {
            "return": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "length": float(self.lengths.mean()),
            "simulator_steps": float(self.simulator_steps.mean()),
            "terminated": float(self.terminated.mean()),
            "episodes": len(self.returns),
        }


def evaluate(
    policy: Act,
    task: Any,
    episodes: int = 10,
    seed: int = 0,
    say: Callable[[str], Any] = warnings.warn,
) -> Evaluation:
    """Run `episodes` episodes of a `Task`, a Gymnasium id or environment; one seed, same starts.

    `say` hears of episodes that had to be cut, for an environment without a time limit.
    """
    at_least(1, episodes=episodes)
    if not isinstance(task, Task):
        task = open_task(task)
    rows = [run_episode(policy, task, s) for s in episode_seeds(seed, episodes)]
    found = Evaluation(*(np.array(column) for column in zip(*rows, strict=True)))
    if task.time_limit is None and (found.lengths == LONGEST).any():
        say(
            f"An episode of {task.name} had not ended after {LONGEST:,} steps and was cut there: "
            "give the environment a limit with gymnasium.wrappers.TimeLimit, or with "
            "max_episode_steps where it is registered."
        )
    return found


def random_policy(spec: Spec, seed: int) -> Act:
    rng = np.random.default_rng(seed)
    return lambda observation: spec.random_action(rng)


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """The seed of each episode's reset; more episodes begin with the same ones."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(episodes)]


def run_episode(policy: Act, task: Task, seed: int) -> tuple[float, int, int, bool]:
    """(return, length, simulator steps, terminated) of one episode."""
    observation = task.reset(seed)
    total, length, longest = 0.0, 0, LONGEST if task.time_limit is None else None
    while True:
        observation, reward, terminated, truncated = task.step(policy(observation))
        total, length = total + reward, length + 1
        if terminated or truncated or length == longest:
            return total, length, task.simulator_steps, terminated


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
