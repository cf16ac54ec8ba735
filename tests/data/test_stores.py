"""Replay and logged data are one Store: on the same rows both give the same."""

from pathlib import Path

import jax
import numpy as np
import pytest

from phimu.data.device_set import DeviceSet
from phimu.data.logged import Transitions
from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.runs import checkpoint
from phimu.types import Spec

SPEC = Spec(2, 1)
BATCH = 4_000
# How each row ends: two episodes terminated, two cut, the last one still open. The third is
# one row long.
ENDS = "...t ..c t ....c ..".replace(" ", "")


def rows(kept: int) -> Transitions:
    """Row number t has observation t, action -t, reward 10 t, s' t + 0.5; the last `kept`."""
    number = np.arange(len(ENDS), dtype=np.float32)
    both = np.stack([number, number], axis=1)
    terminated, truncated = (np.array([end == kind for end in ENDS]) for kind in "tc")
    episode = np.append(0, np.cumsum(terminated | truncated)[:-1]).astype(np.int32)
    columns = both, -number[:, None], 10 * number, both + 0.5, terminated, truncated, episode
    last = Transitions(*(column[len(ENDS) - kept :] for column in columns))
    return last._replace(episode=last.episode - last.episode[0])


def filled(capacity: int) -> Replay:
    replay = Replay(SPEC, capacity, warm_up=0, batch_size=BATCH)
    for row in zip(*rows(len(ENDS))[:6], strict=True):
        replay.add(*row)
    return replay


# Not yet full, full to the last row, and wrapped: the write position lies within an episode.
@pytest.fixture(params=[30, len(ENDS), 11])
def stores(request):
    """Both, and where the rows of the set lie in the ring."""
    replay = filled(request.param)
    logged = DeviceSet(rows(len(replay)), SPEC, BATCH)
    assert len(logged) == len(replay)
    first = (replay.added - len(replay)) % replay.capacity
    return replay, logged, (first + np.arange(len(replay))) % replay.capacity


def numbers(observation) -> np.ndarray:
    return np.asarray(observation)[:, 0]


def both_rngs(seed: int = 0) -> tuple[np.random.Generator, jax.Array]:
    return np.random.default_rng(seed), jax.random.PRNGKey(seed)


def test_samples_are_rows_of_the_store_uniformly(stores):
    replay, logged, place = stores
    row_at = dict(zip(place.tolist(), range(len(place)), strict=True))  # of the ring, in the set
    for store, rng in zip((replay, logged), both_rngs(), strict=True):
        drawn = store.sample(rng)
        assert drawn.rows.shape == (BATCH, 8)
        assert drawn.columns == {}
        index = np.asarray(drawn.index)
        if store is replay:
            index = np.array([row_at[at] for at in index.tolist()])
        np.testing.assert_array_equal(drawn.rows, logged.rows[index])
        counts = np.bincount(index, minlength=len(store))
        assert np.abs(counts - BATCH / len(store)).max() < 5 * np.sqrt(BATCH / len(store))


def test_next_observations_are_those_of_all_rows(stores):
    *both, _ = stores
    for store, rng in zip(both, both_rngs(), strict=True):
        drawn = store.sample_next(2_000, rng)
        assert drawn.shape == (2_000, 2)
        first = len(ENDS) - len(store)
        assert set(numbers(drawn)) == {t + 0.5 for t in range(first, len(ENDS))}


@pytest.mark.parametrize("size", [0, 1, 5, 11, 100])
def test_the_latest_are_the_last_in_order(stores, size):
    replay, logged, _ = stores
    for one, other in zip(replay.latest(size), logged.latest(size), strict=True):
        np.testing.assert_array_equal(one, other)
    last = numbers(replay.latest(size).observation)
    assert last.tolist() == list(range(len(ENDS) - min(size, len(replay)), len(ENDS)))


