"""Probes of phi against known answers."""

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.evaluation.probes import explained, probe
from phimu.types import Batch


def transitions(rows=4_000, seed=0):
    """s' = s + a W, r = <s, w> + a quadratic term, all of unit variance."""
    rng = np.random.default_rng(seed)
    s, a = rng.standard_normal((rows, 3)), rng.standard_normal((rows, 2))
    change = a @ rng.standard_normal((2, 3))
    reward = s @ [0.6, 0.8, 0.0]
    zeros = np.zeros(rows)
    return Batch(s, a, reward, s + change, zeros, zeros)


def test_all_is_linear_in_the_pair_itself():
    found = probe(lambda s, a: np.concatenate([s, a], 1), transitions())
    for name in ("change", "action", "reward", "observation"):
        assert getattr(found, name) == pytest.approx(1.0, abs=1e-6)
    # two of five independent components of unit variance come from the action
    assert found.action_share == pytest.approx(2 / 5, abs=0.02)
    assert found.dimensions == 5


def test_nothing_is_linear_in_what_was_forgotten():
    """A phi of s alone knows nothing of the action, and the change is all action."""
    found = probe(lambda s, a: s, transitions())
    assert found.reward == pytest.approx(1.0, abs=1e-6)
    assert abs(found.action) < 0.02
    assert abs(found.change) < 0.02
    assert found.action_share == 0.0
    assert found.dimensions == 3


def test_explained_is_one_minus_the_share_of_noise():
    """y = x + noise of a third of its variance: two thirds can be explained."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((50_000, 1))
    y = x * np.sqrt(2) + rng.standard_normal(x.shape)
    assert explained(x, y) == pytest.approx(2 / 3, abs=0.02)


def test_too_few_transitions_are_refused():
    with pytest.raises(InputError, match="at least 100"):
        probe(lambda s, a: s, transitions(50))
