"""The pictures: transition densities of the maze, learning curves, and times against sizes.

Figures are made as objects, never through pyplot: no display is needed and no state is shared, so
threads may draw at once.
"""

import io
import math
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from phimu.environments.rendering import snapshots
from phimu.errors import InputError
from phimu.reports import numbers
from phimu.reports.curves import Curve
from phimu.runs.files import write_atomically

FORMATS = ("png", "svg")
DOTS_PER_INCH = 140
FEW_SEEDS = 4  # below this a standard deviation says little, so the band shows the extremes
SHEET_COLUMNS = 8  # of a contact sheet
LABEL_WIDTH = 60  # characters after which a legend label goes on in a new line

GREEN, ORANGE, RED, GREY = "#1ec454", "#ff9f0a", "#e02020", "#5f6368"
# Ends before it gets dark: the markers must stand out on the highest density too.
DENSITY_COLOURS = LinearSegmentedColormap.from_list(
    "density", ["#ffffff", "#d8d2f0", "#a597e0", "#7660c9", "#4a34a4"]
)
# Okabe and Ito's palette, which the colour blind can tell apart, then again in other dashes.
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
LINE_STYLES = ("-", "--", ":", "-.")


class Panel(NamedTuple):
    """One (s, a) of the maze, and where its next position falls."""

    title: str
    position: np.ndarray  # [2], s
    target: np.ndarray  # [2], where the move ends without noise: s + a t, stopped by walls
    samples: np.ndarray  # [n, 2], draws from the environment
    true_mass: np.ndarray  # [cells, cells] by ix and iy: the probability of each; sums to about 1
    learned_mass: np.ndarray  # likewise
    total_variation: float


def heat_map(path: Path, panels: Sequence[Panel], walls: np.ndarray, size: float) -> None:
    """Figure 1: true above learned, panel by panel; `walls` [n, 4]: left, bottom, right, top."""
    figure = Figure(figsize=(max(4.4, 2.4 * len(panels) + 0.4), 5.8), layout="constrained")
    rows = figure.subplots(2, len(panels), sharex=True, sharey=True, squeeze=False)
    for (above, below), panel in zip(rows.T, panels, strict=True):
        largest = max(panel.true_mass.max(), panel.learned_mass.max(), np.finfo(float).tiny)
        # Noise that a wall stops piles up on its face; the root keeps what lies beside it visible.
        norm = PowerNorm(0.5, vmin=0.0, vmax=float(largest))
        _draw_room(above, panel, panel.true_mass, norm, walls, size)
        _draw_room(below, panel, panel.learned_mass, norm, walls, size)
        above.set_title(panel.title, fontsize=11, weight="bold")
        below.set_title(f"total variation {panel.total_variation:.2f}", fontsize=10)
    rows[0, 0].set_ylabel("true density", fontsize=11)
    rows[1, 0].set_ylabel("learned density", fontsize=11)
    legend = figure.legend(
        *rows[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=3,
        fontsize=10.5,
        frameon=False,
    )
    legend.legend_handles[-1].set(markersize=5)  # type: ignore[union-attr]  # larger than the dots
    caption = (
        "Darker is denser: within a column both maps share one colour scale, "
        "linear in the root of the density. Walls are black."
    )
    figure.supxlabel(caption, fontsize=9.5, color=GREY)
    save(figure, path)


def _draw_room(
    axes: Axes, panel: Panel, mass: np.ndarray, norm: PowerNorm, walls: np.ndarray, size: float
) -> None:
    axes.imshow(
        mass.T,  # an image has its rows along y
        origin="lower",
        extent=(0.0, size, 0.0, size),
        cmap=DENSITY_COLOURS,
        norm=norm,
        interpolation="nearest",
    )
    for left, bottom, right, top in walls.tolist():
        axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, color="black", lw=0))
    # Not clipped: a move that the outer wall stopped ends on the edge of the picture.
    draw = partial(axes.plot, ls="", clip_on=False)
    draw(*panel.position, "*", c=ORANGE, ms=13, mec="black", mew=0.6, label="position s", zorder=5)
    label = "s + a t, the move without noise"
    draw(*panel.target, "s", c=RED, ms=6.5, mec="white", mew=0.8, label=label, zorder=4)
    label = "samples of the environment"
    draw(*panel.samples.T, "o", c=GREEN, ms=2.1, mew=0, label=label, zorder=3)
    axes.set(xlim=(0.0, size), ylim=(0.0, size), aspect="equal")
    axes.set_xticks([0.0, size / 2, size])
    axes.set_yticks([0.0, size / 2, size])
    axes.tick_params(labelsize=9, length=2.5)
    for spine in axes.spines.values():
        spine.set_linewidth(1.6)


