"""The same tables as Markdown and CSV, for papers."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from phimu.reports.comparison import Cell, Column, Table, tables
from phimu.reports.numbers import MAZE_SCORES, NOT_RUN, Footnotes, maze_score, score, span
from phimu.reports.rows import Result, maze_groups
from phimu.runs.files import write_atomically
from phimu.studies.tables import STUDIES

FIELDS = ("table", "task", "variant", "whose", "detail", "mean", "std", "seeds", "steps", "notes")


def write_text(results: Sequence[Result], directory: Path) -> list[Path]:
    """`table1.md`, `table1.csv` and so on; last the maze's scores."""
    texts = {table.study.name: (markdown(table), tidy(table)) for table in tables(results)}
    texts["maze"] = _maze(results)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, contents in texts.items():
        for suffix, content in zip((".md", ".csv"), contents, strict=True):
            written.append(directory / f"{name}{suffix}")
            write_atomically(written[-1], content.encode())
    return written


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---:") -> str:
    """A table with its first column on the left and the others aligned as given."""
    lines = [heads, ["---"] + [align] * (len(heads) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _maze(results: Sequence[Result]) -> tuple[str, str]:
    """As Markdown a line for each configuration, as CSV one for each run and score."""
    named = {f"{group[0].agent} ({group[0].label})": group for group in maze_groups(results)}
    rows = [
        [run.agent, run.label, run.seed, name, run.maze[name]]
        for group in named.values()
        for run in group
        for name in MAZE_SCORES
        if name in run.maze
    ]
    text = f"### {STUDIES['maze'].title}\n\n{maze_grid('configuration', named)}"
    return text, csv_text(("agent", "configuration", "seed", "score", "value"), rows)


def maze_grid(head: str, named: dict[str, list[Result]]) -> str:
    """Means and standard deviations over the seeds of each."""
    rows = [
        [plain(name), *(maze_score(runs, each) for each in MAZE_SCORES), str(len(runs))]
        for name, runs in named.items()
    ]
    return grid([head, *map(plain, MAZE_SCORES.values()), "seeds"], rows)


def markdown(table: Table) -> str:
    """In bold who is ahead by more than the spreads together, where like is compared with like."""
    notes = Footnotes()
    heads, rows = ["task"], []
    for column in table.columns:
        detail = f" ({plain(column.detail)})" if column.detail else ""
        heads.append(f"{column.heading}, {column.whose}{detail}")
    for row in table.rows:
        start = plain(row.title) + _marks(row.notes, notes)
        cells = [_cell(column, row.cells.get(column), notes) for column in table.columns]
        rows.append([start, *cells])
    below = "".join(f"{index}. {plain(note)}\n" for index, note in enumerate(notes.notes, 1))
    return f"### {table.study.title}\n\n{grid(heads, rows)}" + (f"\n{below}" if below else "")


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
    lines: list[list[object]] = []
    for row in table.rows:
        for column in table.columns:
            cell = row.cells.get(column)
            start = [table.study.name, row.task, column.heading, column.whose]
            if cell is None:
                lines.append([*start, column.detail, *[None] * 5])
                continue
            detail, steps = cell.method or column.detail, cell.steps and cell.steps[0]
            notes = " ".join((*row.notes, *cell.notes))
            lines.append([*start, detail, cell.mean, cell.std, cell.seeds, steps, notes])
    return csv_text(FIELDS, lines)


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *rows])
    return text.getvalue()
