"""The rows of `online` in words and as a picture."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phimu.finite.experiments.online import EPSILON, Row
from phimu.finite.experiments.statistics import interval, mean, slope
from phimu.reports.figures import GREY, LINE_COLOURS, legend_below, with_grid

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
    reached, ours = found(rows, name), found(rows, OURS)
    most = max(row.samples for row in rows if row.algorithm == name)
    said = f"{name}: epsilon-optimal on {np.count_nonzero(reached)} of {len(reached)} seeds"
    if not reached.all():
        said += f" within {most:,} samples"
        if ours.all():
            said += f" ({most / ours.max():.1f} times what {OURS} took on its slowest seed)"
    if reached.any():
        taken = reached[reached > 0]
        said += f", after {taken.mean():,.0f} samples ({taken.min():,} to {taken.max():,})"
    return said + "."


def figure(rows: Sequence[Row]) -> Figure:
    """Suboptimality, regret, and the samples that each seed took."""
    drawn = Figure(figsize=(12.6, 5.0), layout="constrained")
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1, 1, 0.8))
    every = names(rows)
    for place, name in enumerate(every):
        style = _style(rows, name)
        _band(left, *curve(rows, name, "suboptimality"), name, style)
        _band(middle, *curve(rows, name, "regret"), name, style)
        _dots(right, found(rows, name), len(every) - 1 - place, style["color"])
    last = curve(rows, OURS, "regret")[0][-1]
    left.axhline(EPSILON, c=GREY, lw=1, ls=":")
    left.set(xscale="log", ylim=(-0.02, 1.04), ylabel="suboptimality, in value ranges")
    middle.set(xlim=(0, last), ylim=(0, last / 2), ylabel="regret, in value ranges")
    right.set(xscale="log", yticks=range(len(every)), yticklabels=every[::-1])
    spread = [row.found for row in rows if row.found] + [max(row.samples for row in rows)]
    right.set(xlim=(min(spread) / 2, 1.3 * max(spread)), ylim=(-0.6, len(every) - 0.4))
    right.tick_params(axis="y", labelsize=8.5, length=0)
    titles = (
        "Suboptimality of the returned policy",
        "Regret of the collecting policies",
        f"Samples until {EPSILON:g}-optimal, by seed",
    )
    for axes, title in zip((left, middle, right), titles, strict=True):
        axes.set_title(title, fontsize=10.5, loc="left")
        axes.set_xlabel("samples (episodes)", fontsize=10)
        with_grid(axes)
    legend_below(drawn, left, 5)
    return drawn


def _style(rows: Sequence[Row], name: str) -> dict[str, str]:
    """A colour for an algorithm, whatever its class; a dash for a class."""
    models = next(row.models for row in rows if row.algorithm == name)
    families = list(dict.fromkeys(one.partition(", finite")[0] for one in names(rows)))
    place = families.index(name.partition(", finite")[0])
    return {"color": LINE_COLOURS[place % len(LINE_COLOURS)], "ls": STYLES[models]}


def _band(
    axes: Axes, samples: np.ndarray, values: np.ndarray, label: str, style: dict[str, str]
) -> None:
    low, high = interval(values, mean)
    axes.plot(samples, values.mean(axis=0), lw=1.8, label=label, **style)  # type: ignore[arg-type]
    axes.fill_between(samples, low, high, color=style["color"], alpha=0.18, lw=0)


def _dots(axes: Axes, reached: np.ndarray, height: int, colour: str) -> None:
    taken = reached[reached > 0]
    axes.plot(taken, np.full(len(taken), height), "o", c=colour, ms=5.5, alpha=0.6, mew=0)
    axes.annotate(
        f"{len(taken)}/{len(reached)}",
        xy=(1.01, height),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=9,
        color=colour,
    )
