"""Result tables in Markdown files, rewritten between their markers from the runs.

    <!-- table: table1 preset=small -->
    <!-- end -->

`table1` and so on are the paper's tables, our scores under one preset beside the paper's; `data=`
names a JSON of regenerated datasets, whose own scores become a column, `columns=` those of our
variants that are wanted, by their labels and with commas between them. `maze` has the maze's
scores, `evaluations` every evaluation of the runs of a `study=` or a `task=`, `ablation` every
variant of a `study=` on a `task=` `at=` a step, with intervals, `duels` who is ahead on equal
terms, and `said` the same in sentences.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from phimu.errors import InputError
from phimu.reports.ablation import ablation_grid
from phimu.reports.comparison import BEST, Cell, Column, order, place, tables
from phimu.reports.duels import duel_grid, duels, sentences
from phimu.reports.markdown import grid, maze_grid, plain
from phimu.reports.numbers import NOT_RUN, brief, score, span, thousands
from phimu.reports.rows import Result, configurations
from phimu.runs.files import write_atomically
from phimu.studies.plan import under
from phimu.studies.tables import STUDIES, TASK_TITLES

OPENING = "<!-- table:"
# No table holds another's opening: a lost end must not swallow the text up to the next one.
MARKED = re.compile(rf"({OPENING} ([^\n]+?) -->\n)((?!{OPENING}).)*?(?=<!-- end -->)", re.DOTALL)
OPTIONS = {name: {"preset", "data", "columns"} for name in STUDIES} | {
    "maze": set(),
    "duels": set(),
    "said": set(),
    "evaluations": {"study", "task"},
    "ablation": {"study", "task", "at"},
}


def fill(files: Sequence[Path], results: Sequence[Result]) -> None:
    """Rewrite the tables in these files; if one of them cannot be, then none."""
    texts = {file: filled(file, results) for file in files}
    for file, text in texts.items():
        write_atomically(file, text.encode())


def filled(file: Path, results: Sequence[Result]) -> str:
    """The text of a Markdown file with its tables as these runs give them."""
    if not file.is_file():
        raise InputError(f"There is no {file} to fill: name a Markdown file with tables.")
    text = file.read_text(encoding="utf-8")
    if text.count(OPENING) != len(MARKED.findall(text)):
        raise InputError(
            f"{file} has a table that is not filled: put its marker on a line of its own, and "
            "<!-- end --> below it."
        )
    return MARKED.sub(lambda found: found[1] + _asked(found[2], results, file), text)


def _asked(marker: str, results: Sequence[Result], file: Path) -> str:
    name, *words = marker.split()
    options = dict(word.partition("=")[::2] for word in words)
    if name not in OPTIONS or not options.keys() <= OPTIONS[name]:
        known = "; ".join(" ".join([table, *sorted(OPTIONS[table])]) for table in OPTIONS)
        raise InputError(f"{file} asks for the table {marker!r}: there are {known}.")
    if name == "maze":
        return _maze(results)
    if name == "duels":
        return duel_grid(duels(results))
    if name == "said":
        return "".join(f"- {plain(sentence)}\n" for sentence in sentences(duels(results)))
    if name == "evaluations":
        return _evaluations(results, **options)
    if name == "ablation":
        return _ablation(results, file, **options)
    own = _scores_of_data(file.parent / options["data"]) if "data" in options else {}
    wanted = options["columns"].split(",") if "columns" in options else []
    labels = {variant.label for variant in STUDIES[name].variants}
    if not set(wanted) <= labels:
        raise InputError(
            f"{file} asks for columns={options['columns']}: {name} has {', '.join(sorted(labels))}."
        )
    return _study(name, results, options.get("preset", STUDIES[name].preset), own, wanted)


def _ablation(
    results: Sequence[Result], file: Path, study: str = "", task: str = "", at: str = ""
) -> str:
    if study not in STUDIES or task not in STUDIES[study].tasks or not at.isdecimal():
        raise InputError(
            f"{file} asks for the ablation study={study} task={task} at={at}: name a study, one of "
            "its tasks and a step."
        )
    return ablation_grid(STUDIES[study], task, int(at), results)


def _study(
    name: str, results: Sequence[Result], preset: str, own: dict[str, str], wanted: Sequence[str]
) -> str:
    """Ours under one preset, and in the last column what the paper has for the same variants."""
    (table,) = [table for table in tables(results) if table.study.name == name]
    study = table.study
    variants = study.variants if preset == study.preset else under(study, preset).variants
    variants = tuple(each for each in variants if not wanted or each.label in wanted)
    labels = [variant.label for variant in variants]
    own_columns = [Column(each.label, "ours", each.preset or preset) for each in variants]
    paper = [each for each in table.columns if each.whose == "paper" and each.heading != BEST]
    if wanted:
        methods = {each.published_method for each in variants}
        paper = [column for column in paper if column.detail in methods]
    printed = f"the paper's {', '.join(column.detail for column in paper)}"
    rows, absent = [], []
    for row in table.rows:
        ours = [row.cells.get(column) for column in own_columns]
        runs = [run for cell in ours if cell is not None for run in cell.runs]
        if not runs:
            absent.append(row.title)
            continue
        theirs = ", ".join(brief(row.cells[each].mean) for each in paper if each in row.cells)
        data = sorted({own.get(run.dataset or "", "not recorded") for run in runs})
        beside = [", ".join(data)] if own else []
        rows.append([_title(runs[0]), *beside, *map(_cell, ours), theirs])
    heads = ["task", *(["the data itself"] if own else []), *labels, printed]
    return grid(heads, rows) + (f"\nNot run: {', '.join(absent)}.\n" if absent else "")


def _title(run: Result) -> str:
    """Not the paper's title where it names a version of D4RL: the data may be regenerated."""
    return plain(run.task if run.offline else TASK_TITLES.get(run.task, run.task))


