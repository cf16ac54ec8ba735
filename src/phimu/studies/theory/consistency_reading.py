"""The rows of `consistency` in words and as a picture."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phimu.studies.figures import GREY, LINE_COLOURS
from phimu.studies.theory.consistency import CLASSES, CONTRASTS, Row

CLOSE = 0.01  # total variation, below which two estimates count as one
TITLES = {
    "linear": "linear, phi and mu learned: Z = 1",
    "exponential / Z": "exponential / Z, phi known: Z = 1",
    "exponential": "exponential, phi known: Z varies",
}


def to_likelihood(rows: Sequence[Row], models: str, loss: str) -> np.ndarray:
    """[seeds, values of K]."""
    chosen = [row for row in rows if (row.models, row.loss) == (models, loss)]
    return np.array([row.to_likelihood for row in chosen]).reshape(-1, len(sizes(rows)))


def sizes(rows: Sequence[Row]) -> list[int]:
    return sorted({row.negatives for row in rows})


def reading(rows: Sequence[Row]) -> str:
    """What the numbers say, whatever they are."""
    largest = sizes(rows)[-1]
    parts = [
        "Total variation between the NCE and the maximum likelihood estimate, median over "
        f"{1 + max(row.seed for row in rows)} seeds, from K = {sizes(rows)[0]} to {largest:,}."
    ]
    for models in CLASSES:
        both = " ".join(_sentence(rows, models, loss) for loss in CONTRASTS)
        parts.append(f"{TITLES[models]}. {both}")
    steepest = max(row.gradient for row in rows)
    parts.append(f"No gradient was left with an entry above {steepest:.1g}.")
    return " ".join(parts)


def _sentence(rows: Sequence[Row], models: str, loss: str) -> str:
    values = to_likelihood(rows, models, loss)
    seeds, last = len(values), values[:, -1]
    middle = np.median(values, axis=0)
    falls = int((np.diff(values, axis=1) < 0).all(axis=1).sum())
    said = (
        f"{loss.capitalize()}: {middle[0]:.3f} to {middle[-1]:.4f}, smaller with every K on "
        f"{falls} of {seeds} seeds"
    )
    if last.max() < CLOSE:
        return f"{said}; at most {last.max():.4f} in the end, so it agrees with the likelihood."
    own = np.median([row.likelihood_to_truth for row in rows if row.models == models])
    return (
        f"{said}; {last.min():.3f} to {last.max():.3f} in the end, so it does not agree, on "
        f"{int((last >= CLOSE).sum())} of {seeds} seeds (the likelihood's own distance from the "
        f"truth is {own:.3f})."
    )


def figure(rows: Sequence[Row]) -> Figure:
    """A panel per class: each seed thin, the median thick."""
    drawn = Figure(figsize=(10.8, 4.0), layout="constrained")
    panels = drawn.subplots(1, len(CLASSES), sharey=True)
    for axes, models in zip(panels, CLASSES, strict=True):
        _draw(axes, rows, models)
    panels[0].set_ylabel("total variation, NCE to likelihood", fontsize=11)
    drawn.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        fontsize=10,
        frameon=False,
    )
    return drawn


def _draw(axes: Axes, rows: Sequence[Row], models: str) -> None:
    for loss, colour, style in zip(CONTRASTS, LINE_COLOURS, ("-", "--"), strict=False):
        values = to_likelihood(rows, models, loss)
        axes.loglog(sizes(rows), values.T, c=colour, ls=style, lw=0.7, alpha=0.45)
        middle = np.median(values, axis=0)
        axes.loglog(sizes(rows), middle, c=colour, ls=style, lw=2.4, label=f"{loss}, median")
    own = np.median([row.likelihood_to_truth for row in rows if row.models == models])
    axes.axhline(own, c=GREY, ls=":", lw=1.4, label="from the likelihood's estimate to the truth")
    axes.set_title(TITLES[models], fontsize=10.5)
    axes.set_xlabel("K, negatives of a transition", fontsize=11)
    axes.grid(color="#dadce0", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
