"""CTRL-LCB where the answer is known: a maze of which one doorway is not in the data."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from phimu.agents import preset
from phimu.agents.schedule import Preset
from phimu.collection.maze_gap import GAP, GOAL, GOAL_RADIUS, MAZE, START, Plans
from phimu.reports.exploration import draw_map
from phimu.reports.figures import GREY, save
from phimu.reports.maze import CELLS
from phimu.settings import override
from phimu.training.offline import OfflineRun

PENALTY = 10.0  # bonus_scale, of a penalty that is small on 100,000 rows; the goal pays 1
UPDATES = 6_000
# Small networks, and the plain contrast: the maze's own noise keeps it from being solved, and phi
# then tells places apart that are nearer to each other than the gap is wide. The kernel is narrow
# for the same reason.
SETTINGS = {
    "feature_dim": 32,
    "feature_sizes": (64, 64),
    "feature_learning_rate": 2e-3,
    "representation_updates": 1_500,
    "planner": "squared_error",
    "actor_penalty": 0.0,  # so that nothing but the penalty holds the policy near the data
    "critic_penalty": 0.0,
    "actor_sizes": (128, 128),
    "critic_width": 256,
    "critic_learning_rate": 3e-3,
    "discount": 0.97,
    "target_rate": 0.1,
    "bonus_kernel": (512, 0.3),
    "effective_rows": 100_000,
    "beyond_usual": True,
    "exact_penalty": True,
}


def settings(bonus_scale: float) -> Preset:
    """CTRL-LCB for the maze, with this penalty."""
    chosen = SETTINGS | {"bonus_scale": bonus_scale, "evaluate_every": 0}
    return override(preset("ctrl-lcb", "small", logged=True), chosen)


def penalty_grid(run: OfflineRun) -> np.ndarray:
    """The run's penalty of standing still: [CELLS, CELLS], indexed [ix, iy], NaN in walls."""
    ticks = (np.arange(CELLS) + 0.5) * (MAZE.size / CELLS)
    centres = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
    still = np.zeros_like(centres, np.float32)
    found = np.array(run.learner.query("penalty", centres.astype(np.float32), still))
    found[MAZE.inside_wall(centres)] = np.nan
    return found.reshape(CELLS, CELLS)


def gap_figure(path: Path, plans: Mapping[str, Plans], penalty: np.ndarray) -> None:
    """The ways of each policy, side by side, over one map of the penalty."""
    figure = Figure(figsize=(4.2 * len(plans) + 1, 4.8), layout="constrained")
    every = figure.subplots(1, len(plans), squeeze=False)[0]
    scale = Normalize(0.0, float(np.nanmax(penalty)) or 1.0)
    (_, left, right), (_, bottom, top) = GAP
    for axes, (label, found) in zip(every, plans.items(), strict=True):
        image = draw_map(axes, penalty, scale, MAZE)
        for way in found.paths:
            axes.plot(*way.T, color="#d1495b", lw=0.8, alpha=0.5)
        size = right - left, top - bottom
        axes.add_patch(Rectangle((left, bottom), *size, fill=False, hatch="//", ec=GREY, lw=1.2))
        axes.add_patch(Circle(GOAL, GOAL_RADIUS, fill=False, ec="#2e8b57", lw=2))
        axes.plot(*START, "o", color="#2f6690")
        told = f"goal {found.reached:.0%}, into the gap {found.in_gap:.0%}"
        axes.set_title(f"{label}\n{told}", fontsize=10.5)
    figure.colorbar(image, ax=list(every), shrink=0.8, label="penalty")
    words = "Hatched: nothing was logged there. Dot: start, circle: goal. Walls are black."
    figure.supxlabel(words, fontsize=9.5, color=GREY)
    save(figure, path)
