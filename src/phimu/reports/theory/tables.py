"""What each experiment found, as Markdown tables of its rows."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from phimu.finite.experiments.consistency import CLASSES, CONTRASTS, ConsistencyRow
from phimu.finite.experiments.offline import BOUND, PLANS, OfflineRow
from phimu.finite.experiments.online import EPSILON, OnlineRow
from phimu.finite.experiments.scaling import EXPONENTS, ScalingRow
from phimu.reports.markdown import grid
from phimu.reports.theory.arrays import cube, power, reached, regret_power, suboptimalities, worst
from phimu.studies.known_worlds import RepresentationRow


def consistency(rows: Sequence[ConsistencyRow]) -> str:
    lines = []
    for models, loss in product(CLASSES, CONTRASTS):
        which = {"models": models, "loss": loss}
        sizes, values = cube(rows, "to_likelihood", "seed", "negatives", **which)
        medians = zip(sizes, np.median(values, axis=0), strict=True)
        line = which | {f"K = {_cell(size)}": median for size, median in medians}
        line["smallest"], line["largest"] = values[:, -1].min(), values[:, -1].max()
        line["falls with every K"] = _share((np.diff(values) < 0).all(axis=1))
        line["likelihood to truth"] = np.median(
            cube(rows, "likelihood_to_truth", "seed", **which)[1]
        )
        line["gradient"] = cube(rows, "gradient", "seed", "negatives", **which)[1].max()
        lines.append(line)
    return _table(
        "Total variation between the NCE and the maximum likelihood estimate: medians over seeds, "
        "and extremes at the last K. The gradient is the largest where a search ended.",
        lines,
    )


def online(rows: Sequence[OnlineRow]) -> str:
    lines = []
    for name in dict.fromkeys(row.algorithm for row in rows):
        found = cube(rows, "found", "seed", algorithm=name)[1]
        taken = found[found > 0]
        line: dict[str, Any] = {"algorithm": name, "seeds": _share(found > 0)}
        for head, summary in (("mean", np.mean), ("smallest", np.min), ("largest", np.max)):
            line[head] = summary(taken) if taken.size else ""
        line["samples given"] = max(row.samples for row in rows if row.algorithm == name)
        line["regret, last decade"] = regret_power(rows, name, 10)
        line["regret, last doubling"] = regret_power(rows, name, 2)
        lines.append(line)
    return _table(
        f"Samples until within {EPSILON:g} of the value range, over the seeds that get there; and "
        "the power of n that fits the mean regret [95 % interval].",
        lines,
    )


def offline(rows: Sequence[OfflineRow]) -> str:
    tables = []
    for part, letter in (("size", "n"), ("coverage", "C*")):
        lines = []
        for plan in (*PLANS, BOUND):
            at, values = suboptimalities(rows, part, plan)
            line = {f"{letter} = {_cell(x)}": y for x, y in zip(at, worst(values), strict=True)}
            lines.append({"plan": plan} | line | {"power": power(at, values, worst)})
        caption = "as a share of the largest return, worst case over the gaps [95 % interval]."
        tables.append(_table(f"Suboptimality against {letter}, {caption}", lines))
    lost = {p: cube(rows, "suboptimality", "seed", part="missing", plan=p)[1] for p in PLANS}
    lines = [
        {"plan": plan, "mean": x.mean(), f"{PLANS[0]} is better": _share(lost[PLANS[0]] < x)}
        for plan, x in lost.items()
    ]
    caption = "Suboptimality where the needed action is missing from the data, over seeds."
    return "\n".join((*tables, _table(caption, lines)))


def scaling(rows: Sequence[ScalingRow]) -> str:
    lines = []
    for varied, exponent in EXPONENTS.items():
        sizes, samples = reached(rows, varied)
        every = {row.size for row in rows if row.varied == varied}
        line = {"varied": varied, "sizes reached": f"{len(sizes)} of {len(every)}"}
        for head, values in (("sizes", sizes), ("mean samples", samples.mean(axis=0))):
            line[head] = " to ".join(map(_cell, (*values[:1], *values[-1:])))
        lines.append(line | {"power": power(sizes, samples), "theorem's upper bound": exponent})
    return _table(
        "Samples until the policies so far are epsilon-optimal on average, as a power of what is "
        "varied [95 % interval], over the sizes at which every seed gets there.",
        lines,
    )


def representations(rows: Sequence[RepresentationRow]) -> str:
    worlds = list(dict.fromkeys(row.world for row in rows))
    lines = []
    for name in dict.fromkeys(row.representation for row in rows):
        line: dict[str, Any] = {"representation": name}
        for field, short in (("total_variation", "P"), ("value_error", "Q")):
            for world in worlds:
                which = {"world": world, "representation": name}
                line[f"{short}, {world}"] = _with_range(cube(rows, field, "seed", **which)[1])
        lines.append(line)
    return _table(
        "P: total variation between learned and true transition. Q: share of the variance of Q "
        "that is not linear in phi. Means over seeds [smallest, largest]; 0 is best.",
        lines,
    )


def _with_range(values: np.ndarray) -> str:
    if np.isnan(values).all():
        return ""
    return f"{values.mean():.3f} [{values.min():.3f}, {values.max():.3f}]"


def _table(caption: str, lines: Sequence[dict[str, Any]]) -> str:
    cells = ([_cell(value) for value in line.values()] for line in lines)
    return f"{caption}\n\n{grid(list(lines[0]), cells, '---')}"


def _cell(value: Any) -> str:
    """Three digits of a number, or all in front of the point; else its text."""
    if isinstance(value, str | tuple):  # a Power
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _share(true: Any) -> str:
    return f"{np.count_nonzero(true)} of {len(true)}"
