"""The paper's first figure: the learned transition of the four-room maze against the true one."""

import numpy as np

from phimu.agents.protocol import answers
from phimu.environments.four_rooms import FourRooms
from phimu.environments.maze_geometry import Maze
from phimu.errors import InputError
from phimu.reports.figures import Panel
from phimu.training.base_measure import BaseMeasure, base_measure
from phimu.training.online import OnlineRun

CELLS = 40  # the grid of the scores, a side
DRAWS = 20_000  # from the environment for each true density
CHUNK = 16_384  # points at a time, for memory
BESIDE = 1.0  # how near a wall counts as beside it


def held_out_pairs(
    maze: Maze, rng: np.random.Generator, free: int = 70, beside: int = 30
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(positions, actions, whether beside a wall): `free` in free space, `beside` near a wall."""
    candidates = maze.uniform_positions(50 * (free + beside), rng)
    near = maze.distance_to_wall(candidates) <= BESIDE
    far, close = candidates[~near][:free], candidates[near][:beside]
    positions = np.concatenate([far, close])
    actions = rng.uniform(-1, 1, positions.shape)
    return positions, actions, np.repeat([False, True], [len(far), len(close)])


def cell_of(points: np.ndarray, size: float) -> np.ndarray:
    """Index of each point's cell, ix * CELLS + iy."""
    cell = np.clip((points * (CELLS / size)).astype(int), 0, CELLS - 1)
    return cell[:, 0] * CELLS + cell[:, 1]


def draws(
    maze: Maze, position: np.ndarray, action: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Samples of s' from one (s, a): [count, 2]."""
    return maze.transition(np.tile(position, (count, 1)), np.tile(action, (count, 1)), rng)


def true_masses(
    maze: Maze, positions: np.ndarray, actions: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """P(cell | s, a) by simulation: [pairs, CELLS^2]."""
    reached = (draws(maze, *pair, DRAWS, rng) for pair in zip(positions, actions, strict=True))
    cells = [np.bincount(cell_of(each, maze.size), minlength=CELLS**2) for each in reached]
    return np.stack(cells) / DRAWS


def learned_masses(
    run: OnlineRun, maze: Maze, base: BaseMeasure, positions: np.ndarray, actions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """P(cell | s, a) by weighting the base measure with the ratio, and log Z(s, a) before that."""
    cells = cell_of(base.points, maze.size)
    masses = np.zeros((len(positions), CELLS**2))
    pairs = positions.astype(np.float32), actions.astype(np.float32)
    for start in range(0, len(cells), CHUNK):
        rows = slice(start, start + CHUNK)
        logs = run.learner.query("log_ratio", *pairs, base.points[rows])
        weighted = np.exp(np.asarray(logs, np.float64)) * base.weights[rows]
        for mass, row in zip(masses, weighted, strict=True):
            mass += np.bincount(cells[rows], row, minlength=CELLS**2)
    normaliser = masses.sum(axis=1)
    return masses / normaliser[:, None], np.log(normaliser)


def total_variation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 0.5 * np.abs(a - b).sum(axis=-1)


def maze_of(run: OnlineRun) -> Maze:
    """The geometry of the maze the run was trained in."""
    environment = run.task.env.unwrapped
    if not isinstance(environment, FourRooms):
        raise InputError(
            f"This needs a run in phimu/FourRooms-v0 or the like, not one in {run.task.name}."
        )
    return environment.maze


def base_of(run: OnlineRun) -> BaseMeasure:
    """All points of the base measure of a run that learns a transition."""
    if not answers(run.agent, "log_ratio"):
        raise InputError("The heat map needs a CTRL agent: SAC learns no transition.")
    return base_measure(run, most=None)


def scores(run: OnlineRun, seed: int = 0) -> dict[str, float]:
    """Total variation of 100 held-out pairs, in free space and beside walls, and mean |log Z|."""
    maze, base, rng = maze_of(run), base_of(run), np.random.default_rng(seed)
    positions, actions, beside = held_out_pairs(maze, rng)
    cross = beside & (maze.distance_to_wall(positions, outer=False) <= BESIDE)
    truth = true_masses(maze, positions, actions, rng)
    learned, log_z = learned_masses(run, maze, base, positions, actions)
    distance = total_variation(learned, truth)
    return {
        "total_variation_free": float(distance[~beside].mean()),
        "total_variation_beside_walls": float(distance[beside].mean()),
        "total_variation_beside_inner_walls": float(distance[cross].mean()),
        "mean_abs_log_z": float(np.abs(log_z).mean()),
        "sampling_floor": sampling_floor(maze, base, truth[~beside]),
    }


def sampling_floor(maze: Maze, base: BaseMeasure, truth: np.ndarray) -> float:
    """The total variation a perfect ratio would score in free space with this many points of p.

    A perfect ratio is right on average in a cell; what is left is the noise of the cell's own
    share of points, estimated by comparing two random halves.
    """
    cells = cell_of(base.points, maze.size)
    half = np.random.default_rng(0).random(len(cells)) < 0.5
    first, second = (
        np.bincount(cells[h], base.weights[h], minlength=CELLS**2) for h in (half, ~half)
    )
    whole = first + second
    with np.errstate(invalid="ignore", divide="ignore"):
        # the difference of two halves has the spread of twice the whole's own error
        noise = np.where(whole > 0, 1 + (first - second) / whole, 0.0)
    reweighted = truth * noise
    total = reweighted.sum(axis=1)
    reached = total > 0  # where p has no point at all, nothing of the truth can be learned
    distance = total_variation(reweighted[reached] / total[reached, None], truth[reached])
    return float((distance.sum() + (~reached).sum()) / len(truth))


def panels(run: OnlineRun, seed: int = 0) -> list[Panel]:
    """Four (s, a): open floor, beside a wall, towards a doorway, beside the boundary."""
    maze, base, rng = maze_of(run), base_of(run), np.random.default_rng(seed)
    if maze.walls != "cross":
        raise InputError(f"The heat map is of four rooms, and {run.task.name} has none.")
    size, half = maze.size, maze.wall_thickness / 2
    door = maze.door_positions[0] * size
    named = [
        ("in the open", (0.75 * size, 0.25 * size), (-0.6, 0.6)),
        ("beside a wall", (0.5 * size + half + 0.5, 0.88 * size), (-0.8, 0.0)),
        ("at a doorway", (0.5 * size + half + 1.0, door), (-1.0, 0.0)),
        ("in a corner", (1.0, size - 1.0), (-0.5, 0.5)),
    ]
    positions, actions = (np.array([row[i] for row in named]) for i in (1, 2))
    truth = true_masses(maze, positions, actions, rng)
    learned, _ = learned_masses(run, maze, base, positions, actions)
    moved = maze.move(positions, maze.top_speed * maze.time_interval * actions)
    return [
        Panel(
            title=name,
            position=positions[i],
            target=moved[i],
            samples=draws(maze, positions[i], actions[i], 60, rng),
            true_mass=truth[i].reshape(CELLS, CELLS),
            learned_mass=learned[i].reshape(CELLS, CELLS),
            total_variation=float(total_variation(learned[i], truth[i])),
        )
        for i, (name, _, _) in enumerate(named)
    ]
