"""The rows of `consistency` in words and as a picture."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from phimu.finite.experiments.consistency import CLASSES, CONTRASTS, Row
from phimu.reports.figures import GREY, LINE_COLOURS, legend_below, with_grid

CLOSE = 0.01  # total variation, below which two estimates count as one
TITLES = {
    "linear": "Linear, phi and mu learned, Z = 1",
    "exponential / Z": "Exponential / Z, phi known, Z = 1",
    "exponential": "Exponential, phi known, Z varies",
}


def to_likelihood(rows: Sequence[Row], models: str, loss: str) -> np.ndarray:
    """[seeds, values of K]."""
    chosen = [row for row in rows if (row.models, row.loss) == (models, loss)]
    return np.array([row.to_likelihood for row in chosen]).reshape(-1, len(sizes(rows)))


def sizes(rows: Sequence[Row]) -> list[int]:
    return sorted({row.negatives for row in rows})


def reading(rows: Sequence[Row]) -> str:
    """What the numbers say, whatever they are."""
    seeds = 1 + max(row.seed for row in rows)
    parts = [
        "Total variation between the NCE and the maximum likelihood estimate from "
        f"K = {sizes(rows)[0]:,} to {sizes(rows)[-1]:,}, median over {seeds} seeds."
    ]
    for models in CLASSES:
        both = "; ".join(_clause(rows, models, loss) for loss in CONTRASTS)
        parts.append(f"{TITLES[models]}: {both}.")
    steepest = max(row.gradient for row in rows)
    parts.append(f"No search ended with a gradient above {steepest:.1g}.")
    return " ".join(parts)


def _clause(rows: Sequence[Row], models: str, loss: str) -> str:
    values = to_likelihood(rows, models, loss)
    seeds, middle, last = len(values), np.median(values, axis=0), values[:, -1]
    falls = int((np.diff(values, axis=1) < 0).all(axis=1).sum())
    said = (
        f"{loss} goes from {middle[0]:.2g} to {middle[-1]:.2g}, down with every K on {falls} of "
        f"{seeds} seeds, and"
    )
    if last.max() < CLOSE:
        return f"{said} agrees with the likelihood: at most {last.max():.2g} in the end"
    return (
        f"{said} does not agree with the likelihood on {int((last >= CLOSE).sum())} of them: "
        f"{last.min():.2g} to {last.max():.2g} in the end, while the likelihood's own distance "
        f"from the truth is {_own(rows, models):.2g}"
    )


def _own(rows: Sequence[Row], models: str) -> float:
    """The median distance from the likelihood's estimate to the truth."""
    return float(np.median([row.likelihood_to_truth for row in rows if row.models == models]))


def figure(rows: Sequence[Row]) -> Figure:
    """A panel per class: each seed thin, the median thick."""
    drawn = Figure(figsize=(10.8, 4.0), layout="constrained")
    panels = drawn.subplots(1, len(CLASSES), sharey=True)
    for axes, models in zip(panels, CLASSES, strict=True):
        _draw(axes, rows, models)
    panels[0].set_ylabel("total variation, NCE to likelihood", fontsize=11)
    legend_below(drawn, panels[0], 4)
    return drawn


def _draw(axes: Axes, rows: Sequence[Row], models: str) -> None:
    for loss, colour, style in zip(CONTRASTS, LINE_COLOURS, ("-", "--"), strict=False):
        values = to_likelihood(rows, models, loss)
        axes.loglog(sizes(rows), values.T, c=colour, ls=style, lw=0.7, alpha=0.45)
        middle = np.median(values, axis=0)
        axes.loglog(sizes(rows), middle, c=colour, ls=style, lw=2.4, label=f"{loss}, median")
    label = "from the likelihood's estimate to the truth, median"
    axes.axhline(_own(rows, models), c=GREY, ls=":", lw=1.4, label=label)
    axes.set_title(TITLES[models], fontsize=10.5)
    axes.set_xticks(sizes(rows))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.minorticks_off()
    axes.set_xlabel("K, negatives of a transition", fontsize=11)
    with_grid(axes)
