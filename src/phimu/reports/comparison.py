"""The paper's tables with our runs beside its scores and those of others, as data."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from phimu.environments.catalogue import catalogue
from phimu.reports import statistics
from phimu.reports.published import Published, published
from phimu.reports.rows import Changes, Result, as_text, differing
from phimu.reports.statistics import Estimate, bootstrap, mean_and_std
from phimu.studies.study import Study
from phimu.studies.tables import STUDIES, TASK_NOTES, TASK_TITLES

Whose = Literal["ours", "paper", "others"]
BEST = "best of the rest"
REGENERATED = "On a dataset that we regenerated under this name, not on D4RL's file."
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
    near: bool = False  # no more than that: see `_near`
    runs: tuple[Result, ...] = ()


class Row(NamedTuple):
    task: str
    title: str
    notes: tuple[str, ...]
    cells: dict[Column, Cell]  # without those that were not run, or not published


class Table(NamedTuple):
    study: Study
    columns: list[Column]
    rows: list[Row]


class Placed(NamedTuple):
    study: str
    variant: int
    rest: Changes  # how it differs from the variant under its preset


def order(run: Result) -> tuple[Any, ...]:
    """The paper's tasks in its order, then others."""
    known = list(TASK_TITLES)
    index = known.index(run.task) if run.task in known else len(known)
    return index, run.task, run.agent, run.label, run.seed


def place(result: Result) -> list[Placed]:
    """The study that it was made for, others that it is exactly part of; or its table at least."""
    fits = [fit for study in STUDIES.values() if (fit := _fit(study, result)) is not None]
    certain = [fit for fit in fits if fit.study == result.study or not fit.rest]
    return certain or [fit for fit in fits if fit.study.startswith("table")]


def _fit(study: Study, result: Result) -> Placed | None:
    """The variant that the run was made for, or else the one that leaves the least to say."""
    if result.task not in study.tasks or (study.offline and result.metric != study.metric):
        return None
    options = study.options_of(result.task)
    if study.name != result.study and not options.items() <= set(result.changes):
        return None  # its tasks have options that this run's has not
    changes = [change for change in result.changes if change not in options.items()]
    fits = []
    for index, variant in enumerate(study.variants):
        wanted = dict(variant.settings)
        made_for = (study.name, variant.label) == (result.study, result.variant)
        if made_for or (
            result.agent == variant.agent
            and all(result.settings.get(name) == as_text(value) for name, value in wanted.items())
        ):
            rest = tuple(change for change in changes if change[0] not in wanted)
            fits.append((not made_for, len(rest), Placed(study.name, index, rest)))
    return min(fits, key=lambda fit: fit[:2])[2] if fits else None


def differences(table: Table) -> tuple[list[str], dict[str, list[Any]]]:
    """Our columns that have runs, and the settings that two of them have and set differently."""
    ran: dict[str, dict[str, Any]] = {}
    for column in table.columns:
        cells = [row.cells[column] for row in table.rows if column in row.cells]
        runs = [run for cell in cells for run in cell.runs]
        if runs:
            ran[f"{column.heading} ({column.detail})"] = runs[0].settings
    names = differing(ran.values())
    return list(ran), {name: [each.get(name, ABSENT) for each in ran.values()] for name in names}


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
    name = study.published or study.name
    theirs = [row for row in published() if (row.table, row.metric) == (name, study.metric)]
    found: dict[Column, dict[str, Cell]] = {}  # the cells of each by task
    for index, variant in enumerate(study.variants):
        for detail, by_task in _our_columns(index, members).items():
            found[Column(variant.label, "ours", detail)] = by_task
        printed = [row for row in theirs if row.method == variant.published_method]
        if printed:
            whose: Whose = "paper" if any(row.of_paper for row in printed) else "others"
            column = Column(variant.label, whose, printed[0].method)
            found[column] = {row.task: _printed(row) for row in printed}
    shown = {variant.published_method for variant in study.variants}
    for whose in ("paper", "others"):
        rest = [row for row in theirs if row.method not in shown]
        rest = [row for row in rest if row.of_paper == (whose == "paper")]
        if rest:
            found[Column(BEST, whose, "")] = _best(study, rest)
    rows = []
    for task in study.tasks:
        cells = {column: by_task[task] for column, by_task in found.items() if task in by_task}
        rows.append(Row(task, TASK_TITLES[task], TASK_NOTES.get(task, ()), _marked(cells)))
    return Table(study, list(found), rows)


