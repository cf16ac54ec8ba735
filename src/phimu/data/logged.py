"""Logged transitions in memory: the one form that every file format is read into."""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from phimu.action_range import ActionRange
from phimu.types import Spec


class Transitions(NamedTuple):
    """N transitions, those of an episode one after the other and in order."""

    observation: np.ndarray  # [N, observation_dim] float32
    action: np.ndarray  # [N, action_dim] float32, in [-1, 1]
    reward: np.ndarray  # [N] float32
    next_observation: np.ndarray  # [N, observation_dim] float32
    terminated: np.ndarray  # [N] bool: s' has no future
    truncated: np.ndarray  # [N] bool: the episode was cut here, s' has one
    episode: np.ndarray  # [N] int32, 0, 1, 2, ... without gaps


@dataclass(frozen=True)
class LoggedDataset:
    """A dataset and where it comes from."""

    transitions: Transitions
    name: str  # such as hopper_medium: it names run directories
    layout: str  # "d4rl", "minari" or "arrays"
    sha256: str  # of the file, or of the columns where there is none
    task: str | None = None  # the Gymnasium id that policies can be evaluated in, where it is known
    action_low: np.ndarray | None = None  # [action_dim]; what -1 and 1 mean in the task
    action_high: np.ndarray | None = None
    notes: tuple[str, ...] = ()  # what was odd in the file, and what was made of it

    def __len__(self) -> int:
        return len(self.transitions.reward)

    @property
    def action_range(self) -> ActionRange:
        """What -1 and 1 mean; themselves where the dataset does not say."""
        if self.action_low is None or self.action_high is None:
            return ActionRange(-np.ones(self.spec.action_dim), np.ones(self.spec.action_dim))
        return ActionRange(self.action_low, self.action_high)

    @property
    def action(self) -> np.ndarray:
        """The actions in the dataset's own range, as a model takes and gives them."""
        return self.action_range.outward(self.transitions.action).astype(np.float32)

    @property
    def spec(self) -> Spec:
        columns = self.transitions
        return Spec(columns.observation.shape[1], columns.action.shape[1])


def safe_name(text: str) -> str:
    """A name that can be that of a directory, whatever a file says that it is called."""
    return re.sub(r"[^\w.-]+", "-", text[:100]).strip("-.") or "set"


def plain_task(text: str) -> bool:
    """Whether an id is without a "module:" in front, which Gymnasium would import and so run."""
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)*", text) is not None and len(text) <= 200
