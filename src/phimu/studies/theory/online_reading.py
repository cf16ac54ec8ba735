"""The rows of `online` in words and as a picture."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phimu.studies.figures import GREY, LINE_COLOURS
from phimu.studies.theory.online import EPSILON, Row
from phimu.studies.theory.statistics import interval, mean, slope

OURS, EXACT = "CTRL-UCB", "Rep-UCB"
STYLES = {"tables": "-", "finite": "--", "phi* known": ":"}


def names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.algorithm for row in rows))


def curve(rows: Sequence[Row], algorithm: str, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples [points] and values [seeds, points]."""
    chosen = [row for row in rows if row.algorithm == algorithm]
    samples = np.array(sorted({row.samples for row in chosen}))
    values = np.array([getattr(row, field) for row in chosen])
    return samples, values.reshape(-1, len(samples))


def found(rows: Sequence[Row], algorithm: str) -> np.ndarray:
    """Samples until epsilon-optimal, by seed; 0 where it never was: [seeds]."""
    by_seed = {row.seed: row.found for row in rows if row.algorithm == algorithm}
    return np.array([by_seed[seed] for seed in sorted(by_seed)])


def exponent(rows: Sequence[Row], algorithm: str, within: float) -> tuple[float, float, float]:
    """The power of n that fits the mean regret from N / within to N, and its 95 % interval."""
    samples, regret = curve(rows, algorithm, "regret")
    late = samples >= samples[-1] / within

    def fitted(values: np.ndarray) -> float:
        return slope(samples[late], values[:, late].mean(axis=0))

    low, high = interval(regret, fitted)
    return fitted(regret), float(low), float(high)


def reading(rows: Sequence[Row]) -> str:
    """What the numbers say, whatever they are."""
    parts = [f"Epsilon is {EPSILON:g} of the value range."]
    parts += [_sentence(rows, name) for name in names(rows)]
    ours, exact = found(rows, OURS), found(rows, EXACT)
    if ours.all() and exact.all():
        ratio = ours.mean() / exact.mean()
        parts.append(f"{OURS} took {ratio:.2f} times the samples of {EXACT} (means over seeds).")
    for within in (10, 2):
        power, low, high = exponent(rows, OURS, within)
        parts.append(
            f"Over the last {'decade' if within == 10 else 'doubling'} of samples the regret of "
            f"{OURS} grew like n^{power:.2f} (95 % interval {low:.2f} to {high:.2f}): "
            + ("sublinear." if high < 1 else "not shown to be sublinear.")
        )
    return " ".join(parts)


def _sentence(rows: Sequence[Row], name: str) -> str:
    reached = found(rows, name)
    most = max(row.samples for row in rows if row.algorithm == name)
    said = f"{name}: epsilon-optimal on {np.count_nonzero(reached)} of {len(reached)} seeds"
    if reached.any():
        taken = reached[reached > 0]
        said += f", after {taken.mean():,.0f} samples ({taken.min():,} to {taken.max():,})"
    if not reached.all():
        said += f" within {most:,} samples"
        ours = found(rows, OURS)
        if ours.all():
            said += f", {most / ours.mean():.0f} times what {OURS} took"
    return said + "."


def figure(rows: Sequence[Row]) -> Figure:
    """Suboptimality, regret, and the samples that each seed took."""
    drawn = Figure(figsize=(12.6, 5.2), layout="constrained")
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1, 1, 0.85))
    every = names(rows)
    for place, name in enumerate(every):
        models = next(row.models for row in rows if row.algorithm == name)
        colour = LINE_COLOURS[place % len(LINE_COLOURS)]
        _band(left, *curve(rows, name, "suboptimality"), name, colour, STYLES[models])
        _band(middle, *curve(rows, name, "regret"), name, colour, STYLES[models])
        _dots(right, found(rows, name), len(every) - 1 - place, colour)
    left.axhline(EPSILON, c=GREY, lw=1, ls=":")
    left.set(xscale="log", ylim=(-0.02, 1.04), ylabel="suboptimality, in value ranges")
    middle.set(xscale="log", yscale="log", ylabel="regret, in value ranges")
    _guide(middle, *curve(rows, OURS, "regret"))
    right.set(xscale="log", yticks=range(len(every)), yticklabels=every[::-1])
    right.tick_params(axis="y", labelsize=8.5, length=0)
    titles = (
        "Suboptimality of the returned policy",
        "Regret of the collecting policies",
        f"Samples until {EPSILON:g}-optimal, each seed",
    )
    for axes, title in zip((left, middle, right), titles, strict=True):
        axes.set_title(title, fontsize=10.5, loc="left")
        axes.set_xlabel("samples (episodes)", fontsize=10)
        axes.grid(color="#dadce0", lw=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    drawn.legend(
        *left.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=5,
        fontsize=9.5,
        frameon=False,
    )
    return drawn


def _band(
    axes: Axes, samples: np.ndarray, values: np.ndarray, label: str, colour: str, style: str
) -> None:
    low, high = interval(values, mean)
    axes.plot(samples, values.mean(axis=0), c=colour, ls=style, lw=1.8, label=label)
    axes.fill_between(samples, low, high, color=colour, alpha=0.18, lw=0)


def _dots(axes: Axes, reached: np.ndarray, height: int, colour: str) -> None:
    if reached.any():
        taken = reached[reached > 0]
        axes.plot(taken, np.full(len(taken), height), "o", c=colour, ms=5, alpha=0.6, mew=0)
    if not reached.all():
        missed = len(reached) - np.count_nonzero(reached)
        axes.annotate(
            f"never on {missed} seeds",
            xy=(0.98, height),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize=8.5,
            color=colour,
        )


def _guide(axes: Axes, samples: np.ndarray, values: np.ndarray) -> None:
    """A line of slope one half, the worst case's."""
    end, height = samples[-1], values[:, -1].mean()
    begin = end / 10
    axes.plot([begin, end], [0.45 * height / 10**0.5, 0.45 * height], c=GREY, lw=1, ls=":")
    axes.annotate("n^0.5", (begin, 0.45 * height / 10**0.5), fontsize=8.5, color=GREY, ha="right")