def test_rewards_are_those_of_every_row(stores):
    replay, logged, place = stores
    np.testing.assert_array_equal(replay.rewards[place], logged.rewards)
    assert len(replay.rewards) == len(replay)


@pytest.mark.parametrize("size", [1, 7, 15, 100])
def test_pairs_are_distinct_and_belong_together(stores, size):
    *both, _ = stores
    for store, rng in zip(both, both_rngs(), strict=True):
        observation, action = store.pairs(size, rng)
        assert len(observation) == len(set(numbers(observation))) == min(size, len(store))
        np.testing.assert_array_equal(numbers(action), -numbers(observation))


def by_hand(row: int, steps: int) -> tuple[float, bool]:
    """s' so many rows on, one step at a time: an end, and the end of the store, stop it."""
    while steps and ENDS[row] == "." and row + 1 < len(ENDS):
        row, steps = row + 1, steps - 1
    return row + 0.5, steps == 0


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 20])
def test_later_stops_at_ends_and_at_the_write_position(stores, steps):
    replay, logged, place = stores
    first = len(ENDS) - len(replay)
    expected = [by_hand(row, steps) for row in range(first, len(ENDS))]
    rows_of_set = np.arange(len(logged))
    for following, goes_on in (replay.later(place, steps), logged.later(rows_of_set, steps)):
        assert list(zip(numbers(following), np.asarray(goes_on), strict=True)) == expected


def ahead_by_hand(row: int, steps: int, discount: float) -> tuple[float, float, float]:
    """An n-step return, one step at a time: its rewards, s' at its end, what is left beyond."""
    total, left = 0.0, 1.0
    for step in range(steps):
        total += discount**step * 10 * row
        if step == steps - 1 or ENDS[row] != "." or row + 1 == len(ENDS):
            break
        row, left = row + 1, left * discount
    return total, row + 0.5, 0.0 if ENDS[row] == "t" else left


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 20])
def test_n_step_returns_stop_at_ends_and_at_the_write_position(stores, steps):
    replay, logged, place = stores
    first = len(ENDS) - len(replay)
    expected = np.array([ahead_by_hand(row, steps, 0.9) for row in range(first, len(ENDS))])
    for store, index in ((replay, place), (logged, np.arange(len(logged)))):
        reward, following, left = store.ahead(index, steps, 0.9)
        found = np.stack([reward, numbers(following), left], axis=1)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_each_row_may_ask_for_another_number_of_steps(stores):
    replay, logged, place = stores
    steps = np.arange(len(replay)) % 4
    for here, there in zip(
        replay.later(place, steps), logged.later(np.arange(len(logged)), steps), strict=True
    ):
        np.testing.assert_array_equal(here, there)


def test_a_device_set_is_asked_within_compiled_code():
    """All of it is traced: an update draws with its own key."""
    logged = DeviceSet(rows(len(ENDS)), SPEC, 6)

    def ask(logged: DeviceSet, key: jax.Array):
        sample = logged.sample(key)
        return sample.rows, logged.later(sample.index, 2), logged.pairs(3, key), logged.latest(2)

    traced, plain = (f(logged, jax.random.PRNGKey(1)) for f in (jax.jit(ask), ask))
    jax.tree.map(np.testing.assert_array_equal, traced, plain)


@pytest.mark.parametrize("capacity", [30, 11])
def test_what_was_cut_survives_a_checkpoint(capacity: int, tmp_path: Path):
    replay, again = filled(capacity), Replay(SPEC, capacity, warm_up=0, batch_size=BATCH)
    assert replay.rows.truncated.any()
    checkpoint.save(tmp_path, len(ENDS), {}, {}, replay)
    saved = checkpoint.load(tmp_path, pytest.fail)
    assert saved is not None
    saved.restore_replay(again)
    for column, other in zip(again.latest(99), replay.latest(99), strict=True):
        np.testing.assert_array_equal(column, other)
    assert split(again._table, SPEC).truncated.sum() == replay.rows.truncated.sum()
