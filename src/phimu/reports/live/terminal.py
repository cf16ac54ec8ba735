"""A frame of `phimu watch`: a panel per run, side by side as far as the terminal is wide."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from phimu.reports.live.braille import Canvas, sparkline
from phimu.reports.live.watched import EVALUATION, Series, Watched, names
from phimu.runs.progress import duration, number

PANEL_WIDTH = 46  # at least; two go side by side from twice that on
PLOT_HEIGHT = 6  # lines
LOSSES = 2  # lines below the plot
STYLES = {EVALUATION: "bold cyan", "return": "yellow"}
STATES = {"training": "green", "finished": "cyan", "stopped": "red", "waiting": "dim"}
LABEL = 9  # characters left of the plot


def frame(runs: Sequence[Watched], width: int, height: int) -> RenderableType:
    """As many runs as there is room for; those that are at work first."""
    columns = max(1, min(len(runs), width // PANEL_WIDTH))
    rows = max(1, (height - 1) // (PLOT_HEIGHT + LOSSES + 4))
    order = sorted(zip(names(runs), runs, strict=True), key=lambda x: x[1].run.state != "training")
    shown, left = order[: columns * rows], len(order) - columns * rows
    grid = Table.grid(expand=True)
    for _ in range(columns):
        grid.add_column(ratio=1)
    panels = [panel(name, each, width // columns) for name, each in shown]
    for start in range(0, len(panels), columns):
        grid.add_row(*panels[start : start + columns])
    more = [Text(f"and {left} more: enlarge the window, or name fewer", "dim", no_wrap=True)]
    return Group(grid, *(more if left > 0 else []))


def panel(name: str, watched: Watched, width: int) -> Panel:
    """Where a run is, the plot of its returns, a line per loss."""
    series, inner = watched.series(), width - 4
    lines: list[RenderableType] = [_progress(watched)]
    lines += _plot({k: series[k] for k in STYLES if k in series}, inner)
    for loss in watched.losses()[:LOSSES]:
        values = series[loss].values if loss in series else []
        label = f"{loss:<16.16}{number(values[-1]) if values else '':>9} "
        lines.append(Text(label + sparkline(values, max(1, inner - len(label))), no_wrap=True))
    return Panel(Group(*lines), title=Text(name, "bold"), title_align="left")


def _progress(watched: Watched) -> Text:
    run = watched.run
    steps = f"{run.step:,}" if run.steps is None else f"{run.step:,}/{run.steps:,}"
    text = Text.assemble((run.state, STATES[run.state]), f"  step {steps}", no_wrap=True)
    if run.rate:
        text.append(f"  {number(run.rate)} steps/s")
    if run.left is not None:
        text.append(f"  left {duration(run.left)}")
    return text


def _plot(series: dict[str, Series], width: int) -> list[RenderableType]:
    """On one scale; a line above says what each colour is, and its latest value."""
    if not series:
        return [Text("no episode has ended yet", "dim")]
    title = Text(no_wrap=True)
    for name, each in series.items():
        word = "training" if name == "return" else name
        title.append(f"━ {word} {number(each.values[-1])}  ", STYLES[name])
    values = [value for each in series.values() for value in each.values]
    low, high = min(values), max(values)
    last = max(each.steps[-1] for each in series.values())
    canvas = Canvas(max(1, width - LABEL - 1), PLOT_HEIGHT)
    for name, each in reversed(series.items()):  # the evaluations above the rest
        points = [
            (step / last if last else 0.0, (value - low) / (high - low) if high > low else 0.5)
            for step, value in zip(each.steps, each.values, strict=True)
        ]
        canvas.line(points, STYLES[name])
    labels = [number(high), *[""] * (PLOT_HEIGHT - 2), number(low)]
    rows = zip(labels, canvas.rows(), strict=True)
    return [title, *(Text(f"{label:>{LABEL}} ", "dim").append_text(row) for label, row in rows)]
