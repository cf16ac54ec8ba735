"""The same tables as Markdown and CSV, for papers."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from phimu.studies.comparison import Cell, Column, Table
from phimu.studies.report.numbers import NOT_RUN, Footnotes, score, span
from phimu.training.files import write_atomically

FIELDS = ("table", "task", "variant", "whose", "detail", "mean", "std", "seeds", "steps", "notes")


def write_text(tables: Sequence[Table], directory: Path) -> list[Path]:
    """`table1.md`, `table1.csv` and so on."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        for suffix, content in ((".md", markdown(table)), (".csv", tidy(table))):
            file = directory / f"{table.study.name}{suffix}"
            write_atomically(file, content.encode())
            written.append(file)
    return written


def markdown(table: Table) -> str:
    """In bold who is ahead by more than the spreads together."""
    notes = Footnotes()
    heads = ["task", *(_heading(column) for column in table.columns)]
    rows = [
        [
            _plain(row.title) + _marks(row.notes, notes),
            *(
                _cell(column, cell, notes)
                for column, cell in zip(table.columns, row.cells, strict=True)
            ),
        ]
        for row in table.rows
    ]
    lines = [
        f"### {table.study.title}",
        "",
        _line(heads),
        _line(["---"] + ["---:"] * len(table.columns)),
    ]
    lines += [_line(row) for row in rows]
    lines += ["", *(f"{index}. {note}" for index, note in enumerate(notes.notes, 1))]
    return "\n".join(lines).rstrip() + "\n"


def _heading(column: Column) -> str:
    detail = f" ({_plain(column.detail)})" if column.detail else ""
    return f"{column.heading}, {column.whose}{detail}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that ends no cell and starts no markup."""
    return "".join(f"\\{c}" if c in "|<>*_`[]\\" else c for c in " ".join(text.split()))


def _cell(column: Column, cell: Cell | None, notes: Footnotes) -> str:
    if cell is None:
        return NOT_RUN if column.whose == "ours" else ""
    text = score(cell)
    if cell.ahead and not cell.near:
        text = f"**{text}**"
    extra = [_plain(cell.method)] if cell.method else []
    if cell.runs and cell.steps:
        extra.append(f"{cell.seeds} × {span(*cell.steps)}")
    return text + _marks(cell.notes, notes) + (f" ({', '.join(extra)})" if extra else "")


def _marks(found: Sequence[str], notes: Footnotes) -> str:
    marks = notes.marks(found)
    return f" <sup>{', '.join(map(str, marks))}</sup>" if marks else ""


def tidy(table: Table) -> str:
    """A line for each cell; those that were not run have no mean."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows(_tidy(table))
    return text.getvalue()


def _tidy(table: Table) -> Iterator[list[str | float | int | None]]:
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            start = [table.study.name, row.task, column.heading, column.whose]
            if cell is None:
                yield [*start, column.detail, *[None] * 5]
                continue
            detail, steps = cell.method or column.detail, cell.steps and cell.steps[0]
            notes = " ".join((*row.notes, *cell.notes))
            yield [*start, detail, cell.mean, cell.std, cell.seeds, steps, notes]
