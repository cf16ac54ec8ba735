from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from phimu.agents.sac import Sac
from phimu.environments.maze_geometry import Maze
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.reports.maze import (
    CELLS,
    DRAWS,
    BaseMeasure,
    base_of,
    cell_of,
    held_out_pairs,
    learned_masses,
    maze_of,
    sampling_floor,
    total_variation,
    true_masses,
)

MAZE = Maze()
# In the middle of two rooms, more than four standard deviations from every wall.
POSITIONS = np.array([[15.25, 4.75], [4.5, 15.0]])
ACTIONS = np.array([[0.1, -0.1], [0.0, 0.2]])


def means() -> np.ndarray:
    return POSITIONS + MAZE.top_speed * MAZE.time_interval * ACTIONS


def exact_masses() -> np.ndarray:
    """The Gaussian's probability of each cell: [pairs, CELLS^2]."""
    edges = np.linspace(0, MAZE.size, CELLS + 1)
    x, y = (np.diff(norm.cdf(edges, mean[:, None], MAZE.noise)) for mean in means().T)
    return (x[:, :, None] * y[:, None, :]).reshape(len(POSITIONS), -1)


def test_cell_of_by_hand() -> None:
    # Cells of a 20 x 20 maze have side 0.5.
    points = np.array([[0, 0], [0.49, 0.51], [0.5, 0], [19.9, 0.1], [20, 20], [3.3, 12.7]])
    assert cell_of(points, 20.0).tolist() == [0, 1, 40, 39 * 40, 1599, 6 * 40 + 25]
    # The grid has as many cells in a smaller one.
    assert cell_of(np.array([[0.99, 0.3]]), 1.0).tolist() == [39 * 40 + 12]


def test_cell_of_keeps_what_rounding_put_outside() -> None:
    assert cell_of(np.array([[-1e-7, 20.000002]]), 20.0).tolist() == [39]


def test_total_variation_by_hand() -> None:
    a = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    b = np.array([[0.5, 0.5, 0.0], [0.0, 0.4, 0.6], [0.3, 0.3, 0.4]])
    np.testing.assert_allclose(total_variation(a, b), [0.0, 1.0, 0.1])


def test_true_masses_are_the_gaussian_in_free_space() -> None:
    exact = exact_masses()
    np.testing.assert_allclose(exact.sum(axis=1), 1, atol=1e-4)
    masses = true_masses(MAZE, POSITIONS, ACTIONS, np.random.default_rng(0))
    np.testing.assert_allclose(masses.sum(axis=1), 1)
    # |p-hat - p| of a binomial has mean sqrt(2 p (1 - p) / pi n), nearly, where n p is not small.
    expected = 0.5 * np.sqrt(2 * exact * (1 - exact) / (np.pi * DRAWS)).sum(axis=1)
    assert (total_variation(masses, exact) < 1.15 * expected).all()
    assert (total_variation(masses[::-1], exact) > 0.99).all()  # the two pairs are told apart


def test_true_masses_stop_at_a_wall() -> None:
    wall = 0.5 * MAZE.size + MAZE.wall_thickness / 2  # right face of the upright wall
    position = np.array([[wall + 0.1, 18.9]])  # the doorway is out of reach
    (masses,) = true_masses(MAZE, position, np.array([[-1.0, 0.0]]), np.random.default_rng(0))
    grid = masses.reshape(CELLS, CELLS)
    at_face = int(wall * CELLS / MAZE.size)
    assert grid[:at_face].sum() == 0
    # Whoever would have gone beyond the face stands on it.
    assert grid[at_face].sum() > norm.cdf(1.9 / MAZE.noise)


def stub(log_ratio_shift: float = 0.0) -> Any:
    """A run whose log ratio knows the density against the uniform one."""

    def exact(name: str, positions: Any, actions: Any, points: Any) -> np.ndarray:
        assert name == "log_ratio"
        np.testing.assert_allclose(positions, POSITIONS, rtol=1e-6)
        np.testing.assert_allclose(actions, ACTIONS, rtol=1e-6)
        logs = norm.logpdf(points[None], means()[:, None], MAZE.noise).sum(axis=-1)
        return logs + np.log(MAZE.size**2) + log_ratio_shift

    return SimpleNamespace(learner=SimpleNamespace(query=exact))


