"""The same tables as Markdown and CSV, for papers."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from phimu.reports.comparison import Cell, Column, Table, tables
from phimu.reports.numbers import NOT_RUN, Footnotes, maze_score, score, span
from phimu.reports.page.maze import SCORES, maze_groups
from phimu.reports.rows import Result
from phimu.runs.files import write_atomically
from phimu.studies.tables import STUDIES

FIELDS = ("table", "task", "variant", "whose", "detail", "mean", "std", "seeds", "steps", "notes")


def write_text(results: Sequence[Result], directory: Path) -> list[Path]:
    """`table1.md`, `table1.csv` and so on; last the maze's scores."""
    texts = {table.study.name: (markdown(table), tidy(table)) for table in tables(results)}
    texts["maze"] = maze_markdown(results), maze_tidy(results)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, contents in texts.items():
        for suffix, content in zip((".md", ".csv"), contents, strict=True):
            file = directory / f"{name}{suffix}"
            write_atomically(file, content.encode())
            written.append(file)
    return written


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---:") -> str:
    """A table with its first column on the left and the others aligned as given."""
    lines = [heads, ["---"] + [align] * (len(heads) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def maze_markdown(results: Sequence[Result]) -> str:
    """A line for each configuration: means and standard deviations over seeds."""
    named = {f"{group[0].agent} ({group[0].label})": group for group in maze_groups(results)}
    return f"### {STUDIES['maze'].title}\n\n{maze_grid('configuration', named)}"


def maze_grid(head: str, named: dict[str, list[Result]]) -> str:
    heads = [head, *(plain(heading) for heading in SCORES.values()), "seeds"]
    return grid(
        heads,
        (
            [plain(name), *(maze_score(runs, each) for each in SCORES), str(len(runs))]
            for name, runs in named.items()
        ),
    )


def maze_tidy(results: Sequence[Result]) -> str:
    """A line for each run and score."""
    return csv_text(
        ("agent", "configuration", "seed", "score", "value"),
        (
            [run.agent, run.label, run.seed, score, run.maze[score]]
            for group in maze_groups(results)
            for run in group
            for score in SCORES
            if score in run.maze
        ),
    )


def markdown(table: Table) -> str:
    """In bold who is ahead by more than the spreads together."""
    notes = Footnotes()
    heads = ["task", *(_heading(column) for column in table.columns)]
    rows = []
    for row in table.rows:
        start = plain(row.title) + _marks(row.notes, notes)
        beside = zip(table.columns, row.cells, strict=True)
        rows.append([start, *(_cell(column, cell, notes) for column, cell in beside)])
    below = "".join(f"{index}. {plain(note)}\n" for index, note in enumerate(notes.notes, 1))
    return f"### {table.study.title}\n\n{grid(heads, rows)}" + (f"\n{below}" if below else "")


def _heading(column: Column) -> str:
    detail = f" ({plain(column.detail)})" if column.detail else ""
    return f"{column.heading}, {column.whose}{detail}"


def plain(text: str) -> str:
    """Text that ends no cell and starts no markup."""
    return "".join(f"\\{c}" if c in "|<>*_`[]\\" else c for c in " ".join(text.split()))


def _cell(column: Column, cell: Cell | None, notes: Footnotes) -> str:
    if cell is None:
        return NOT_RUN if column.whose == "ours" else ""
    text = score(cell)
    if cell.ahead and not cell.near:
        text = f"**{text}**"
    extra = [plain(cell.method)] if cell.method else []
    if cell.runs and cell.steps:
        extra.append(f"{cell.seeds} × {span(*cell.steps)}")
    return text + _marks(cell.notes, notes) + (f" ({', '.join(extra)})" if extra else "")


def _marks(found: Sequence[str], notes: Footnotes) -> str:
    marks = notes.marks(found)
    return f" <sup>{', '.join(map(str, marks))}</sup>" if marks else ""


def tidy(table: Table) -> str:
    """A line for each cell; those that were not run have no mean."""
    return csv_text(FIELDS, _tidy(table))


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *rows])
    return text.getvalue()


def _tidy(table: Table) -> Iterator[Sequence[object]]:
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            start = [table.study.name, row.task, column.heading, column.whose]
            if cell is None:
                yield [*start, column.detail, *[None] * 5]
                continue
            detail, steps = cell.method or column.detail, cell.steps and cell.steps[0]
            notes = " ".join((*row.notes, *cell.notes))
            yield [*start, detail, cell.mean, cell.std, cell.seeds, steps, notes]
