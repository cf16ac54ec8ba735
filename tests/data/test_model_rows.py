"""Where the episodes of a store begin, and how long the longest that was cut is."""

import numpy as np
import pytest

from phimu.data.model_rows import beginnings
from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.types import Spec

SPEC = Spec(1, 1)


def stored(lengths, cut, capacity=100, envs=1):
    """Episodes one after the other (in `envs` at once); s counts the steps of all of them."""
    replay = Replay(SPEC, capacity, 0, 8, envs)
    for length, is_cut in zip(lengths, cut, strict=True):
        for step in range(length):
            for env in range(envs):
                last, s = step == length - 1, np.float32([replay.added // envs + 1_000 * env])
                replay.add(s, [0.0], 0.0, s + 1, last and not is_cut, last and is_cut)
    return replay


def test_what_follows_an_end_begins_an_episode():
    rows, limit = beginnings(stored([3, 5, 2, 4], [False, True, False, True]))
    np.testing.assert_array_equal(split(rows, SPEC).observation[:, 0], [3, 8, 10])
    assert limit == 5


def test_environments_side_by_side():
    rows, limit = beginnings(stored([3, 4, 2], [True, True, False], envs=2))
    np.testing.assert_array_equal(split(rows, SPEC).observation[:, 0], [3, 1_003, 7, 1_007])
    assert limit == 4


def test_a_ring_that_has_wrapped_begins_in_the_middle():
    """Of the first six rows it holds the last; what is left of an episode is not its length."""
    rows, limit = beginnings(stored([6, 3, 3], [True] * 3, capacity=7))
    np.testing.assert_array_equal(split(rows, SPEC).observation[:, 0], [6, 9])
    assert limit == 3


@pytest.mark.parametrize("is_cut", [True, False])
def test_one_episode_is_better_than_none(is_cut):
    rows, limit = beginnings(stored([4], [is_cut]))
    np.testing.assert_array_equal(split(rows, SPEC).observation[:, 0], [0])
    assert limit == (4 if is_cut else None)
