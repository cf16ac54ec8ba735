"""How the time of an update, and of a sample from replay, grows with each size.

`python benchmarks/scaling.py --picture scaling.png`: time ~ size ** exponent for feature_dim,
batch_size, negatives, buffer_size and devices (on the CPU virtual ones).
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

import devices
from command import run
from phimu.agents.schedule import Preset
from phimu.data.replay import Replay
from phimu.reports.figures import LINE_COLOURS, save, with_grid
from phimu.settings import override
from phimu.speed import updates
from phimu.training.memory import keep_freed_memory

BATCH = 256
CASE = "ctrl-ucb-m 256-256-256, bonus"  # of updates.CASES
_DOUBLING = (64, 128, 256, 512, 1024, 2048, 4096)
SIZES: dict[str, tuple[int, ...]] = {
    "feature_dim": (128, 256, 512, 1024, 2048),
    "batch_size": _DOUBLING,
    "negatives": _DOUBLING,
    "buffer_size": (10_000, 100_000, 1_000_000),
    "devices": (1, 2, 4),
}


class Scaling(NamedTuple):
    """Time against one size, the others as in ctrl-ucb-m 256-256-256 with a bonus."""

    varied: str
    sizes: tuple[int, ...]
    milliseconds: tuple[float, ...]  # of an update; for buffer_size, of sampling a batch
    exponent: float  # time ~ size ** exponent, over the upper half of the sizes


def scaling(varied: str, rounds: int, work: float = updates.WORK) -> Scaling:
    """One of SIZES; at each size the quickest round counts."""
    keep_freed_memory()
    measure = MEASURES[varied]
    sizes = SIZES[varied]
    times = tuple(1e3 * measure(size, rounds, work) for size in sizes)
    return Scaling(varied, sizes, times, exponent(sizes, times))


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope by least squares of log time on log size, over the upper half of the sizes."""
    upper = slice(len(sizes) // 2, None)
    return float(np.polyfit(np.log(sizes[upper]), np.log(times[upper]), 1)[0])


def _update(name: str) -> Callable[[int, int, float], float]:
    """Seconds of an update with one setting at another size."""

    def measure(size: int, rounds: int, work: float) -> float:
        own = {"critic_width": size} if name == "feature_dim" else {}
        chosen: Preset = override(updates.settings(*updates.CASES[CASE]), {name: size} | own)
        return updates.time_update(chosen, rounds, work)[0]

    return measure


def _buffer_size(size: int, rounds: int, work: float) -> float:
    """Seconds of a sample of a full buffer; no floating point work, so `work` is not asked."""
    replay = Replay(updates.SPEC, size, 0, BATCH)
    updates.fill(replay, size)
    rng = np.random.default_rng(1)
    samples, times = 1_000, []
    for _ in range(rounds + 1):  # the first one warms up
        begin = time.perf_counter()
        for _ in range(samples):
            replay.sample(rng)
        times.append((time.perf_counter() - begin) / samples)
    return min(times[1:])


def _devices(size: int, rounds: int, work: float) -> float:
    """JAX's devices are made once, so each number has a process of its own."""
    return devices.update_seconds(CASE, size, rounds, work)


MEASURES: dict[str, Callable[[int, int, float], float]] = {
    "feature_dim": _update("feature_dim"),
    "batch_size": _update("batch_size"),
    "negatives": _update("negatives"),
    "buffer_size": _buffer_size,
    "devices": _devices,
}


def scaling_curves(path: Path, curves: Sequence[Scaling]) -> None:
    """A panel per size: measured times, and the power of the size that fits its upper half."""
    figure = Figure(figsize=(3.1 * len(curves), 3.4), layout="constrained")
    for axes, curve in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
        sizes, times = np.array(curve.sizes, float), np.array(curve.milliseconds)
        upper = slice(len(sizes) // 2, None)
        middle = np.exp([np.log(sizes[upper]).mean(), np.log(times[upper]).mean()])
        fit = middle[1] * (sizes[upper] / middle[0]) ** curve.exponent
        axes.loglog(sizes, times, "o", c=LINE_COLOURS[0], ms=5)
        axes.loglog(sizes[upper], fit, c=LINE_COLOURS[1], lw=1.9)
        # At least a decade, so that there is a number on the axis and flat looks flat.
        spread = max(10.0, 2 * times.max() / times.min()) ** 0.5
        centre = (times.max() * times.min()) ** 0.5
        axes.set_ylim(centre / spread, centre * spread)
        what = "sampling a batch" if curve.varied == "buffer_size" else "an update"
        axes.set_title(f"{what} ~ size$^{{{curve.exponent:.2f}}}$", fontsize=11)
        axes.set_xlabel(curve.varied, fontsize=11)
        axes.set_xticks(sizes[:: max(1, len(sizes) // 3)])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.minorticks_off()
        with_grid(axes)
    figure.axes[0].set_ylabel("milliseconds", fontsize=11)
    save(figure, path)


if __name__ == "__main__":

    def every(rounds: int, steps: int) -> list[Scaling]:
        return [scaling(name, rounds) for name in SIZES]

    sys.exit(run(__doc__, "scaling", every, scaling_curves))
