"""Logged data of the four-room maze that never passes one doorway, and plans made from it.

The doorway between the upper rooms is the short way from the upper right room to the goal in the
upper left one. Nothing was logged there, so nobody can know whether it is open: the way that is
known leads down, through the lower rooms and up again.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from phimu.data.logged import LoggedDataset
from phimu.data.sets.arrays import from_arrays
from phimu.data.sets.cutting import Bound, box, cut_out
from phimu.environments.maze_geometry import Maze

# Quieter than the paper's maze, whose noise could leap the gap, with wider doorways, and walls so
# thick that a smooth Q can differ on their two sides.
MAZE = Maze(top_speed=2.0, noise=0.3, door_width=6.0, wall_thickness=3.0)
GAP: tuple[Bound, Bound] = ((0, 7.5, 12.5), (1, 11.5, 18.5))
START, GOAL, GOAL_RADIUS = (16.0, 15.0), (2.0, 18.0), 2.0
HORIZON = 100  # steps of a plan


def at_goal(position: np.ndarray) -> np.ndarray:
    """[N] bool."""
    return np.linalg.norm(position - np.array(GOAL), axis=-1) <= GOAL_RADIUS


def random_walks(episodes: int = 3_000, length: int = 20, seed: int = 0) -> LoggedDataset:
    """Random actions from random starts, for `length` steps or to the goal, which pays 1."""
    rng = np.random.default_rng(seed)
    position = MAZE.uniform_positions(episodes, rng)
    walking = ~at_goal(position)
    steps = []
    for _ in range(length):
        action = rng.uniform(-1, 1, position.shape)
        following = MAZE.transition(position, action, rng)
        steps.append((position, action, following, at_goal(following), walking))
        position, walking = following, walking & ~steps[-1][3]
    observation, action, following, reached, logged = (
        np.stack(column, axis=1) for column in zip(*steps, strict=True)
    )
    episode, _ = np.nonzero(logged)
    return from_arrays(
        observation=observation[logged],
        action=action[logged],
        reward=reached[logged].astype(np.float32),
        next_observation=following[logged],
        terminated=reached[logged],
        episode=episode,
        name="maze_walks",
    )


def gap_set(episodes: int = 3_000, length: int = 20, seed: int = 0) -> LoggedDataset:
    """The same without what touches the gap."""
    return cut_out(random_walks(episodes, length, seed), box(GAP), "maze_gap")


class Plans(NamedTuple):
    """Where a policy went from START, and how that ended: paths stop there."""

    paths: list[np.ndarray]  # each [steps + 1, 2]
    reached: float  # the share that came to the goal by ways that were logged
    in_gap: float  # the share that entered the gap, about which nothing is known


def follow(act: Callable[[np.ndarray], np.ndarray], episodes: int = 50, seed: int = 0) -> Plans:
    """Episodes of a policy in the maze, which end at the goal or in the gap."""
    rng, inside = np.random.default_rng(seed), box(GAP)
    position = np.tile(np.array(START), (episodes, 1))
    places, ended = [position], np.zeros(episodes, np.int64)  # the step at which they ended
    reached, in_gap = np.zeros((2, episodes), bool)
    for step in range(1, HORIZON + 1):
        action = np.asarray(act(position.astype(np.float32)))
        moved = MAZE.transition(position, action, rng)
        going = ~(reached | in_gap)
        position = np.where(going[:, None], moved, position)
        in_gap |= going & inside(position)
        reached |= going & ~in_gap & at_goal(position)
        ended[going] = step
        places.append(position)
    paths = [np.array([place[i] for place in places[: ended[i] + 1]]) for i in range(episodes)]
    return Plans(paths, float(reached.mean()), float(in_gap.mean()))
