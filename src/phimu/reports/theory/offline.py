"""The rows of `offline` in words and as a picture."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phimu.finite.experiments.offline import BOUND, PLANS, Row
from phimu.finite.experiments.statistics import interval, slope
from phimu.reports.figures import GREY, LINE_COLOURS, legend_below, with_grid

OURS, TRUSTING, CLONE = PLANS
VARIED = {"size": "samples", "coverage": "coverage"}
LABELS = {BOUND: "bound: twice the penalty where the optimal policy goes"}


def suboptimalities(rows: Sequence[Row], part: str, plan: str) -> tuple[np.ndarray, np.ndarray]:
    """Sample sizes or C* (mean over gaps and seeds) [k], and values [seeds, gaps, k]."""
    chosen = [row for row in rows if (row.part, row.plan) == (part, plan)]
    values = {(row.seed, row.gap, row.samples, -row.share): row.suboptimality for row in chosen}
    seeds, gaps, sizes, shares = (sorted(set(part)) for part in zip(*values, strict=True))
    table = np.array([values[key] for key in sorted(values)])
    varied = VARIED[part]
    at = [
        np.mean([getattr(row, varied) for row in chosen if (row.samples, -row.share) == (n, w)])
        for n in sizes
        for w in shares
    ]
    return np.array(at), table.reshape(len(seeds), len(gaps), -1)


def worst(values: np.ndarray) -> np.ndarray:
    """Over the gaps, of the means over the seeds: [k] of [seeds, gaps, k]."""
    return values.mean(axis=0).max(axis=0)


def power(rows: Sequence[Row], part: str, plan: str) -> tuple[float, float, float]:
    """The power of n or C* that fits the worst case, and its 95 % interval over seeds."""
    at, values = suboptimalities(rows, part, plan)
    low, high = interval(values, lambda drawn: slope(at, worst(drawn)))
    return slope(at, worst(values)), float(low), float(high)


def missing(rows: Sequence[Row], plan: str) -> np.ndarray:
    """[seeds]."""
    return np.array(
        [row.suboptimality for row in rows if (row.part, row.plan) == ("missing", plan)]
    )


def reading(rows: Sequence[Row]) -> str:
    """What the numbers say, whatever they are."""
    parts = ["Worst case over the gaps, as a share of the largest return."]
    for plan in (*PLANS, BOUND):
        at, values = suboptimalities(rows, "size", plan)
        found, low, high = power(rows, "size", plan)
        parts.append(
            f"{plan}: {worst(values)[0]:.3f} at n = {at[0]:,.0f} and {worst(values)[-1]:.4f} at "
            f"{at[-1]:,.0f}, like n^{found:.2f} (95 % interval {low:.2f} to {high:.2f})."
        )
    at, ours = suboptimalities(rows, "coverage", OURS)
    trusting = worst(suboptimalities(rows, "coverage", TRUSTING)[1])
    bound = power(rows, "coverage", BOUND)[0]
    parts.append(
        f"From C* = {at[0]:.1f} to {at[-1]:.0f} {OURS} goes from {worst(ours)[0]:.4f} to "
        f"{worst(ours)[-1]:.3f} and {TRUSTING} from {trusting[0]:.4f} to {trusting[-1]:.3f}; the "
        f"bound grows like C*^{bound:.2f}."
    )
    careful, careless = missing(rows, OURS), missing(rows, TRUSTING)
    parts.append(
        f"With the needed action missing from the data, {OURS} is better than {TRUSTING} on "
        f"{int((careful < careless).sum())} of {len(careful)} seeds: suboptimality "
        f"{careful.mean():.2f} against {careless.mean():.2f}, behaviour cloning "
        f"{missing(rows, CLONE).mean():.2f} (means)."
    )
    return " ".join(parts)


def figure(rows: Sequence[Row]) -> Figure:
    """Against n, against C*, and each seed's with an action missing."""
    drawn = Figure(figsize=(12.6, 4.6), layout="constrained")
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1, 1, 0.8))
    for axes, part in ((left, "size"), (middle, "coverage")):
        for plan, colour in zip((*PLANS, BOUND), (*LINE_COLOURS[:3], GREY), strict=True):
            _line(axes, rows, part, plan, colour)
    at, values = suboptimalities(rows, "size", OURS)
    for gap in values.mean(axis=0)[::2]:
        shown = gap > 1e-4
        left.plot(at[shown], gap[shown], c=LINE_COLOURS[0], lw=0.8, alpha=0.5)
    found, low, high = power(rows, "size", OURS)
    left.set_title(f"CTRL-LCB ~ n^{found:.2f} [{low:.2f}, {high:.2f}]", fontsize=10.5, loc="left")
    left.set(xlabel="n, transitions in the data", ylabel="suboptimality, worst gap")
    middle.set_title(f"Coverage, at n = {_coverage_size(rows):,}", fontsize=10.5, loc="left")
    middle.set_xlabel("C* of the optimal policy")
    _missing(right, rows)
    for axes in (left, middle):
        axes.set(xscale="log", yscale="log")
        axes.set_ylim(3e-4, 3)
    for axes in (left, middle, right):
        with_grid(axes)
    legend_below(drawn, left, 4)
    return drawn


def _line(axes: Axes, rows: Sequence[Row], part: str, plan: str, colour: str) -> None:
    at, values = suboptimalities(rows, part, plan)
    low, high = interval(values, worst)
    style = ":" if plan == BOUND else "-"
    label = LABELS.get(plan, plan)
    axes.plot(at, worst(values), c=colour, ls=style, lw=2, marker="o", ms=4, label=label)
    axes.fill_between(at, low, high, color=colour, alpha=0.18, lw=0)


def _coverage_size(rows: Sequence[Row]) -> int:
    return next(row.samples for row in rows if row.part == "coverage")


def _missing(axes: Axes, rows: Sequence[Row]) -> None:
    """A line per seed between the plans."""
    values = np.array([missing(rows, plan) for plan in PLANS])
    axes.plot(values, c=GREY, lw=0.8, alpha=0.6)
    for place, (column, colour) in enumerate(zip(values, LINE_COLOURS, strict=False)):
        axes.plot(np.full(len(column), place), column, "o", c=colour, ms=6, mew=0, alpha=0.7)
    axes.set_xticks(range(len(PLANS)), [plan.replace(" ", "\n") for plan in PLANS])
    axes.set(xlim=(-0.4, len(PLANS) - 0.6), ylim=(0, 1))
    axes.set_title("The needed action is missing, each seed", fontsize=10.5, loc="left")
    axes.set_ylabel("suboptimality")