def _our_columns(
    index: int, members: Sequence[tuple[Placed, Result]]
) -> dict[str, dict[str, Cell]]:
    """A column for each preset that the variant was run with; an empty one if it was not."""
    found: dict[str, dict[str, list[Result]]] = {}
    for placed, result in members:
        if placed.variant == index and result.score is not None:
            detail = ", ".join([result.preset, *(f"{k}={v}" for k, v in placed.rest)])
            found.setdefault(detail, {}).setdefault(result.task, []).append(result)
    return {
        detail: {task: ours(runs) for task, runs in found[detail].items()}
        for detail in sorted(found)
    } or {"": {}}


def ours(runs: Sequence[Result]) -> Cell:
    values = [run.score for run in runs if run.score is not None]
    mean, std = mean_and_std(np.array(values))
    notes = []
    if any(run.regenerated for run in runs):
        notes.append(REGENERATED)
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


def _best(study: Study, rows: Sequence[Published]) -> dict[str, Cell]:
    """The highest mean on each task among those after as many steps; on datasets among all."""
    comparable = [row for row in rows if row.steps in (None, study.steps)]
    # The last of a task stays: of equals the first.
    ascending = sorted(reversed(comparable), key=lambda row: row.mean)
    return {row.task: _printed(row, row.method) for row in ascending}


def _marked(cells: dict[Column, Cell]) -> dict[Column, Cell]:
    """Each cell of a row with whether it is ahead of the other side, and whether no more than that.

    Ours are compared with the published scores of the same variant, those with the best of ours,
    and the best of other methods with the best of all of ours.
    """
    marked = dict(cells)
    for column, cell in cells.items():
        rivals = [
            other
            for beside, other in cells.items()
            if (beside.whose == "ours") != (column.whose == "ours")
            and (beside.heading == column.heading or cell.method)
        ]
        if rivals:
            rival = max(rivals, key=lambda other: other.mean)
            near = _near(cell, rival)
            marked[column] = cell._replace(ahead=cell.mean > rival.mean, near=near)
    return marked


def _near(cell: Cell, rival: Cell) -> bool:
    """Whether being ahead shows little: by the spread, or since like is not compared with like.

    One seed has no spread to go by, more steps are an advantage, and a score on a dataset that we
    regenerated is a score on another dataset.
    """
    within = abs(cell.mean - rival.mean) <= np.hypot(cell.std or 0.0, rival.std or 0.0)
    later = cell.steps and rival.steps and min(cell.steps) > max(rival.steps)
    elsewhere = any(run.regenerated for each in (cell, rival) for run in each.runs)
    return bool(within or later or elsewhere or 1 in (cell.seeds, rival.seeds))


class Aggregate(NamedTuple):
    """What statistics say of the variants of one preset, on the tasks that all of them ran."""

    detail: str
    tasks: list[str]
    labels: list[str]
    middle: list[Estimate]  # interquartile means
    thresholds: np.ndarray
    profiles: list[Estimate]
    improvement: list[list[Estimate | None]]  # [i][j]: of i over j


def aggregates(table: Table) -> list[Aggregate]:
    by_detail: dict[str, list[Column]] = {}
    for column in table.columns:
        if column.whose == "ours" and column.detail:
            by_detail.setdefault(column.detail, []).append(column)
    found = []
    for detail, columns in by_detail.items():
        shared = [row for row in table.rows if row.cells.keys() >= set(columns)]
        if shared and len(columns) > 1:
            scores = [[_normalised(row.task, row.cells[c]) for row in shared] for c in columns]
            labels, tasks = [column.heading for column in columns], [row.title for row in shared]
            found.append(_aggregate(detail, tasks, labels, scores))
    return found


def _aggregate(
    detail: str, tasks: list[str], labels: list[str], scores: list[list[np.ndarray]]
) -> Aggregate:
    """Of scores [seeds] by variant and task."""
    pooled = np.concatenate([task for each in scores for task in each])
    thresholds = np.linspace(min(0.0, pooled.min()), max(1.2, 1.05 * pooled.max()), 61)
    profile = partial(statistics.performance_profile, thresholds=thresholds)
    above = statistics.probability_of_improvement
    return Aggregate(
        detail,
        tasks,
        labels,
        [bootstrap(statistics.interquartile_mean, each) for each in scores],
        thresholds,
        [bootstrap(profile, each) for each in scores],
        [[None if x is y else bootstrap(above, x, y) for y in scores] for x in scores],
    )


def _normalised(task: str, cell: Cell) -> np.ndarray:
    """[seeds]: on MBBL's tasks 0 is a random policy and 1 its SAC, elsewhere the scale's ends."""
    low, high = (0.0, 1_000.0) if task.startswith("dmc/") else (0.0, 100.0)
    if task.startswith("mbbl/"):
        published = next(entry.scores for entry in catalogue() if entry.task == task)
        low, high = published["random"].mean, published["sac"].mean
    return (np.array([run.score for run in cell.runs], float) - low) / (high - low)
