"""What each experiment found, as a picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from phimu.finite.experiments.consistency import CLASSES, CONTRASTS, ConsistencyRow
from phimu.finite.experiments.offline import BOUND, PLANS, OfflineRow
from phimu.finite.experiments.online import EPSILON, OnlineRow
from phimu.finite.experiments.scaling import EXPONENTS, ScalingRow
from phimu.reports.figures import GREY, LINE_COLOURS, legend_below, with_grid
from phimu.reports.theory import arrays
from phimu.reports.theory.arrays import cube, interval, mean, reached, suboptimalities, worst
from phimu.studies.known_worlds import REPRESENTATIONS, RepresentationRow

TITLES = {
    "linear": "Linear, phi and mu learned, Z = 1",
    "exponential / Z": "Exponential / Z, phi known, Z = 1",
    "exponential": "Exponential, phi known, Z varies",
}
STYLES = {"tables": "-", "finite": "--", "phi* known": ":"}


def consistency(rows: Sequence[ConsistencyRow]) -> Figure:
    """A panel per class: each seed thin, the median thick."""
    figure = Figure(figsize=(10.8, 4.0), layout="constrained")
    panels = figure.subplots(1, len(CLASSES), sharey=True)
    for axes, models in zip(panels, CLASSES, strict=True):
        for loss, colour, style in zip(CONTRASTS, LINE_COLOURS, ("-", "--"), strict=False):
            which = {"models": models, "loss": loss}
            sizes, values = cube(rows, "to_likelihood", "seed", "negatives", **which)
            axes.plot(sizes, values.T, c=colour, ls=style, lw=0.7, alpha=0.45)
            middle = np.median(values, axis=0)
            axes.plot(sizes, middle, c=colour, ls=style, lw=2.4, label=f"{loss}, median")
        truth = np.median([row.likelihood_to_truth for row in rows if row.models == models])
        label = "from the likelihood's estimate to the truth, median"
        axes.axhline(float(truth), c=GREY, ls=":", lw=1.4, label=label)
        _log_axes(axes, sizes, ",.0f")
        axes.minorticks_off()
        axes.set_title(TITLES[models], fontsize=10.5)
        axes.set_xlabel("K, negatives of a transition", fontsize=11)
    panels[0].set_ylabel("total variation, NCE to likelihood", fontsize=11)
    legend_below(figure, panels[0], 4)
    return figure


def online(rows: Sequence[OnlineRow]) -> Figure:
    """Suboptimality, regret, and the samples that each seed took."""
    figure = Figure(figsize=(12.6, 5.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    classes = {row.algorithm: row.models for row in rows}
    names = list(classes)
    families = list(dict.fromkeys(name.partition(", finite")[0] for name in names))
    for place, name in enumerate(names):
        # A colour for an algorithm, whatever its class; a dash for a class.
        colour = LINE_COLOURS[families.index(name.partition(", finite")[0]) % len(LINE_COLOURS)]
        line: dict[str, Any] = {"color": colour, "lw": 1.8, "label": name}
        for axes, field in ((left, "suboptimality"), (middle, "regret")):
            at, values = cube(rows, field, "seed", "samples", algorithm=name)
            _band(axes, at, values, mean, ls=STYLES[classes[name]], **line)
        found, height = cube(rows, "found", "seed", algorithm=name)[1], len(names) - 1 - place
        taken = found[found > 0]
        right.plot(taken, np.full(len(taken), height), "o", c=colour, ms=5.5, alpha=0.6, mew=0)
        share, where = f"{len(taken)}/{len(found)}", right.get_yaxis_transform()
        right.text(1.01, height, share, transform=where, va="center", fontsize=9, color=colour)
    last = max(row.samples for row in rows if row.algorithm == names[0])
    left.axhline(EPSILON, c=GREY, lw=1, ls=":")
    left.set(xscale="log", ylim=(-0.02, 1.04), ylabel="suboptimality, in value ranges")
    middle.set(xlim=(0, last), ylim=(0, last / 2), ylabel="regret, in value ranges")
    right.set(xscale="log", yticks=range(len(names)), yticklabels=names[::-1])
    spread = [row.found for row in rows if row.found] + [max(row.samples for row in rows)]
    right.set(xlim=(min(spread) / 2, 1.3 * max(spread)), ylim=(-0.6, len(names) - 0.4))
    right.tick_params(axis="y", labelsize=8.5, length=0)
    _title(left, "Suboptimality of the returned policy")
    _title(middle, "Regret of the collecting policies")
    _title(right, f"Samples until {EPSILON:g}-optimal, by seed")
    for axes in (left, middle, right):
        axes.set_xlabel("samples (episodes)", fontsize=10)
    legend_below(figure, left, 5)
    return figure


def offline(rows: Sequence[OfflineRow]) -> Figure:
    """Against n, against C*, and each seed's with an action missing."""
    figure = Figure(figsize=(12.6, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    labels = (*PLANS, "bound: twice the penalty where the optimal policy goes")
    for plan, colour, label in zip((*PLANS, BOUND), (*LINE_COLOURS[:3], GREY), labels, strict=True):
        line: dict[str, Any] = {"color": colour, "label": label, "lw": 2, "marker": "o", "ms": 4}
        line["ls"] = ":" if plan == BOUND else "-"
        _band(left, *suboptimalities(rows, "size", plan), worst, **line)
        _band(middle, *suboptimalities(rows, "coverage", plan), worst, **line)
    at, values = suboptimalities(rows, "size", PLANS[0])
    for gap in values.mean(axis=0)[::2]:
        shown = gap > 1e-4
        left.plot(at[shown], gap[shown], c=LINE_COLOURS[0], lw=0.8, alpha=0.5)
    lost = [cube(rows, "suboptimality", "seed", part="missing", plan=plan)[1] for plan in PLANS]
    right.plot(lost, c=GREY, lw=0.8, alpha=0.6)  # a line per seed
    for place, (seeds, colour) in enumerate(zip(lost, LINE_COLOURS, strict=False)):
        right.plot(np.full(len(seeds), place), seeds, "o", c=colour, ms=6, mew=0, alpha=0.7)
    _title(left, f"{PLANS[0]} ~ n^{arrays.power(at, values, worst)}")
    size = next(row.samples for row in rows if row.part == "coverage")
    _title(middle, f"Coverage, at n = {size:,}")
    _title(right, "The needed action is missing, each seed")
    for axes in (left, middle):
        axes.set(xscale="log", yscale="log", ylim=(3e-4, 3))
    left.set(xlabel="n, transitions in the data", ylabel="suboptimality, worst gap")
    middle.set_xlabel("C* of the optimal policy")
    right.set_xticks(range(len(PLANS)), [plan.replace(" ", "\n") for plan in PLANS])
    right.set(xlim=(-0.4, len(PLANS) - 0.6), ylim=(0, 1), ylabel="suboptimality")
    legend_below(figure, left, 4)
    return figure


def scaling(rows: Sequence[ScalingRow]) -> Figure:
    """A panel per size: seeds as dots, the fitted power, and the theorem's for comparison."""
    figure = Figure(figsize=(13.0, 3.7), layout="constrained")
    panels = figure.subplots(1, len(EXPONENTS), sharey=True)
    for axes, (varied, exponent) in zip(panels, EXPONENTS.items(), strict=True):
        sizes, samples = reached(rows, varied)
        _log_axes(axes, sizes, ".3g")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(ylim=(60, 1e5), xlabel=varied.replace(", worst case", " (coins, worst gap)"))
        power = arrays.power(sizes, samples)
        axes.set_title(f"{power}; theorem {exponent}", fontsize=10)
        if len(sizes) > 1:
            _powers(axes, sizes, samples, power.value, exponent)
    panels[0].set_ylabel("samples (episodes)", fontsize=11)
    legend_below(figure, panels[0], 3)
    return figure


def representations(rows: Sequence[RepresentationRow]) -> Figure:
    """A panel per world: seeds as dots, their mean as a bar, for P above and for Q below."""
    worlds = list(dict.fromkeys(row.world for row in rows))
    names = list(dict.fromkeys(row.representation for row in rows))
    figure = Figure(figsize=(12.0, 6.4), layout="constrained")
    fields = {
        "total_variation": "total variation, learned to true P",
        "value_error": "variance of Q not linear in phi",
    }
    panels = figure.subplots(len(fields), len(worlds), sharey=True, squeeze=False)
    for (field, label), line in zip(fields.items(), panels, strict=True):
        for world, axes in zip(worlds, line, strict=True):
            for place, name in enumerate(reversed(names)):
                found = cube(rows, field, "seed", world=world, representation=name)[1]
                if np.isnan(found).all():
                    axes.text(0.02, place, "no density", va="center", fontsize=8.5, color=GREY)
                    continue
                colour = LINE_COLOURS[0] if name in REPRESENTATIONS else GREY
                axes.barh(place, found.mean(), color=colour, alpha=0.3)
                axes.plot(found, np.full(len(found), place), "o", c=colour, ms=4, mew=0, alpha=0.8)
            axes.set(yticks=range(len(names)), yticklabels=names[::-1], xlim=(0, None))
            axes.set_xlabel(label, fontsize=10)
            _title(axes, world)
    return figure


def _powers(
    axes: Axes, sizes: np.ndarray, samples: np.ndarray, found: float, exponent: int
) -> None:
    dots = {"c": LINE_COLOURS[0], "ms": 4, "alpha": 0.35, "mew": 0, "label": "a seed"}
    axes.plot(np.tile(sizes, len(samples)), samples.ravel(), "o", **dots)  # type: ignore[arg-type]
    middle, height = np.exp([np.log(sizes).mean(), np.log(samples.mean(axis=0)).mean()])
    fitted = height * (sizes / middle) ** found
    axes.plot(sizes, fitted, c=LINE_COLOURS[1], lw=2, label="fitted power")
    bound = fitted[0] * (sizes / sizes[0]) ** exponent
    axes.plot(sizes, bound, c=GREY, lw=1.4, ls=":", label="the theorem's upper bound, as a slope")


def _band(
    axes: Axes, at: Sequence | np.ndarray, values: np.ndarray, summary: arrays.Summary, **line: Any
) -> None:
    """The `summary` of values [seeds, ...] within its 95 % interval over seeds."""
    axes.plot(at, summary(values), **line)
    axes.fill_between(at, *interval(values, summary), color=line["color"], alpha=0.18, lw=0)


def _log_axes(axes: Axes, sizes: Sequence | np.ndarray, written: str) -> None:
    """Both logarithmic, with the sizes themselves along x."""
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format(value, written)))
    with_grid(axes)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=10.5, loc="left")
    with_grid(axes)
