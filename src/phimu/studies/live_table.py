"""How far a study is: one live table on a terminal, a line for each change elsewhere."""

import time
from collections import Counter
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from phimu.runs.progress import duration, number
from phimu.studies.runner import ACTIVE, Job, Status

REFRESH_SECONDS = 1.0  # of the live table
PLAIN_SECONDS = 60.0  # between plain lines where nothing changes
ORDER: tuple[Status, ...] = ("failed", *ACTIVE, "done")
STYLES = {"failed": "red", "running": "cyan", "done": "green"}
MARGIN = 4  # lines of a terminal that are not rows: the summary, the titles, what is left out


class LiveTable:
    """Shows all jobs: those that need a look first, and as many as the terminal has room for."""

    def __init__(self, title: str, console: Console | None = None):
        self._title = title
        self._console = console or Console()
        self._live: Live | None = None
        self._jobs: list[Job] = []
        self._known: dict[int, Status] = {}
        self._shown_at = 0.0
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._draw(self._live)
            self._live.stop()

    def show(self, jobs: list[Job]) -> None:
        """Cheap enough to be called all the time."""
        self._jobs = jobs
        if not self._live:
            self._show_changes(jobs)
        elif time.monotonic() - self._shown_at >= REFRESH_SECONDS:
            self._draw(self._live)

    def _draw(self, live: Live) -> None:
        rows = max(1, self._console.height - MARGIN)
        live.update(table(self._title, self._jobs, rows), refresh=True)
        self._shown_at = time.monotonic()

    def _show_changes(self, jobs: list[Job]) -> None:
        first, now = not self._known, time.monotonic()
        changed = [job for job in jobs if self._known.get(job.run.number) != job.status]
        self._known |= {job.run.number: job.status for job in jobs}
        for job in [] if first else changed:
            parts = [job.run.name, job.status, _result(job), job.why]
            self._say("  ".join(part for part in parts if part))
        if first or now - self._shown_at >= PLAIN_SECONDS:
            self._say(f"{self._title}: {summary(jobs)}")

    def _say(self, text: str) -> None:
        print(text, file=self._console.file, flush=True)
        self._shown_at = time.monotonic()


def summary(jobs: list[Job]) -> str:
    """`3 of 12 done, 2 running, 7 waiting, left 1:02:03`."""
    counts = Counter(job.status for job in jobs)
    parts = [f"{counts.pop('done', 0)} of {len(jobs)} done"]
    parts += [f"{counts[status]} {status}" for status in ORDER if counts[status]]
    rate = sum(job.rate for job in jobs)
    if rate:
        left = sum(job.left for job in jobs if job.status != "failed")
        parts.append(f"left {duration(left / rate)}")
    return ", ".join(parts)


def table(title: str, jobs: list[Job], rows: int) -> Group:
    shown = Table("run", "task", "agent", "seed", "status", box=None, pad_edge=False)
    for name in ("step", "steps/s", "left", "evaluation"):
        shown.add_column(name, justify="right", no_wrap=True)
    ordered = sorted(jobs, key=lambda job: (ORDER.index(job.status), job.run.number))
    for job in ordered[:rows]:
        rate, run = job.rate, job.run
        shown.add_row(
            *(str(run.number), run.task, run.label, str(run.seed)),
            Text(" ".join(filter(None, [job.status, job.why])), STYLES.get(job.status, "")),
            f"{job.step:,}/{run.steps:,}",
            number(rate) if rate else "",
            duration(job.left / rate) if rate else "",
            _result(job),
        )
    more = len(jobs) - rows
    last = [Text(f"and {more} more", "dim")] if more > 0 else []
    return Group(Text(f"{title}: {summary(jobs)}", "bold"), shown, *last)


def _result(job: Job) -> str:
    return "" if job.result is None else number(job.result)
