"""How the elliptical penalty of a CTRL-LCB run grows away from the data that it learned from."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from phimu.data.logged import LoggedDataset
from phimu.errors import InputError
from phimu.reports.figures import GREY, LINE_COLOURS, save
from phimu.training.offline import OfflineRun

PAIRS = 20_000  # at most, evenly spread over a dataset
FAR = 3.0  # standard deviations of the data, for states that it does not have
DATA = "the data's pairs"
BINS = 60


class PairPenalty(NamedTuple):
    pairs: str
    mean: float
    median: float
    high: float  # 95 % are below it
    ratio: float  # the mean over that of the data's pairs


def penalties(
    run: OfflineRun, data: LoggedDataset, others: Mapping[str, LoggedDataset], seed: int = 0
) -> dict[str, np.ndarray]:
    """[n] of each kind of pair, the data's own first."""
    if not hasattr(run.agent, "penalty"):
        raise InputError("The agent of this run has no penalty: name a run of ctrl-lcb.")
    rng = np.random.default_rng(seed)
    observation, action = _pairs(data)
    everywhere = rng.uniform(-1, 1, action.shape).astype(np.float32)
    spread = FAR * data.transitions.observation.std(axis=0, dtype=np.float64)
    away = rng.normal(
        data.transitions.observation.mean(axis=0, dtype=np.float64), spread, observation.shape
    )
    chosen = run.policy()(observation)
    pairs = {
        DATA: (observation, action),
        "its states, the policy's actions": (observation, chosen),
        "its states, random actions": (observation, everywhere),
        **{name: _pairs(other) for name, other in others.items()},
        f"random states, {FAR:g} x its spread": (away.astype(np.float32), action),
    }
    return {name: run.learner.query("penalty", *pair) for name, pair in pairs.items()}


def _pairs(data: LoggedDataset) -> tuple[np.ndarray, np.ndarray]:
    index = np.linspace(0, len(data) - 1, min(PAIRS, len(data))).astype(np.int64)
    return data.transitions.observation[index], data.transitions.action[index]


def table(found: Mapping[str, np.ndarray]) -> list[PairPenalty]:
    rows, own = [], found[DATA].mean(dtype=np.float64)
    for name, values in found.items():
        mean = values.mean(dtype=np.float64)
        numbers = mean, np.median(values), np.quantile(values, 0.95), mean / own
        rows.append(PairPenalty(name, *map(float, numbers)))
    return rows


def penalty_figure(path: Path, found: Mapping[str, np.ndarray], title: str) -> None:
    """A histogram below the other for each kind of pair; the penalty spans orders of magnitude."""
    rows = table(found)
    figure = Figure(figsize=(7.2, 0.8 + 1.0 * len(rows)), layout="constrained")
    low = min(values.min() for values in found.values())
    high = max(values.max() for values in found.values())
    bins = np.geomspace(max(0.95 * low, 1e-6), 1.05 * high, BINS + 1)
    every = np.atleast_1d(figure.subplots(len(rows), 1, sharex=True))
    for axes, row, colour in zip(every, rows, cycle(LINE_COLOURS), strict=False):
        axes.hist(found[row.pairs], bins, color=colour, alpha=0.85, lw=0)
        axes.axvline(row.mean, color="black", lw=1.4)
        axes.set_xscale("log")
        axes.set_yticks([])
        axes.spines[["top", "right", "left"]].set_visible(False)
        text = f"{row.pairs}: mean {row.mean:.3g}, {row.ratio:.3g} x the data's"
        axes.set_title(text, fontsize=9.5, loc="left")
    every[-1].set_xlabel("elliptical penalty; lines are means", fontsize=10, color=GREY)
    figure.suptitle(title, fontsize=12, weight="bold")
    save(figure, path)
