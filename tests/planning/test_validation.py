"""Which policy a validated search keeps, and when it stops, against a loop in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.errors import InputError
from phimu.planning.validation import Validation


def searched(settings, table, most):
    """A state that counts its steps; `table` [looks, E] says what the judges think of it."""
    table = jnp.asarray(table, jnp.float32)

    def steps(state, first, count):
        assert count == (settings.validate_every or most)
        return state + count, {"first": first.astype(jnp.float32)}

    def judge(state):
        return table[state // settings.validate_every]

    state, metrics = jax.jit(lambda: settings.search(jnp.int32(0), most, steps, judge))()
    return int(state), {name: float(value) for name, value in metrics.items()}


def by_hand(every, share, patience, table, most):
    best, kept, done = table[0], 0, 0
    while done < most and done - kept < patience:
        done += every
        found = table[done // every]
        if np.mean(found < best) <= share:
            best, kept = found, done
    return kept, done, np.mean(best)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_loop_of_the_published_code(seed):
    """Kept while at most 30 % of the networks get worse, given up after a while without."""
    rng = np.random.default_rng(seed)
    table = np.cumsum(rng.normal(0.15, 1.0, (21, 5)), axis=0)
    kept, done, best = by_hand(5, 0.3, 25, table, 100)
    state, metrics = searched(Validation(5), table, 100)
    assert (state, metrics["steps_kept"], metrics["steps_made"]) == (kept, kept, done)
    assert metrics["first"] == done - 5
    np.testing.assert_allclose(metrics["validation_return"], best, rtol=1e-5)


@pytest.mark.parametrize(("worse", "kept"), [(0, 20), (1, 20), (2, 0), (5, 0)])
def test_one_network_of_five_may_disagree_but_not_two(worse, kept):
    better = np.arange(5) >= worse
    table = np.arange(5)[:, None] * np.where(better, 1.0, -1.0)
    state, metrics = searched(Validation(5, validation_patience=10), table, 20)
    assert state == kept
    assert metrics["steps_made"] == (20 if kept else 10)


def test_without_validation_all_steps_are_one():
    state, metrics = searched(Validation(), np.zeros((1, 1)), 7)
    assert (state, metrics) == (7, {"first": 0.0})


def test_bad_settings_are_named():
    with pytest.raises(InputError, match="worse_share is 1"):
        Validation(worse_share=1.0)
    with pytest.raises(InputError, match="policy_steps is 7: give a multiple of validate_every, 5"):
        Validation(5).check(7)
