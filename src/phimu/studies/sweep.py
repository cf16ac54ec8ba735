"""A sweep on disk: what is searched, and its trials, in one JSON file that is replaced as a whole.

A trial is a run directory: it has that of its settings, as every run has. Two equal trials would be
one run, so no two are ever equal. What was learned in a trial is in its run directory alone; the
file has which trials there are, how they ended, and what their evaluations were by then.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from phimu.agents import preset
from phimu.data.sets.opening import is_source, open_set
from phimu.environments.task import suite_of
from phimu.errors import InputError
from phimu.runs.config import Dataset, RunConfig
from phimu.runs.files import Damaged, read_json, write_atomically
from phimu.runs.json_form import canonical, config_hash
from phimu.session import Order
from phimu.settings import read
from phimu.studies.plan import Run
from phimu.studies.varied import Varied

FILE = "sweep.json"
PICTURE = "sweep.png"

State = Literal["running", "done", "pruned", "failed"]
Pruner = Literal["median", "none"]


@dataclass(frozen=True)
class Sweep:
    """What is searched; its directory is named after all of it."""

    task: str
    """A Gymnasium id, or logged data as `phimu train` takes it."""
    agent: str
    preset: str
    steps: int
    seed: int
    settings: dict[str, str]
    """Of every trial, as texts."""
    varied: tuple[Varied, ...]
    pruner: Pruner = "median"

    def path(self, root: Path) -> Path:
        # Of logged data the whole address is in the hash.
        task = Path(self.task.split(":")[-1]).stem if is_source(self.task) else self.task
        name = f"{task.split('/')[-1]}-{self.agent}-{config_hash(dataclasses.asdict(self))}"
        return root / name

    def combinations(self) -> float:
        """How many different trials there can be."""
        count = 1.0
        for each in self.varied:
            count *= each.count()
        return count


@dataclass
class Trial:
    number: int
    """From 0 on."""
    settings: dict[str, str]
    """What was drawn for it, as texts."""
    state: State = "running"
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    """Up to where it ended or was pruned: step, and return or score."""
    run: str = ""
    """Its directory, from that of the sweep."""
    why: str = ""
    """It failed."""

    @property
    def score(self) -> float | None:
        """The last evaluation."""
        return self.evaluations[-1][1] if self.evaluations else None


class Record:
    """The file of a sweep."""

    def __init__(self, sweep: Sweep, path: Path):
        self.sweep, self.path = sweep, path
        self.trials: list[Trial] = []
        if (path / FILE).exists():
            self._read()

    def _read(self) -> None:
        file, asked = self.path / FILE, json.loads(canonical(dataclasses.asdict(self.sweep)))
        try:
            found = read_json(file)
            if found["sweep"] != asked:
                raise InputError(f"{file} is of another sweep: choose another --out.")
            self.trials = [_trial(each) for each in found["trials"]]
            if [trial.number for trial in self.trials] != list(range(len(self.trials))):
                raise ValueError("the trials are not numbered from 0 on")
        except (Damaged, KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{file} cannot be read as a sweep ({error}): restore it from a copy."
            ) from error

    def write(self) -> None:
        best = self.best()
        content = {
            "sweep": dataclasses.asdict(self.sweep),
            "best": None if best is None else best.number,
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
        }
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / FILE, json.dumps(content, indent=1).encode() + b"\n")

    def best(self) -> Trial | None:
        """Of those that were brought to their end."""
        done = [trial for trial in self.trials if trial.state == "done" and trial.evaluations]
        return max(done, key=lambda trial: trial.score or 0.0, default=None)


def _trial(stored: dict[str, Any]) -> Trial:
    trial = Trial(**stored)
    trial.evaluations = [(int(step), float(value)) for step, value in trial.evaluations]
    if trial.state not in ("running", "done", "pruned", "failed"):
        raise ValueError(f"a trial is {trial.state!r}")
    if not all(isinstance(x, str) for pair in trial.settings.items() for x in pair):
        raise ValueError("a setting is no text")
    return trial


class Runs:
    """The trials of a sweep as runs, each in its own directory below that of the sweep."""

    def __init__(self, sweep: Sweep, root: Path):
        self._sweep, self._root = sweep, root
        logged = is_source(sweep.task)
        self._parts = read(preset(sweep.agent, sweep.preset, logged), sweep.settings)
        data = open_set(sweep.task) if logged else None
        self._dataset = None if data is None else Dataset.of(data, data.task)
        self._name = sweep.task if data is None else data.name
        self._suite = suite_of(sweep.task) if data is None else data.layout
        if data is not None and data.task is None:
            raise InputError(
                f"{sweep.task} names no environment, but trials are compared by evaluations: "
                "sweep on data that names one."
            )
        if not self._parts.schedule.evaluate_every:
            raise InputError("evaluate_every is 0, but trials are compared by evaluations.")

    def run(self, settings: dict[str, str], number: int = 0) -> Run:
        sweep = self._sweep
        parts = read(self._parts, settings)
        config = RunConfig(self._name, sweep.agent, *parts, sweep.seed, {}, self._dataset)
        source = None if self._dataset is None else sweep.task
        order = Order(config, sweep.steps, source, {"preset": sweep.preset})
        label = "  ".join([sweep.agent, *(f"{k}={v}" for k, v in settings.items())])
        path = config.path(self._root, self._suite)
        return Run(number, self._name, label, order, path)
