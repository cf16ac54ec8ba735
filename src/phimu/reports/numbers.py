"""How numbers are written, in the page and in the text tables alike."""

from collections.abc import Callable, Sequence

import numpy as np

from phimu.reports.comparison import Cell
from phimu.reports.published import Published
from phimu.reports.rows import Result
from phimu.reports.statistics import mean_and_std

NOT_RUN = "not run"
MAZE_SCORES = {
    "total_variation_free": "total variation, free space",
    "total_variation_beside_walls": "beside walls",
    "mean_abs_log_z": "mean |log Z|",
    "success_rate": "success rate",
}


def number(value: float) -> str:
    return f"{value:z,.1f}".replace("-", "\N{MINUS SIGN}")


def brief(value: float) -> str:
    """`-0.1`, `4,277`: for tables in plain text, where a column should stay narrow."""
    return f"{value:z,.{0 if abs(value) >= 1_000 else 1}f}"


def score(cell: Cell | Published, write: Callable[[float], str] = number) -> str:
    """`4,888.5 ± 205.8`; one run has no spread."""
    return write(cell.mean) + ("" if cell.std is None else f" ± {write(cell.std)}")


def maze_score(group: Sequence[Result], name: str) -> str:
    """`0.126 ± 0.003` of a score of the maze over seeds."""
    values = [run.maze[name] for run in group if name in run.maze]
    if not values:
        return "not scored"
    mean, std = mean_and_std(np.array(values))
    return f"{mean:.3f}" + ("" if std is None else f" ± {std:.3f}")


def thousands(steps: int) -> str:
    """`200K`, `1M`, `12,345`."""
    for size, letter in ((1_000_000, "M"), (1_000, "K")):
        if steps and steps % size == 0:
            return f"{steps // size}{letter}"
    return f"{steps:,}"


def span(low: int, high: int) -> str:
    return thousands(low) if low == high else f"{thousands(low)} to {thousands(high)}"


def seeds(count: int) -> str:
    return f"{count} seed{'s' if count != 1 else ''}"


def hours(values: Sequence[float | None]) -> str:
    """The sum of those that were recorded."""
    known = [value for value in values if value is not None]
    return f"{sum(known):.1f}" if known else "not recorded"


class Footnotes:
    """Notes of a table, each once, numbered in the order in which they are met."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def marks(self, notes: Sequence[str]) -> list[int]:
        for note in notes:
            if note not in self.notes:
                self.notes.append(note)
        return [self.notes.index(note) + 1 for note in notes]
