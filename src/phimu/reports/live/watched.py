"""Which runs are watched, and what is shown of each."""

import contextlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from phimu.errors import InputError
from phimu.reports.rows import runs_below
from phimu.runs.directory import read_config
from phimu.runs.following import Followed
from phimu.training.measures import shown

SEARCH_SECONDS = 10.0  # between two searches for new runs below a directory
POINTS = 400  # of a curve; a screen has no room for more
EVALUATION = "evaluation"  # of a run: its score on D4RL's scale, or else its return


class Series(NamedTuple):
    steps: list[int]
    values: list[float]


class Watched:
    """One run: who it is and how it grows."""

    def __init__(self, path: Path):
        config = read_config(path)  # InputError where it is no run, or has links in it
        self.task, self.agent = str(config.get("task")), str(config.get("agent"))
        self.seed = config.get("seed")
        self.run = Followed(path)

    @property
    def name(self) -> str:
        return f"{self.task}  {self.agent}  seed {self.seed}"

    def series(self) -> dict[str, Series]:
        """The evaluations first, then the training return, then every other number of the log."""
        found: dict[str, Series] = {EVALUATION: Series([], []), "return": Series([], [])}
        for row in self.run.rows:
            for name, value in _numbers(row).items():
                if isinstance(value, int | float) and math.isfinite(value):
                    steps, values = found.setdefault(name, Series([], []))
                    steps.append(row["step"])
                    values.append(float(value))
        return {name: _thinned(each) for name, each in found.items() if each.steps}

    def losses(self) -> list[str]:
        """Of the latest training row, those that the progress line of `phimu train` shows."""
        rows = (row for row in reversed(self.run.rows) if row.get("kind") != EVALUATION)
        return [name for name in shown(next(rows, {})) if name.endswith("_loss")]


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """What a row measured; of an evaluation that is one number."""
    if row.get("kind") == EVALUATION:
        return {EVALUATION: row.get("score", row.get("return"))}
    return {name: value for name, value in row.items() if name not in ("step", "kind")}


def _thinned(series: Series) -> Series:
    """At most POINTS of them, evenly, with the last."""
    every = math.ceil(len(series.steps) / POINTS)
    first = (len(series.steps) - 1) % every
    return Series(series.steps[first::every], series.values[first::every])


class Watch:
    """All runs at or below some paths; those that come later too."""

    def __init__(self, paths: Sequence[Path]):
        if not paths:
            raise InputError("run is missing: name a run directory, or one above some.")
        for path in paths:
            if not path.is_dir():
                raise InputError(f"There is no directory {path}: name that of a run.")
        self._paths, self._searched = paths, time.monotonic()
        self._found: dict[Path, Watched] = {}
        for path in paths:
            self._add(list(runs_below(path)))

    def look(self) -> list[Watched]:
        """Up to date, in the order in which they were named and found."""
        now = time.monotonic()
        if now - self._searched > SEARCH_SECONDS:
            self._searched = now
            for path in self._paths:
                with contextlib.suppress(InputError):  # a run that is just being made or removed
                    self._add(list(runs_below(path)))
        for each in self._found.values():
            each.run.look()
        return list(self._found.values())

    def _add(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if path.resolve() not in self._found:
                self._found[path.resolve()] = Watched(path)


def names(runs: Sequence[Watched]) -> list[str]:
    """Of each; those that are equal with the directory of their configuration."""
    plain = [each.name for each in runs]
    return [
        name if plain.count(name) == 1 else f"{name}  {each.run.path.absolute().parent.name}"
        for name, each in zip(plain, runs, strict=True)
    ]
