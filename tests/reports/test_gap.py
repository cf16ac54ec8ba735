"""The settings and the picture of the maze with a gap."""

import numpy as np

from phimu.collection.maze_gap import MAZE, START, Plans
from phimu.reports.gap import PENALTY, gap_figure, settings
from phimu.reports.maze import CELLS
from phimu.settings import override


def test_both_agents_differ_in_the_penalty_alone():
    bare, careful = settings(0.0), settings(PENALTY)
    assert bare != careful
    assert override(bare, {"bonus_scale": PENALTY}) == careful
    assert careful.settings.planner.actor_penalty == 0  # nothing else holds it near the data


def test_it_is_drawn(tmp_path):
    way = np.array([START, (5.0, 5.0)])
    plans = {"without": Plans([way], 0.0, 1.0), "with": Plans([way, way], 1.0, 0.0)}
    penalty = np.random.default_rng(0).uniform(size=(CELLS, CELLS))
    gap_figure(tmp_path / "gap.png", plans, penalty)
    assert (tmp_path / "gap.png").stat().st_size > 5_000
    assert MAZE.size == 20.0
