"""`phimu plot` and `phimu report`: runs as curves, and beside what was published."""

from pathlib import Path
from typing import Annotated

import tyro

from phimu.cli.arguments import command
from phimu.errors import InputError
from phimu.reports.curves import EVALUATION, curves_of_runs
from phimu.reports.figures import learning_curves
from phimu.reports.fill import fill as fill_tables
from phimu.reports.markdown import write_text
from phimu.reports.page import page
from phimu.reports.rows import gather
from phimu.runs.files import write_atomically


@command("phimu plot")
def plot(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    out: Path = Path("curves.png"),
    metric: str = EVALUATION,
) -> None:
    """Draw learning curves: one picture per task, seeds of a configuration as one band.

    Args:
        runs: run directories, or directories above them.
        out: a .png or .svg; with several tasks, the task is added to the name.
        metric: evaluation, return (of the training episodes) or another number of metrics.jsonl.
    """
    groups = curves_of_runs(runs, metric)
    for task, curves in groups:
        path = out
        if len(groups) > 1:
            path = out.with_stem(f"{out.stem}-{task.replace('/', '-')}")
        learning_curves(path, curves, task)
        print(path)


@command("phimu report")
def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    text: Path | None = None,
    fill: tuple[Path, ...] = (),
) -> None:
    """Make one page of all runs: tables beside the paper's and others' scores, curves, each run.

    It opens from disk, without a network.

    Args:
        runs: run directories, or directories above them, such as results.
        out: the page, a .html.
        text: also write the tables into this directory, as Markdown and as CSV.
        fill: also rewrite the tables in these Markdown files, each between a marker such as
            <!-- table: table1 preset=small --> and <!-- end -->.
    """
    if out.suffix != ".html":
        raise InputError(f"out is {out}: give a name that ends in .html.")
    if not out.parent.is_dir():
        raise InputError(f"There is no directory {out.parent} for the report: make it first.")
    results = gather(runs)
    write_atomically(out, page(results, out).encode())
    print(out)
    if text is not None:
        for file in write_text(results, text):
            print(file)
    fill_tables(fill, results)
    for file in fill:
        print(file)
