"""phi as a map: transitions at the two directions in which phi varies most, coloured twice."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phimu.agents.protocol import answers
from phimu.errors import InputError
from phimu.reports.figures import GREY, save
from phimu.session import Run
from phimu.training.offline import OfflineRun

QUANTILES = (0.02, 0.98)  # that the colours span: a few far values would leave one colour to all


class Projection(NamedTuple):
    """Of phi [n, d] onto its first two principal directions."""

    points: np.ndarray  # [n, 2]
    shares: np.ndarray  # [2] of phi's variance


class PhiMap(NamedTuple):
    projection: Projection
    value: np.ndarray | None  # [n], Q(s, a); of agents that have one
    doubt: np.ndarray | None  # [n], the bonus or penalty; None where its scale is 0
    doubt_name: str


def project(phi: np.ndarray) -> Projection:
    """By the singular value decomposition of the centred phi."""
    centred = np.asarray(phi, np.float64) - phi.mean(axis=0, dtype=np.float64)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    first = directions[:2]
    # A direction and its opposite are one: the larger weight is made positive, always the same map.
    turned = first * np.sign(first[np.arange(len(first)), np.abs(first).argmax(axis=1)])[:, None]
    points, shares = centred @ turned.T, lengths[:2] ** 2 / max(float((lengths**2).sum()), 1e-300)
    lacking = 2 - points.shape[1]  # of one feature, or one transition
    return Projection(np.pad(points, ((0, 0), (0, lacking))), np.pad(shares, (0, lacking)))


def phi_map(run: Run, name: str, observation: np.ndarray, action: np.ndarray) -> PhiMap:
    """Of pairs as a run has them: actions in [-1, 1] or one-hot."""
    agent: Any = run.agent
    if not answers(agent, "phi"):
        raise InputError(
            f"{name} has no phi to draw: name a run of an agent that plans on one, such as "
            "ctrl-ucb-m or ctrl-lcb."
        )

    def asked(query: str) -> np.ndarray | None:
        if not answers(agent, query):
            return None
        return np.asarray(run.learner.query(query, observation, action), np.float64)

    word = "penalty" if isinstance(run, OfflineRun) else "bonus"
    scale = getattr(getattr(agent, "confidence", None), "bonus_scale", 0.0)
    doubt = asked(word) if scale else None
    features = run.learner.query("phi", observation, action)
    return PhiMap(project(np.asarray(features)), asked("q_value"), doubt, word)


def phi_figure(path: Path, found: PhiMap, title: str) -> None:
    """A panel per colour."""
    colours = {"Q(s, a)": found.value, found.doubt_name: found.doubt}
    panels: list[tuple[str, np.ndarray | None]] = [
        (name, values) for name, values in colours.items() if values is not None
    ]
    figure = Figure(figsize=(5.0 * max(1, len(panels)), 4.7), layout="constrained")
    grid = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
    for axes, (name, values) in zip(grid, panels or [("", None)], strict=True):
        _draw(figure, axes, found.projection, name, values)
    count = f"{len(found.projection.points):,} transitions"
    figure.suptitle(title, fontsize=12, weight="bold", x=0.01, ha="left")
    shares = " and ".join(f"{share:.0%}" for share in found.projection.shares)
    caption = f"{count}; the two directions hold {shares} of phi's variance."
    if found.doubt is None:
        caption += f" No {found.doubt_name}: bonus_scale is 0."
    figure.supxlabel(caption, fontsize=9, color=GREY)
    save(figure, path)


def _draw(
    figure: Figure, axes: Axes, where: Projection, name: str, values: np.ndarray | None
) -> None:
    across, up = where.points.T
    look: Any = {"s": 5, "lw": 0, "rasterized": True}
    if values is None:
        axes.scatter(across, up, color=GREY, **look)
    else:
        low, high = np.quantile(values, QUANTILES)
        drawn = axes.scatter(across, up, c=values, vmin=low, vmax=high, cmap="viridis", **look)
        figure.colorbar(drawn, ax=axes, label=name, extend="both")
        axes.set_title(f"phi(s, a), coloured by {name}", fontsize=10.5)
    axes.set(xlabel="first principal direction", ylabel="second")
    axes.tick_params(labelsize=8)
