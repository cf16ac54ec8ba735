"""What a run is: the configuration that names its directory."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from phimu.action_range import ActionRange
from phimu.agents import learners
from phimu.agents.schedule import Schedule
from phimu.data.logged import LoggedDataset
from phimu.data.sets.opening import open_set
from phimu.errors import InputError
from phimu.runs.directory import read_config, run_path
from phimu.runs.json_form import from_json, to_json
from phimu.types import Spec


@dataclass(frozen=True)
class Dataset:
    """What an offline run remembers of its dataset: its content, not where its file lay."""

    layout: str
    sha256: str
    observation_dim: int
    action_dim: int
    task: str | None = None
    """The Gymnasium id that its policies are evaluated in."""
    action_low: tuple[float, ...] | None = None
    """What -1 and 1 mean in its actions, if not these."""
    action_high: tuple[float, ...] | None = None

    @classmethod
    def of(cls, data: LoggedDataset, task: str | None) -> "Dataset":
        ends = (
            None if end is None else tuple(float(x) for x in end)
            for end in (data.action_low, data.action_high)
        )
        sizes = data.spec.observation_dim, data.spec.action_dim
        return cls(data.layout, data.sha256, *sizes, task, *ends)

    @property
    def action_range(self) -> ActionRange:
        if self.action_low is None or self.action_high is None:
            return ActionRange([-1.0] * self.action_dim, [1.0] * self.action_dim)
        return ActionRange(self.action_low, self.action_high)

    def to_own_range(self, action: np.ndarray) -> np.ndarray:
        """Actions [..., action_dim] in [-1, 1] as the data has them."""
        return self.action_range.outward(action).astype(np.float32)

    def open(self, source: str | Path) -> LoggedDataset:
        """The same dataset again, from where it is now."""
        low, high = self.action_low, self.action_high
        return open_set(source, self.sha256, task=self.task, action_low=low, action_high=high)

    def again(self, data: str | Path | LoggedDataset | None) -> LoggedDataset | None:
        """What is given as the same dataset again, if it is; InputError if not."""
        if not isinstance(data, LoggedDataset):
            return None if data is None else self.open(data)
        there = self.of(data, self.task)
        if there.sha256 != self.sha256:
            raise InputError(
                f"{data.name} has sha256 {there.sha256}, but the model learned from data with "
                f"{self.sha256}: give the same rows, from the same file or made in the same way."
            )
        if there != self:
            raise InputError(
                f"{data.name} has actions of another range than the data that the model learned "
                "from: give the same action_low and action_high."
            )
        return data

    @property
    def spec(self) -> Spec:
        return Spec(self.observation_dim, self.action_dim)


@dataclass(frozen=True)
class RunConfig:
    """What a run is. Its directory is named after all of it but the seed."""

    task: str
    """A Gymnasium id; offline the name of the dataset."""
    agent: str
    settings: Any
    """Of the agent: a frozen dataclass."""
    schedule: Schedule
    seed: int = 0
    task_options: dict[str, Any] = field(default_factory=dict)
    dataset: Dataset | None = None
    environment: str | None = None
    """What it learns in, where task and task_options do not make that: it was given ready-made."""

    def to_json(self) -> dict[str, Any]:
        plain = to_json(self)
        for name in ("dataset", "environment"):
            if plain[name] is None:
                del plain[name]
        collection = plain["schedule"].get("collection")
        if collection and collection.get("envs") == 1:
            del collection["envs"]  # a run of one environment keeps the name that it had
        return plain

    def in_environment(
        self, task: str, task_options: dict[str, Any], environment: str | None
    ) -> "RunConfig":
        """The same in another one."""
        return replace(self, task=task, task_options=task_options, environment=environment)

    def path(self, runs: Path, suite: str) -> Path:
        identity = self.to_json()
        seed = identity.pop("seed")
        return run_path(runs, suite, self.task, self.agent, identity, seed)

    @property
    def envs(self) -> int:
        """Environments side by side."""
        return 1 if self.schedule.collection is None else self.schedule.collection.envs

    @property
    def evaluation_task(self) -> str | None:
        """Where episodes can be run."""
        return self.task if self.dataset is None else self.dataset.task


def load_config(path: Path) -> RunConfig:
    stored = read_config(path)
    try:
        logged = "dataset" in stored
        presets = learners(logged)[stored["agent"]].presets(logged)
        kind = type(next(iter(presets.values())).settings)
        config: RunConfig = from_json(RunConfig, stored)
        return replace(config, settings=from_json(kind, config.settings))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}/config.json was written by another version of phimu ({error})."
        ) from error
