"""How far a run is: one live line on a terminal, now and then a plain line elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self, SupportsFloat

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

REFRESH_SECONDS = 0.2  # of the live line
PLAIN_SECONDS = 10.0  # between plain lines
WINDOW_SECONDS = 30.0  # over which speed is measured


class Stretch(NamedTuple):
    """A part of a run that has a speed of its own: the warm-up, a phase on logged data."""

    name: str = ""
    end: int | None = None  # the step that it ends at; None: as far as the run goes


WHOLE = Stretch()


class Progress:
    """Shows step, speed, time left and the latest value of each metric, on standard output.

    Speed and metrics are of the present stretch. Before the last one only its own end is foreseen.
    """

    def __init__(
        self,
        total_steps: int,
        start_step: int,
        quiet: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total = total_steps
        self._step = start_step
        self._quiet = quiet
        self._console = console or Console()
        self._clock = clock
        self._stretch: Stretch | None = None
        self._values: dict[str, SupportsFloat] = {}
        self._history = deque([(clock(), start_step)])
        self._shown_at = clock()
        self._shown_step = start_step
        self._bar: Bar | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal and not quiet:
            text = TextColumn("{task.description}", table_column=Column(no_wrap=True), markup=False)
            # No refresh thread: `update` is called often enough.
            self._bar = Bar(BarColumn(20), text, console=self._console, auto_refresh=False)
            self._bar.add_task("", total=total_steps, completed=start_step)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._step != self._shown_step:
            self._show(self._clock())
        if self._bar:
            self._bar.stop()

    def update(
        self,
        step: int,
        values: Mapping[str, SupportsFloat],
        evaluation: bool = False,
        stretch: Stretch = WHOLE,
    ) -> None:
        """Cheap: values become numbers only when shown. An evaluation is shown at once."""
        now = self._clock()
        if self._stretch not in (None, stretch):
            # Anew after its first step, which compiles.
            self._history = deque([(now, step)])
            self._values.clear()
        self._stretch = stretch
        self._step = step
        self._values.update(values)
        waited = now - self._shown_at
        if evaluation or waited >= (REFRESH_SECONDS if self._bar else PLAIN_SECONDS):
            self._show(now)

    def line(self, text: str) -> None:
        """A message; on a terminal it stands above the bar."""
        if self._quiet:
            return
        if self._bar:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._console.file, flush=True)

    def _show(self, now: float) -> None:
        self._shown_at, self._shown_step = now, self._step
        self._history.append((now, self._step))
        while len(self._history) > 2 and self._history[1][0] <= now - WINDOW_SECONDS:
            self._history.popleft()
        if self._bar:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=self._step, description=self._text(), refresh=True)
        else:
            self.line(self._text())

    def _text(self) -> str:
        (first_time, first_step), (last_time, last_step) = self._history[0], self._history[-1]
        elapsed, steps = last_time - first_time, last_step - first_step
        rate = steps / elapsed if elapsed > 0 else 0.0
        stretch = self._stretch or WHOLE
        end = min(self._total, stretch.end or self._total)
        left = duration((end - last_step) / rate) if rate > 0 else "?"
        parts = [
            f"step {last_step:,}/{self._total:,}",
            f"{rate:,.0f} steps/s" if rate >= 10 else f"{rate:.2g} steps/s",
            f"{stretch.name} left {left}".lstrip(),
        ]
        return "  ".join(parts + [f"{name} {number(x)}" for name, x in self._values.items()])


def number(value: SupportsFloat) -> str:
    """A metric in few characters: about three significant digits, thousands grouped."""
    value = float(value)
    if 1_000 <= abs(value) < 1_000_000:
        return f"{value:,.0f}"
    if 100 <= abs(value) < 1_000:
        return f"{value:.1f}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """`0:19`, `12:05`, `1:02:03`: minutes and seconds, with hours where there are any."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