def uniform_base(n: int) -> BaseMeasure:
    points = np.random.default_rng(1).uniform(0, MAZE.size, (n, 2))
    return BaseMeasure(points, np.full(n, 1 / n))


@pytest.mark.parametrize("n", [50_000, 200_000])
def test_exact_ratio_scores_the_sampling_floor(n: int) -> None:
    base = uniform_base(n)
    learned, log_z = learned_masses(stub(), MAZE, base, POSITIONS, ACTIONS)
    np.testing.assert_allclose(learned.sum(axis=1), 1)
    distance = total_variation(learned, exact_masses())
    floor = sampling_floor(MAZE, base, exact_masses())
    # The points of a cell also lie unevenly within it, which the floor does not count.
    assert 0.7 * floor < distance.mean() < 1.4 * floor
    assert floor < 0.1 * np.sqrt(50_000 / n)
    assert np.abs(log_z).max() < 4 * np.sqrt(MAZE.size**2 / (4 * np.pi * n))


def test_scale_of_the_ratio_goes_into_log_z_alone() -> None:
    base = uniform_base(20_000)
    found = [learned_masses(stub(shift), MAZE, base, POSITIONS, ACTIONS) for shift in (0.0, 2.0)]
    (plain, log_z), (shifted, shifted_log_z) = found
    np.testing.assert_allclose(shifted, plain, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(shifted_log_z, log_z + 2.0, rtol=1e-6)


def test_weights_of_the_base_measure_count() -> None:
    """Twice the points of the left half with half the weight are the same measure."""
    run = stub()
    base = uniform_base(20_000)
    left = base.points[:, 0] < MAZE.size / 2
    points = np.concatenate([base.points, base.points[left]])
    halved = np.where(left, base.weights / 2, base.weights)
    doubled = BaseMeasure(points, np.concatenate([halved, halved[left]]))
    for here, there in zip(
        learned_masses(run, MAZE, base, POSITIONS, ACTIONS),
        learned_masses(run, MAZE, doubled, POSITIONS, ACTIONS),
        strict=True,
    ):
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-12)


def test_floor_is_one_where_the_base_measure_has_no_point() -> None:
    base = BaseMeasure(np.full((10, 2), 0.1), np.full(10, 0.1))  # all in cell 0
    truth = np.zeros((2, CELLS**2))
    truth[0, 5] = truth[1, 7] = 1
    assert sampling_floor(MAZE, base, truth) == 1.0
    truth[1] = 0
    truth[1, 0] = 1
    assert sampling_floor(MAZE, base, truth) == pytest.approx(0.5)


def test_held_out_pairs_are_70_in_free_space_and_30_beside_walls() -> None:
    positions, actions, beside = held_out_pairs(MAZE, np.random.default_rng(0))
    assert positions.shape == actions.shape == (100, 2)
    assert (beside.sum(), (~beside).sum()) == (30, 70)
    distance = MAZE.distance_to_wall(positions)
    assert (distance[beside] <= 1).all()
    assert (distance[~beside] > 1).all()
    assert not MAZE.inside_wall(positions).any()
    assert (np.abs(actions) <= 1).all()
    assert len(np.unique(positions, axis=0)) == 100


def test_held_out_pairs_of_a_maze_without_free_space_are_all_beside() -> None:
    narrow = Maze(size=5.0, door_width=1.0)  # rooms of 2 x 2
    positions, actions, beside = held_out_pairs(narrow, np.random.default_rng(0))
    assert len(positions) == len(actions) == 30
    assert beside.tolist() == [True] * 30


def test_another_task_or_agent_is_refused() -> None:
    task = open_task("phimu/probe-ConstantReward-v0")
    run: Any = SimpleNamespace(task=task, agent=Sac())
    with pytest.raises(InputError, match="not one in phimu/probe-ConstantReward-v0"):
        maze_of(run)
    with pytest.raises(InputError, match="SAC learns no transition"):
        base_of(run)
    run.task = open_task("phimu/FourRooms-v0", noise=0.5)
    assert maze_of(run) == Maze(noise=0.5)
