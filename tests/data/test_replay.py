import numpy as np
import pytest

from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.errors import InputError
from phimu.types import Spec

SPEC = Spec(2, 1)


def fill(replay, start, stop):
    """Transition number t has observation t, action -t, reward 10 t, next observation t + 0.5."""
    for t in range(start, stop):
        following, ends = np.full(2, t + 0.5), (t % 2 == 0, t % 3 == 0)
        replay.add(np.full(2, t), np.full(1, -t), 10.0 * t, following, *ends)


def batch_of(replay, rng):
    return split(replay.sample(rng).rows, SPEC)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def assert_belong_together(batch):
    t = batch.observation[:, 0]
    np.testing.assert_array_equal(batch.observation[:, 1], t)
    np.testing.assert_array_equal(batch.action[:, 0], -t)
    np.testing.assert_array_equal(batch.reward, 10 * t)
    np.testing.assert_array_equal(batch.next_observation, np.stack([t, t], axis=1) + 0.5)
    np.testing.assert_array_equal(batch.terminated, t % 2 == 0)
    np.testing.assert_array_equal(batch.truncated, t % 3 == 0)


def test_a_full_ring_forgets_the_oldest(rng):
    replay = Replay(SPEC, capacity=5, warm_up=0, batch_size=300)
    fill(replay, 1, 13)
    assert len(replay) == 5
    batch = batch_of(replay, rng)
    assert_belong_together(batch)
    assert set(batch.observation[:, 0]) == {8.0, 9.0, 10.0, 11.0, 12.0}


def test_only_filled_rows_are_sampled(rng):
    replay = Replay(SPEC, capacity=100, warm_up=50, batch_size=200)
    fill(replay, 1, 4)
    assert len(replay) == 3
    batch = batch_of(replay, rng)
    assert_belong_together(batch)
    assert set(batch.observation[:, 0]) == {1.0, 2.0, 3.0}
    assert set(replay.sample_next(200, rng)[:, 0]) == {1.5, 2.5, 3.5}
    assert set(replay.sample_random_next(200, rng)[:, 0]) == {1.5, 2.5, 3.5}


def test_a_batch_has_its_shapes_and_is_float32(rng):
    replay = Replay(SPEC, capacity=4, warm_up=0, batch_size=7)
    fill(replay, 1, 3)
    batch = batch_of(replay, rng)
    assert [column.shape for column in batch] == [(7, 2), (7, 1), (7,), (7, 2), (7,), (7,)]
    assert {column.dtype for column in batch} == {np.dtype(np.float32)}


def test_a_batch_in_one_piece_is_the_same_batch(rng):
    replay = Replay(SPEC, capacity=4, warm_up=0, batch_size=30)
    fill(replay, 1, 9)
    rows, index, columns = replay.sample(rng)
    assert rows.shape == (30, 8)
    assert rows.flags.c_contiguous  # a device takes it as it is
    assert columns == {}
    for column, whole in zip(split(rows, SPEC), replay.rows, strict=True):
        np.testing.assert_array_equal(column, whole[index])


def test_sampling_is_uniform_and_the_generator_alone_decides(rng):
    replay = Replay(SPEC, capacity=4, warm_up=0, batch_size=8_000)
    fill(replay, 0, 4)
    drawn = batch_of(replay, rng).observation[:, 0]
    assert np.abs(np.bincount(drawn.astype(int)) - 2_000).max() < 200  # five standard deviations
    first, again, other = (batch_of(replay, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.observation, again.observation)
    assert (first.observation != other.observation).any()


def test_random_trajectories_stay_when_the_ring_wraps(rng):
    replay = Replay(SPEC, capacity=5, warm_up=3)
    fill(replay, 1, 31)
    assert set(replay.sample_random_next(200, rng)[:, 0]) == {1.5, 2.5, 3.5}
    assert set(replay.sample_next(200, rng)[:, 0]) == {26.5, 27.5, 28.5, 29.5, 30.5}


def test_without_a_warm_up_random_next_comes_from_the_buffer(rng):
    replay = Replay(SPEC, capacity=5, warm_up=0)
    fill(replay, 1, 3)
    assert set(replay.sample_random_next(100, rng)[:, 0]) == {1.5, 2.5}


def test_pairs_are_distinct_and_belong_together(rng):
    replay = Replay(SPEC, capacity=30, warm_up=0)
    fill(replay, 1, 21)
    observation, action = replay.pairs(12, rng)
    assert len(np.unique(observation[:, 0])) == 12
    assert observation[:, 0].min() >= 1
    np.testing.assert_array_equal(action[:, 0], -observation[:, 0])


@pytest.mark.parametrize("size", [20, 21, 1_000])
def test_pairs_of_a_small_buffer_are_all_of_it(rng, size):
    replay = Replay(SPEC, capacity=30, warm_up=0)
    fill(replay, 1, 21)
    observation, _ = replay.pairs(size, rng)
    assert sorted(observation[:, 0]) == list(range(1, 21))


@pytest.mark.parametrize("before", [3, 5, 17])
def test_a_restored_buffer_continues_as_the_old_one(before):
    old, new = Replay(SPEC, 5, 4), Replay(SPEC, 5, 4)
    fill(old, 1, before)
    for name, span in old.spans().items():
        new.put(name, span, old.columns(name, span))
    new.added = old.added
    for start, stop in ((before, before), (before, before + 4)):
        for replay in (old, new):
            fill(replay, start, stop)
        assert len(new) == len(old)
        for column, other in zip(old.rows, new.rows, strict=True):
            np.testing.assert_array_equal(column, other)
        np.testing.assert_array_equal(old.random_next, new.random_next)
        seen = [batch_of(r, np.random.default_rng(3)) for r in (old, new)]
        np.testing.assert_array_equal(seen[0].observation, seen[1].observation)


def test_spans_count_the_transitions_of_the_run():
    replay = Replay(SPEC, capacity=5, warm_up=3)
    assert replay.spans() == {"rows": range(0), "random": range(0)}
    fill(replay, 0, 2)
    assert replay.spans() == {"rows": range(2), "random": range(2)}
    fill(replay, 2, 13)
    assert replay.spans() == {"rows": range(8, 13), "random": range(3)}
    columns = replay.columns("rows", range(9, 12))  # over the seam of the ring
    assert columns["observation"][:, 0].tolist() == [9, 10, 11]
    assert replay.columns("random", range(1, 3))["next_observation"][:, 0].tolist() == [1.5, 2.5]


def test_a_part_longer_than_the_ring_leaves_its_end():
    long, short = Replay(SPEC, 20, 0), Replay(SPEC, 5, 0)
    fill(long, 0, 12)
    fill(short, 0, 12)
    other = Replay(SPEC, 5, 0)
    other.put("rows", range(12), long.columns("rows", range(12)))
    np.testing.assert_array_equal(other.rows.observation, short.rows.observation)


def test_no_capacity_is_refused():
    with pytest.raises(InputError, match="buffer_size is 0"):
        Replay(SPEC, 0, 0)
