"""The paper's tables with our runs beside its scores and those of others, as data."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from phimu.reports.published import Published, published
from phimu.reports.rows import Changes, Result
from phimu.reports.statistics import mean_and_std
from phimu.studies.tables import STUDIES, TASK_NOTES, TASK_TITLES, Study, Variant

Whose = Literal["ours", "paper", "others"]
BEST = "best of the rest"
MADE_ANEW = "On a set made anew under this name, not on D4RL's file."
ABSENT = "has none"  # of a setting
UNFINISHED = "Not every run here is finished: the last evaluations so far."


class Column(NamedTuple):
    heading: str  # the variant
    whose: Whose
    detail: str  # the preset of ours, the name of theirs


class Cell(NamedTuple):
    mean: float
    std: float | None
    seeds: int | None
    steps: tuple[int, int] | None  # fewest and most
    notes: tuple[str, ...] = ()
    method: str = ""  # where a column holds the best of many
    ahead: bool = False  # of what it is compared with
    near: bool = False  # within the spread of it, or after more steps
    runs: tuple[Result, ...] = ()


class Row(NamedTuple):
    task: str
    title: str
    notes: tuple[str, ...]
    cells: list[Cell | None]  # None: not run, or not published


class Table(NamedTuple):
    study: Study
    columns: list[Column]
    rows: list[Row]


class Placed(NamedTuple):
    """Where in a study a run belongs."""

    study: str
    variant: int
    rest: Changes  # how it differs from the variant under its preset


def place(result: Result) -> list[Placed]:
    """Every study that a run is exactly a part of; or else its table, with what differs."""
    fits = [fit for study in STUDIES.values() if (fit := _fit(study, result)) is not None]
    exact = [fit for fit in fits if not fit.rest]
    return exact or [fit for fit in fits if fit.study.startswith("table")]


def _fit(study: Study, result: Result) -> Placed | None:
    """The variant that leaves the least to say."""
    if result.task not in study.tasks or (study.offline and result.metric != study.metric):
        return None
    changes = [change for change in result.changes if change not in study.options]
    fits = []
    for index, variant in enumerate(study.variants):
        wanted = dict(variant.settings)
        if result.agent == variant.agent and all(
            result.settings.get(name) == value for name, value in wanted.items()
        ):
            rest = tuple(change for change in changes if change[0] not in wanted)
            fits.append(Placed(study.name, index, rest))
    return min(fits, key=lambda fit: len(fit.rest), default=None)


def differences(table: Table) -> tuple[list[str], dict[str, list[Any]]]:
    """Our columns that have runs, and the settings that two of them have and set differently."""
    ran: dict[str, dict[str, Any]] = {}
    for index, column in enumerate(table.columns):
        cells = [row.cells[index] for row in table.rows]
        runs = [run for cell in cells if cell is not None for run in cell.runs]
        if runs:
            ran[f"{column.heading} ({column.detail})"] = runs[0].settings
    found = {}
    for name in dict.fromkeys(name for settings in ran.values() for name in settings):
        values = [settings[name] for settings in ran.values() if name in settings]
        if any(value != values[0] for value in values):
            found[name] = [settings.get(name, ABSENT) for settings in ran.values()]
    return list(ran), found


def tables(results: Iterable[Result]) -> list[Table]:
    """Every study but the maze, whether anything of it was run or not."""
    members: dict[str, list[tuple[Placed, Result]]] = {name: [] for name in STUDIES}
    for result in results:
        for placed in place(result):
            members[placed.study].append((placed, result))
    return [
        _table(study, members[study.name]) for study in STUDIES.values() if study.name != "maze"
    ]


def _table(study: Study, members: Sequence[tuple[Placed, Result]]) -> Table:
    theirs = [row for row in published() if (row.table, row.metric) == (study.name, study.metric)]
    columns: list[Column] = []
    cells: dict[str, list[Cell | None]] = {task: [] for task in study.tasks}

    def add(column: Column, by_task: dict[str, Cell]) -> None:
        columns.append(column)
        for task in study.tasks:
            cells[task].append(by_task.get(task))

    shown = {variant.published_method for variant in study.variants}
    for index, variant in enumerate(study.variants):
        printed = {
            row.task: _printed(row) for row in theirs if row.method == variant.published_method
        }
        for detail, cells_of_ours in _our_columns(index, members):
            add(Column(variant.label, "ours", detail), cells_of_ours)
        if printed:
            add(_their_column(variant, theirs), printed)
    for whose in ("paper", "others"):
        others = [
            row for row in theirs if row.of_paper == (whose == "paper") and row.method not in shown
        ]
        if others:
            add(Column(BEST, whose, ""), _best(study, others))
    rows = [
        Row(task, TASK_TITLES[task], TASK_NOTES.get(task, ()), _marked(columns, cells[task]))
        for task in study.tasks
    ]
    return Table(study, columns, rows)


def _our_columns(
    index: int, members: Sequence[tuple[Placed, Result]]
) -> list[tuple[str, dict[str, Cell]]]:
    """A column for each preset that the variant was run with; an empty one if it was not."""
    found: dict[str, dict[str, list[Result]]] = {}
    for placed, result in members:
        if placed.variant == index and result.score is not None:
            detail = ", ".join([result.preset, *(f"{k}={v}" for k, v in placed.rest)])
            found.setdefault(detail, {}).setdefault(result.task, []).append(result)
    if not found:
        return [("", {})]
    return [
        (detail, {task: ours(runs) for task, runs in by_task.items()})
        for detail, by_task in sorted(found.items())
    ]


def ours(runs: Sequence[Result]) -> Cell:
    """The seeds of one configuration."""
    values = [run.score for run in runs if run.score is not None]
    mean, std = mean_and_std(np.array(values))
    notes = []
    if any(run.made_anew for run in runs):
        notes.append(MADE_ANEW)
    if not all(run.finished for run in runs):
        notes.append(UNFINISHED)
    notes += dict.fromkeys(run.note for run in runs if run.note)
    steps = [int(run.steps[-1]) for run in runs]
    runs = sorted(runs, key=lambda run: run.seed)
    return Cell(mean, std, len(values), (min(steps), max(steps)), tuple(notes), runs=tuple(runs))


def _printed(row: Published, method: str = "") -> Cell:
    steps = None if row.steps is None else (row.steps, row.steps)
    notes = (row.note,) if row.note and row.of_paper else ()
    return Cell(row.mean, row.std, row.seeds, steps, notes, method)


def _their_column(variant: Variant, theirs: Sequence[Published]) -> Column:
    of_paper = any(row.of_paper and row.method == variant.published_method for row in theirs)
    return Column(variant.label, "paper" if of_paper else "others", variant.published_method or "")


def _near(a: Cell, b: Cell) -> bool:
    """Whether two means differ by less than their spreads together."""
    return bool(abs(a.mean - b.mean) <= np.hypot(a.std or 0.0, b.std or 0.0))


def _later(a: Cell, b: Cell) -> bool:
    """Whether a mean is of more steps than another."""
    return bool(a.steps and b.steps and min(a.steps) > max(b.steps))


def _best(study: Study, rows: Sequence[Published]) -> dict[str, Cell]:
    """The highest mean on each task among those after as many steps, or of sets of data all."""
    best: dict[str, Published] = {}
    for row in rows:
        if row.steps in (None, study.steps) and (
            row.task not in best or row.mean > best[row.task].mean
        ):
            best[row.task] = row
    return {task: _printed(row, row.method) for task, row in best.items()}


def _marked(columns: Sequence[Column], cells: Sequence[Cell | None]) -> list[Cell | None]:
    """Each cell of a row with whether it is ahead of the other side, and whether no more than that.

    Ours are compared with the published scores of the same variant, those with the best of ours,
    and the best of other methods with the best of all of ours.
    """
    marked: list[Cell | None] = []
    for column, cell in zip(columns, cells, strict=True):
        rivals = [
            other
            for beside, other in zip(columns, cells, strict=True)
            if other is not None
            and (beside.whose == "ours") != (column.whose == "ours")
            and (beside.heading == column.heading or (cell is not None and cell.method))
        ]
        if cell is not None and rivals:
            rival = max(rivals, key=lambda other: other.mean)
            near = _near(cell, rival) or _later(cell, rival)
            cell = cell._replace(ahead=cell.mean > rival.mean, near=near)
        marked.append(cell)
    return marked