def learning_curves(path: Path, curves: Sequence[Curve], title: str) -> None:
    """The figure of them, as a file."""
    save(curves_figure(curves, title), path)


def curves_figure(curves: Sequence[Curve], title: str) -> Figure:
    """The mean over seeds of each curve, in a band that the caption explains."""
    seeds = [len(curve.values) for curve in curves]
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    for index, curve in enumerate(curves):
        turn, colour = divmod(index, len(LINE_COLOURS))
        style: Any = {"color": LINE_COLOURS[colour], "ls": LINE_STYLES[turn % len(LINE_STYLES)]}
        _draw_curve(axes, curve, style, count_seeds=len(set(seeds)) > 1)
    axes.set_xlabel(curves[0].clock, fontsize=11)
    axes.set_ylabel(curves[0].measure, fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(_in_thousands))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.tick_params(labelsize=10)
    axes.margins(x=0.01)
    with_grid(axes)
    axes.set_title(title, fontsize=13, weight="bold", loc="left", pad=22)
    beside: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "color": GREY}
    axes.annotate(_band_caption(seeds), (0, 1), xytext=(0, 7), fontsize=9.5, **beside)
    _add_legend(figure, axes)
    return figure


def _draw_curve(axes: Axes, curve: Curve, style: dict[str, Any], count_seeds: bool) -> None:
    seeds, mean = len(curve.values), curve.values.mean(axis=0)
    label = f"{curve.label} ({numbers.seeds(seeds)})" if count_seeds else curve.label
    # A single evaluation has no line: it needs a marker to be seen.
    marker = "o" if len(curve.steps) == 1 else ""
    label = textwrap.fill(label, LABEL_WIDTH)
    axes.plot(curve.steps, mean, lw=1.9, marker=marker, label=label, **style)
    if seeds >= FEW_SEEDS:
        deviation = curve.values.std(axis=0, ddof=1)
        low, high = mean - deviation, mean + deviation
    else:
        low, high = curve.values.min(axis=0), curve.values.max(axis=0)
    axes.fill_between(curve.steps, low, high, color=style["color"], alpha=0.18, lw=0)


def _band_caption(seeds: Sequence[int]) -> str:
    several = {count for count in seeds if count > 1}
    if not several:
        return "one seed each" if len(seeds) > 1 else "one seed"
    mean = f"mean of {max(several)} seeds" if len(set(seeds)) == 1 else "mean of the seeds"
    if max(several) < FEW_SEEDS:
        return f"{mean}; band: lowest to highest seed"
    if min(several) >= FEW_SEEDS:
        return f"{mean}; band: one standard deviation"
    return f"{mean}; band: one standard deviation, lowest to highest below {FEW_SEEDS} seeds"


def _in_thousands(value: float, _: object = None) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "K")):
        if abs(value) >= unit:
            return f"{value / unit:.6g}{letter}"
    return f"{value:.6g}"


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Below the axes, so that it covers no curve, in as many columns as the labels leave room."""
    labels = [label.splitlines() for label in axes.get_legend_handles_labels()[1]]
    longest = max(len(line) for label in labels for line in label)
    columns = min(len(labels), max(1, 92 // (longest + 10)))
    lines = math.ceil(sum(map(len, labels)) / columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * lines)  # the axes keep their height
    legend_below(figure, axes, columns)


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """The lines of `axes` by name, below all panels."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=10, frameon=False
    )


def with_grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """A faint grid behind the lines, and no frame above and on the right."""
    axes.grid(axis=axis, color="#dadce0", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def contact_sheet(task_ids: Sequence[str], path: Path) -> None:
    """One frame of each task, its id below it."""
    check_suffix(path)  # before the work
    frames = snapshots(task_ids)
    columns = min(len(frames), SHEET_COLUMNS)
    rows = math.ceil(len(frames) / columns)
    figure = Figure(figsize=(2.0 * columns, 1.8 * rows), layout="constrained")
    cells = figure.subplots(rows, columns, squeeze=False).flat
    for axes, task_id, frame in zip(cells, task_ids, frames, strict=False):
        axes.imshow(frame)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color="#dadce0")  # some frames are white at the edge
        axes.set_xlabel(task_id, fontsize=min(8.0, 200 / len(task_id)))  # within its column
    for axes in figure.axes[len(frames) :]:
        axes.set_axis_off()
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """In the format that the suffix names, and never half a file."""
    suffix = check_suffix(path)
    content = io.BytesIO()
    # Without the date, the same numbers give the same picture.
    metadata = {"Date": None} if suffix == "svg" else None
    figure.savefig(content, format=suffix, dpi=DOTS_PER_INCH, metadata=metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def check_suffix(path: Path) -> str:
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(f"{path} does not end in .png or .svg: give the figure one of these.")
    return suffix
