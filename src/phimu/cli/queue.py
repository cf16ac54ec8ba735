"""`phimu queue FILE`: studies one after the other, for a machine that is left alone."""

import shlex
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from phimu.cli.arguments import command, parse
from phimu.cli.study import NO_BENCH, choose
from phimu.errors import InputError, at_least
from phimu.runs.files import write_atomically
from phimu.runs.stopping import Stop, stop_requests
from phimu.studies.cost import Bench, read_bench
from phimu.studies.keeping import keeper
from phimu.studies.live_table import LiveTable
from phimu.studies.plan import Run, try_tasks
from phimu.studies.processes import Process
from phimu.studies.queue_page import queue_page
from phimu.studies.runner import Job, carry_out

PAGE_SECONDS = 30.0  # between two looks at all runs for the page

FILE = tyro.conf.arg(
    metavar="FILE", help="a line per study, in order: the arguments of phimu study"
)


class Line(NamedTuple):
    """One study of the queue."""

    text: str
    name: str
    runs: list[Run]


class Page:
    """Where each study of a queue is, in a file that others may read at any time."""

    def __init__(self, lines: list[Line], file: Path | None, speeds: Bench | None, workers: int):
        self._lines, self._file, self._speeds, self._workers = lines, file, speeds, workers
        self._jobs: dict[str, list[Job]] = {}
        self._written = 0.0

    def text(self) -> str:
        found = {
            x.text: self._jobs.get(x.text) or [Job(run) for run in x.runs] for x in self._lines
        }
        return queue_page(found, self._speeds, self._workers)

    def show(self, line: Line, jobs: list[Job]) -> None:
        """Cheap enough to be called all the time."""
        self._jobs[line.text] = jobs
        if time.monotonic() - self._written >= PAGE_SECONDS:
            self.write()

    def write(self) -> None:
        if self._file is not None:
            write_atomically(self._file, self.text().encode())
        self._written = time.monotonic()


@command("phimu queue", tyro.conf.FlagCreatePairsOff)
def main(
    file: Annotated[Path, tyro.conf.Positional, FILE],
    runs: Path = Path("runs"),
    data: Path = Path("data"),
    keep: Path = Path("results"),
    page: Path | None = None,
    workers: int = 1,
    bench: Path | None = None,
    dry_run: bool = False,
) -> None:
    """Carry out studies in order; kill it as you like, re-running the command goes on.

    What is finished is skipped and what was interrupted resumed, so the command may stand in a
    crontab's @reboot. A study of which runs fail does not keep the next ones from being run.

    Args:
        file: a line per study, in order: the arguments of phimu study.
        runs: where run directories go.
        data: where the files of datasets are, such as hopper_medium.hdf5.
        keep: where the small text of each finished run is copied to, for `phimu report`.
        page: a Markdown file of what is running, done and left, kept up to date.
        workers: how many runs at a time.
        bench: what `phimu bench --json FILE` wrote, to estimate times; by default the last here.
        dry_run: print that page and do nothing.
    """
    at_least(1, workers=workers)
    lines = read_lines(file, data, runs)
    speeds = read_bench(bench)
    pages = Page(lines, page, speeds, workers)
    if dry_run:
        print(pages.text() if speeds else f"{pages.text()}\n{NO_BENCH}")
        return
    failed: list[str] = []
    with stop_requests() as stop:
        for line in lines:
            try:
                jobs = _carry_out(line, keep, pages, workers, stop)
                failed += [f"{job.run.name}: {job.why}" for job in jobs if job.status == "failed"]
            except InputError as error:  # nothing of it can be run here
                failed.append(f"{line.text}: {error}")
    pages.write()
    if failed:
        raise InputError(f"{len(failed)} did not come to an end, the first is {failed[0]}")


def read_lines(file: Path, data: Path, runs: Path) -> list[Line]:
    """The studies of a file, each checked before the first begins; # begins a comment."""
    try:
        written = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as a queue ({error}): give a text file.") from None
    lines = []
    for number, text in enumerate(written, start=1):
        try:
            words = shlex.split(text, comments=True)
            if words:
                chosen = parse(choose, words, prog="phimu study")
                lines.append(Line(shlex.join(words), chosen.study.name, chosen.runs(data, runs)))
        except (InputError, ValueError) as error:
            raise InputError(f"Line {number} of {file}: {error}") from None
    if not lines:
        raise InputError(f"{file} has no study: write a line such as table1 --preset small.")
    return lines


def _carry_out(line: Line, keep: Path, pages: Page, workers: int, stop: Stop) -> list[Job]:
    try_tasks(line.runs)
    kept = keeper(line.name, keep)
    with LiveTable(line.text) as live:

        def show(jobs: list[Job]) -> None:
            live.show(jobs)
            kept(jobs)
            pages.show(line, jobs)

        return carry_out(line.runs, Process, lambda: workers, show, stop)
