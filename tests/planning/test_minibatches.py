"""Passes over rows: every row once a pass, in another order each time, all in one scan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.errors import InputError
from phimu.planning.minibatches import passes

KEY = jax.random.PRNGKey(0)


def seen(count, epochs, minibatches):
    """Which rows each step was given: [steps, size]."""
    rows = {"number": jnp.arange(count), "double": 2 * jnp.arange(count)}

    def step(steps, rows):
        assert set(rows) == {"number", "double"}
        return steps + 1, (rows["number"], rows["double"])

    steps, (number, double) = passes(step, jnp.int32(0), rows, KEY, epochs, minibatches)
    assert int(steps) == epochs * minibatches
    np.testing.assert_array_equal(double, 2 * number)  # a row stays in one piece
    return np.asarray(number)


def test_a_pass_has_every_row_once_in_an_order_of_its_own():
    found = seen(12, 3, 4).reshape(3, 12)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(12), (3, 1)))
    assert len({tuple(each) for each in found}) == 3


def test_what_is_left_over_is_another_part_each_time():
    found = seen(11, 5, 3)
    assert found.shape == (15, 3)
    for each in found.reshape(5, 9):
        assert len(set(each)) == 9
    assert len({tuple(sorted(each)) for each in found.reshape(5, 9)}) > 1


def test_one_minibatch_is_all_rows_as_they_are():
    np.testing.assert_array_equal(seen(7, 2, 1), np.tile(np.arange(7), (2, 1)))


def test_it_is_one_loop():
    """The step is traced once, however many there are."""
    traces = []

    def step(state, rows):
        traces.append(1)
        return state, jnp.mean(rows)

    passes(step, jnp.zeros(()), jnp.arange(64.0), KEY, 20, 8)
    assert len(traces) == 1


def test_more_minibatches_than_rows_are_refused():
    with pytest.raises(InputError, match="minibatches is 8, but batch_size 7: give fewer"):
        seen(7, 1, 8)
