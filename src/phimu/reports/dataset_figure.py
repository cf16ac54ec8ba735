"""A dataset at a glance: returns, lengths, rewards and actions."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from phimu.data.logged import LoggedDataset
from phimu.data.sets.scores import normalised_score
from phimu.reports.dataset import episode_returns
from phimu.reports.figures import DENSITY_COLOURS, GREY, LINE_COLOURS, save, with_grid

BINS = 50


def dataset_figure(path: Path, logged: LoggedDataset) -> None:
    columns = logged.transitions
    returns, lengths = episode_returns(logged), np.bincount(columns.episode)
    figure = Figure(figsize=(9.6, 6.6), layout="constrained")
    (above_left, above_right), (below_left, below_right) = figure.subplots(2, 2)
    _histogram(above_left, returns, "return of an episode", "episodes")
    _add_scores(above_left, logged)
    _histogram(above_right, lengths, "steps of an episode", "episodes", whole=True)
    _histogram(below_left, columns.reward, "reward", "transitions")
    _draw_actions(below_right, columns.action)
    figure.suptitle(
        f"{logged.name}: {len(logged):,} transitions in {len(lengths):,} episodes, of which "
        f"{int(columns.terminated.sum()):,} terminated",
        fontsize=12,
        weight="bold",
    )
    save(figure, path)


def _histogram(
    axes: Axes, values: np.ndarray, what: str, counted: str, whole: bool = False
) -> None:
    """With the mean and the median marked, which a long tail pulls apart."""
    values = values.astype(np.float64)
    low, high = values.min(), values.max()
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = np.linspace(low, high, BINS + 1)
    if whole and high - low < BINS:
        bins = np.arange(np.ceil(low), high + 2) - 0.5  # a bin per number
    axes.hist(values, bins, color=LINE_COLOURS[0], alpha=0.85, lw=0)  # type: ignore[arg-type]
    mean, median = values.mean(), np.median(values)
    axes.axvline(mean, color=LINE_COLOURS[1], lw=1.7)
    axes.axvline(median, color="black", ls=":", lw=1.7)
    axes.set_title(f"mean {mean:,.4g} (line), median {median:,.4g} (dots)", fontsize=10)
    axes.set_xlabel(what, fontsize=11)
    axes.set_ylabel(counted, fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.tick_params(labelsize=9.5)
    with_grid(axes, "y")


def _add_scores(axes: Axes, logged: LoggedDataset) -> None:
    """D4RL's scale above the axis of returns, where there is one."""
    zero, one = (normalised_score(logged.task or logged.name, value) for value in (0.0, 1.0))
    if zero is None or one is None:
        return
    start, slope = zero, one - zero
    both_ways = lambda value: start + slope * value, lambda value: (value - start) / slope
    scores = axes.secondary_xaxis("top", functions=both_ways)
    scores.set_xlabel("D4RL's score: 0 random, 100 expert", fontsize=9, color=GREY)
    scores.tick_params(labelsize=9, colors=GREY)
    scores.spines["top"].set_color(GREY)


def _draw_actions(axes: Axes, action: np.ndarray) -> None:
    """A strip per column of the actions, each with its own histogram as shades."""
    dims = action.shape[1]
    counts = np.stack([np.histogram(column, BINS, (-1.0, 1.0))[0] for column in action.T])
    image = axes.imshow(
        counts / len(action),
        aspect="auto",
        extent=(-1.0, 1.0, dims - 0.5, -0.5),
        cmap=DENSITY_COLOURS,
        # Actions pile up at their limits; the root keeps what lies between visible.
        norm=PowerNorm(0.5, vmin=0.0, vmax=max(counts.max() / len(action), 4 / BINS)),
        interpolation="nearest",
    )
    axes.hlines(np.arange(dims - 1) + 0.5, -1, 1, color="white", lw=1.5)
    axes.set_title("a histogram per column, as shades", fontsize=10)
    axes.set_xlabel("action", fontsize=11)
    axes.set_ylabel("column", fontsize=11)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.set_yticks(range(0, dims, math.ceil(dims / 12)))
    axes.tick_params(labelsize=9.5)
    bar = axes.get_figure().colorbar(image, ax=axes, pad=0.02)  # type: ignore[union-attr]
    bar.set_label(f"share of transitions per {2 / BINS:g}", fontsize=9.5)
    bar.ax.tick_params(labelsize=9)
