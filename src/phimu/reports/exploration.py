"""Where a run in a maze has been, and what its bonus was there: a film strip of heat maps.

The bonus of a moment is gone once phi and covariance have moved on, so it is written down while a
run is there: `record` adds the moment to the run's exploration.json. Visits are in its buffer.
"""

import json
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from phimu.environments.maze_geometry import Maze
from phimu.errors import InputError
from phimu.evaluation.novelty import bonus_map, bonus_of
from phimu.reports.figures import DENSITY_COLOURS, GREY, save
from phimu.reports.maze import CELLS, cell_of, maze_of
from phimu.runs.directory import RunDirectory
from phimu.runs.files import write_atomically
from phimu.training.online import OnlineRun

RECORD = "exploration.json"


class Moment(NamedTuple):
    """A run after so many steps. Maps are [CELLS, CELLS], indexed [ix, iy]."""

    step: int
    visits: np.ndarray  # counts
    bonus: np.ndarray | None  # NaN in walls; None of an agent that has none


class Found(NamedTuple):
    """How a run came to its goal while it trained."""

    first_success: int | None  # the step at which it first ended at the goal
    successes: int  # episodes that did
    episodes: int  # that ended


def found(run: OnlineRun) -> Found:
    rows = run.replay.latest(len(run.replay))
    if run.replay.added > len(run.replay):
        raise InputError("The buffer has forgotten the run's first steps: give a larger one.")
    reached = np.flatnonzero(rows.terminated)
    first = int(reached[0]) + 1 if len(reached) else None
    return Found(first, len(reached), len(reached) + int(np.sum(rows.truncated)))


def visits(run: OnlineRun, maze: Maze, step: int) -> np.ndarray:
    """Of every cell in the first `step` steps: [CELLS, CELLS]."""
    positions = run.replay.latest(len(run.replay)).next_observation[:step]
    counts = np.bincount(cell_of(positions, maze.size), minlength=CELLS**2)
    return counts.reshape(CELLS, CELLS)


def bonus_grid(run: OnlineRun, maze: Maze) -> np.ndarray | None:
    """The run's bonus now, the mean over a few actions: [CELLS, CELLS]; None if it has none."""
    if not hasattr(run.agent, "bonus"):
        return None
    ticks = (np.arange(CELLS) + 0.5) * (maze.size / CELLS)
    centres = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
    values = bonus_map(bonus_of(run), centres, run.task.spec, np.random.default_rng(0))
    values[maze.inside_wall(centres)] = np.nan
    return values.reshape(CELLS, CELLS)


def recorded(directory: RunDirectory) -> dict[int, Any]:
    """The bonus by step, as exploration.json has it; nothing if there is no such file."""
    try:
        moments = json.loads((directory.path / RECORD).read_bytes())["moments"]
        return {int(moment["step"]): moment["bonus"] for moment in moments}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{directory.path / RECORD} cannot be read ({error}): remove it, and the moments that "
            "it had are lost."
        ) from error


def record(run: OnlineRun, directory: RunDirectory) -> list[Moment]:
    """Add the run as it is now to its record; all its moments so far, in order."""
    maze = maze_of(run)
    grid = bonus_grid(run, maze)
    maps = recorded(directory) | {run.step: None if grid is None else _rounded(grid)}
    ways = found(run)
    text = {
        "first_success": ways.first_success,
        "successes": ways.successes,
        "episodes": ways.episodes,
        "moments": [{"step": step, "bonus": maps[step]} for step in sorted(maps)],
    }
    write_atomically(directory.path / RECORD, (json.dumps(text) + "\n").encode())
    return [
        Moment(step, visits(run, maze, step), _array(maps[step]))
        for step in sorted(maps)
        if step <= run.step
    ]


def _rounded(grid: np.ndarray) -> list[list[float | None]]:
    """For JSON, which has no NaN."""
    return [[None if np.isnan(x) else float(f"{x:.4g}") for x in row] for row in grid]


def _array(grid: Any) -> np.ndarray | None:
    return None if grid is None else np.array(grid, np.float64)


def film_strip(path: Path, moments: list[Moment], maze: Maze, title: str) -> None:
    """Visits above, the bonus below, a column for each moment; one colour scale for each row."""
    drawn = [moment.bonus for moment in moments if moment.bonus is not None]
    rows = 2 if drawn else 1
    size = (2.5 * len(moments) + 1.2, 2.6 * rows + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, len(moments), sharex=True, sharey=True, squeeze=False)
    # From half a visit on, so that a single one is not as white as none.
    counted = LogNorm(0.5, max(2, *(int(moment.visits.max()) for moment in moments)))
    for axes, moment in zip(grid[0], moments, strict=True):
        seen = np.where(moment.visits > 0, moment.visits, np.nan)
        image = draw_map(axes, seen, counted, maze)
        axes.set_title(f"{moment.step:,} steps", fontsize=11, weight="bold")
    grid[0, 0].set_ylabel("visits", fontsize=11)
    figure.colorbar(image, ax=grid[0], shrink=0.8, format="{x:,.0f}").minorticks_off()
    if drawn:
        # Not larger than most: a few cells far from all data would make the others look alike.
        values = np.concatenate([each[~np.isnan(each)] for each in drawn])
        scale = Normalize(0.0, float(np.quantile(values, 0.99)) or 1.0)
        for axes, moment in zip(grid[1], moments, strict=True):
            blank = np.full((CELLS, CELLS), np.nan)
            image = draw_map(axes, blank if moment.bonus is None else moment.bonus, scale, maze)
        grid[1, 0].set_ylabel("bonus", fontsize=11)
        figure.colorbar(image, ax=grid[1], shrink=0.8)
    figure.suptitle("\n".join(textwrap.wrap(title, 24 * len(moments))), weight="bold")
    figure.supxlabel("White: never visited. Walls are black.", fontsize=9.5, color=GREY)
    save(figure, path)


def draw_map(axes: Axes, values: np.ndarray, norm: Normalize, maze: Maze) -> Any:
    """Values [CELLS, CELLS], indexed [ix, iy], as a heat map between the walls."""
    size = maze.size
    image = axes.imshow(
        values.T,  # an image has its rows along y
        origin="lower",
        extent=(0.0, size, 0.0, size),
        cmap=DENSITY_COLOURS,
        norm=norm,
        interpolation="nearest",
    )
    for left, bottom, right, top in maze.rectangles:
        axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, color="black", lw=0))
    axes.set(xlim=(0.0, size), ylim=(0.0, size), aspect="equal", xticks=[], yticks=[])
    return image
