"""The rows of `scaling` in words and as a picture."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from phimu.finite.experiments.scaling import EXPONENTS, Row
from phimu.finite.experiments.statistics import interval, slope
from phimu.reports.figures import GREY, LINE_COLOURS, legend_below, with_grid


def taken(rows: Sequence[Row], varied: str) -> tuple[np.ndarray, np.ndarray]:
    """Sizes [sizes] that every seed reached epsilon at, and the samples [seeds, sizes]."""
    chosen = [row for row in rows if row.varied == varied]
    sizes = sorted({row.size for row in chosen})
    by_size = [[row.samples for row in chosen if row.size == size] for size in sizes]
    full = [place for place, samples in enumerate(by_size) if all(samples)]
    return np.array(sizes)[full], np.array([by_size[place] for place in full]).T


def power(rows: Sequence[Row], varied: str) -> tuple[float, float, float]:
    """The power of the size that fits the mean samples, and its 95 % interval over seeds."""
    sizes, samples = taken(rows, varied)

    def fitted(values: np.ndarray) -> float:
        return slope(sizes, values.mean(axis=0))

    low, high = interval(samples, fitted)
    return fitted(samples), float(low), float(high)


def reading(rows: Sequence[Row]) -> str:
    """What the numbers say, whatever they are."""
    parts = ["Samples until the policies so far are epsilon-optimal on average, as a power of:"]
    for varied, exponent in EXPONENTS.items():
        sizes, samples = taken(rows, varied)
        left_out = len({row.size for row in rows if row.varied == varied}) - len(sizes)
        if len(sizes) < 2:
            parts.append(f"{varied}: too few sizes reached epsilon.")
            continue
        found, low, high = power(rows, varied)
        parts.append(
            f"{varied}: {found:.2f} (95 % interval {low:.2f} to {high:.2f}; from {sizes[0]:g} to "
            f"{sizes[-1]:g} the mean goes from {samples[:, 0].mean():,.0f} to "
            f"{samples[:, -1].mean():,.0f}), the theorem's upper bound {exponent}"
            + (", which is exceeded." if low > exponent else ".")
            + (f" {left_out} sizes were not reached by every seed." if left_out else "")
        )
    return " ".join(parts)


def figure(rows: Sequence[Row]) -> Figure:
    """A panel per size: seeds as dots, the fitted power, and the theorem's for comparison."""
    drawn = Figure(figsize=(13.0, 3.7), layout="constrained")
    panels = drawn.subplots(1, len(EXPONENTS), sharey=True)
    for axes, (varied, exponent) in zip(panels, EXPONENTS.items(), strict=True):
        _draw(axes, rows, varied, exponent)
    panels[0].set_ylabel("samples (episodes)", fontsize=11)
    legend_below(drawn, panels[0], 3)
    return drawn


def _draw(axes: Axes, rows: Sequence[Row], varied: str, exponent: int) -> None:
    sizes, samples = taken(rows, varied)
    axes.set(
        xscale="log", yscale="log", xlabel=varied.replace(", worst case", " (coins, worst gap)")
    )
    if len(sizes) < 2:
        axes.set_title("too few sizes", fontsize=10)
        return
    found, low, high = power(rows, varied)
    seeds, dots = np.broadcast_to(sizes, samples.shape), LINE_COLOURS[0]
    axes.plot(seeds.ravel(), samples.ravel(), "o", c=dots, ms=4, alpha=0.35, mew=0, label="a seed")
    middle, height = np.exp(np.log(sizes).mean()), np.exp(np.log(samples.mean(axis=0)).mean())
    axes.plot(
        sizes, height * (sizes / middle) ** found, c=LINE_COLOURS[1], lw=2, label="fitted power"
    )
    first = height * (sizes[0] / middle) ** found
    bound = first * (sizes / sizes[0]) ** exponent
    axes.plot(sizes, bound, c=GREY, lw=1.4, ls=":", label="the theorem's upper bound, as a slope")
    axes.set_title(f"{found:.2f} [{low:.2f}, {high:.2f}]; theorem {exponent}", fontsize=10)
    axes.set_xticks(sizes)
    axes.set_ylim(60, 1e5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    with_grid(axes)