def _cell(cell: Cell | None) -> str:
    """`168.5 ± 8.2 (3 × 20K)`, in brackets how many seeds and steps."""
    if cell is None or cell.steps is None:
        return NOT_RUN
    return f"{score(cell, brief)} ({cell.seeds} × {span(*cell.steps)})"


def _scores_of_data(file: Path) -> dict[str, str]:
    """D4RL's score of each regenerated dataset, by the sha256 of its file."""
    try:
        sets: dict[str, Any] = json.loads(file.read_bytes())["sets"]
        return {each["sha256"]: brief(float(each["score"])) for each in sets.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} does not hold scores of datasets: {error!r}.") from error


def _maze(results: Sequence[Result]) -> str:
    study = STUDIES["maze"]
    named = {}
    for index, variant in enumerate(study.variants):
        scored = [run for run in results if run.maze and ("maze", index, ()) in place(run)]
        preset = variant.preset or study.preset
        named[variant.label] = [run for run in scored if run.preset == preset]
    return maze_grid("variant", named)


def _evaluations(results: Sequence[Result], study: str = "", task: str = "") -> str:
    """A line for each configuration, a column for each seed."""
    chosen = [run for run in sorted(results, key=order) if len(run.steps)]
    if study:
        chosen = [run for run in chosen if study in {placed.study for placed in place(run)}]
    if task:
        chosen = [run for run in chosen if run.task == task]
    seeds, rows = sorted({run.seed for run in chosen}), []
    for group in configurations(chosen):
        cells = {run.seed: ", ".join(map(brief, run.values)) for run in group}
        agent = plain(f"{group[0].agent} ({group[0].label})")
        shown = [cells.get(seed, NOT_RUN) for seed in seeds]
        apart = {int(step) for run in group for step in np.diff(run.steps, prepend=0)}
        every = thousands(apart.pop()) if len(apart) == 1 else "uneven"
        rows.append([_title(group[0]), agent, every, *shown])
    heads = ["task", "agent", "evaluated every", *(f"seed {seed}" for seed in seeds)]
    return grid(heads, rows, align="---")
