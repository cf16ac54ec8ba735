"""A region cut out of a dataset: which rows go, and where episodes are then cut."""

import numpy as np
import pytest

from phimu.data.sets.arrays import from_arrays
from phimu.data.sets.cutting import box, cut_out
from phimu.errors import InputError


def line(steps=10, episodes=2):
    """Episodes that walk from 0 to `steps` in the first component; the second stays."""
    x = np.tile(np.arange(steps, dtype=np.float32), episodes)
    y = np.repeat(np.arange(episodes, dtype=np.float32), steps)
    return from_arrays(
        observation=np.stack([x, y], 1),
        next_observation=np.stack([x + 1, y], 1),
        action=np.zeros((len(x), 1)),
        reward=x,
        terminated=x == steps - 1,
        episode=y,
        action_low=-2,
        action_high=2,
        task="Pendulum-v1",
    )


def test_rows_that_touch_the_region_go_and_episodes_are_cut_there():
    data = line()
    found = cut_out(data, box([(0, 3.5, 5.5)]), "line_cut")
    # 4 and 5 lie inside: the rows from 3 to 4, 4 to 5 and 5 to 6 are gone, in both episodes.
    rows = found.transitions
    assert rows.reward.tolist() == [0, 1, 2, 6, 7, 8, 9] * 2
    assert rows.truncated.tolist() == [False, False, True, False, False, False, False] * 2
    assert rows.terminated.tolist() == ([False] * 6 + [True]) * 2
    assert rows.episode.tolist() == [0] * 3 + [1] * 4 + [2] * 3 + [3] * 4
    assert (found.name, found.task, found.sha256) != (data.name, data.task, data.sha256)
    assert (found.task, found.action_high.tolist()) == ("Pendulum-v1", [2.0])
    assert "6 of 20 rows" in found.notes[-1]
    assert len(data) == 20  # it stays as it was


def test_all_bounds_must_hold():
    found = cut_out(line(), box([(0, 3.5, 5.5), (1, 0.5, 1.5)]), "half")
    assert len(found) == 17
    assert found.transitions.episode.tolist() == [0] * 10 + [1] * 3 + [2] * 4


def test_nothing_cut_is_the_same_rows():
    data = line()
    found = cut_out(data, box([(0, 50, 60)]), "all")
    assert found.sha256 == data.sha256


def test_a_region_that_holds_everything_is_refused():
    with pytest.raises(InputError, match="all 20 rows"):
        cut_out(line(), box([(0, -1, 20)]), "none")
