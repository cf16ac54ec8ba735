"""The maze of which one doorway is not in the data, and ways that policies take in it."""

import numpy as np

from phimu.collection.maze_gap import (
    GAP,
    GOAL,
    HORIZON,
    MAZE,
    START,
    at_goal,
    follow,
    gap_set,
    random_walks,
)
from phimu.data.sets.cutting import box

WALKS = random_walks(episodes=300)
CUT = gap_set(episodes=300)
# Doorways on the way that was logged, and what is between them.
DETOUR = [(15, 8), (12, 5), (6, 5), (5, 8), (5, 12), GOAL]


def test_nothing_was_logged_in_the_gap_and_everywhere_else():
    inside = box(GAP)
    rows = CUT.transitions
    assert inside(WALKS.transitions.observation).sum() > 50
    assert not inside(rows.observation).any()
    assert not inside(rows.next_observation).any()
    assert len(CUT) > 0.8 * len(WALKS)
    # No logged move leads from one side to the other.
    sides = rows.observation[:, 0] > 10, rows.next_observation[:, 0] > 10
    assert not ((sides[0] != sides[1]) & (rows.observation[:, 1] > 10.5)).any()
    rooms = {(x > 10, y > 10) for x, y in rows.observation}
    assert len(rooms) == 4


def test_the_goal_pays_and_ends():
    rows = WALKS.transitions
    np.testing.assert_array_equal(rows.reward, at_goal(rows.next_observation))
    np.testing.assert_array_equal(rows.terminated, rows.reward == 1)
    assert rows.terminated.sum() >= 10
    assert not at_goal(rows.observation).any()


def test_a_seed_is_a_dataset():
    assert gap_set(episodes=300).sha256 == CUT.sha256
    assert gap_set(episodes=300, seed=1).sha256 != CUT.sha256


def straight(position: np.ndarray) -> np.ndarray:
    """To the goal, whatever is between."""
    return np.clip((np.array([10.0, 15.0]) - position) / MAZE.top_speed, -1, 1)


def around(position: np.ndarray) -> np.ndarray:
    """By the doorways that were logged: to the first of DETOUR that is ahead."""
    x, y = position.T
    stage = np.select(
        [(x > 10) & (y > 8.5), (x > 12.5), (x > 6.5), (y < 7.5), (y < 11.5)], range(5), 5
    )
    return np.clip((np.array(DETOUR)[stage] - position) / MAZE.top_speed, -1, 1)


def test_the_short_way_is_through_the_gap_and_the_long_one_leads_to_the_goal():
    short, long = follow(straight, 10), follow(around, 10)
    assert (short.reached, short.in_gap) == (0.0, 1.0)
    assert (long.reached, long.in_gap) == (1.0, 0.0)
    for plans in (short, long):
        for way in plans.paths:
            np.testing.assert_array_equal(way[0], START)
            assert 1 < len(way) <= HORIZON + 1
    assert all(box(GAP)(way)[-1] and not box(GAP)(way)[:-1].any() for way in short.paths)
    assert all(at_goal(way)[-1] and not at_goal(way)[:-1].any() for way in long.paths)
    assert max(map(len, short.paths)) < min(map(len, long.paths))


def test_who_stays_at_the_start_neither_arrives_nor_falls():
    still = follow(lambda position: np.clip((np.array(START) - position) / 2, -1, 1), 5)
    assert (still.reached, still.in_gap) == (0.0, 0.0)
    assert {len(way) for way in still.paths} == {HORIZON + 1}
