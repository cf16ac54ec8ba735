"""The three losses against loops over the equations of the paper, in plain Python floats."""

import math

import numpy as np
import pytest

from phimu.finite import exact, models
from phimu.finite.collecting import Transitions, draw
from phimu.finite.estimators import binary, maximum_likelihood, ranking

OBSERVATIONS, ACTIONS, NEGATIVES = 5, 2, 7
EVERY_PAIR = np.full((OBSERVATIONS, ACTIONS), 1 / (OBSERVATIONS * ACTIONS))
LOSSES = (maximum_likelihood, ranking, binary)
PROGRAMS = {loss.__name__: exact(loss) for loss in LOSSES}


@pytest.fixture
def problem():
    """An unnormalised f, a base measure that is not uniform, and a sample."""
    rng = np.random.default_rng(0)
    mdp = models.random_low_rank(OBSERVATIONS, ACTIONS, 3)
    base = rng.dirichlet(np.full(OBSERVATIONS, 5.0))
    mdp = mdp._replace(base_measure=base)
    f = rng.uniform(0.1, 2.0, (OBSERVATIONS, ACTIONS, OBSERVATIONS))
    return f, base, draw(rng, mdp, EVERY_PAIR, 40, NEGATIVES)


def by_hand(name, f, q, u, x, negatives, c):
    """One transition; `negatives` are the K draws themselves, as in the paper."""
    if name == "maximum_likelihood":
        return -math.log(f[u][x] / f[u].sum()) + math.log(q[x])
    if name == "ranking":
        noise = sum(f[u][y] / q[y] for y in negatives)
        return -math.log((f[u][x] / q[x]) / (f[u][x] / q[x] + noise))

    def h(y):
        ratio = f[u][y] * math.exp(-c) / q[y]
        return ratio / (ratio + len(negatives))

    return -math.log(h(x)) - sum(math.log(1 - h(y)) for y in negatives)


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_the_equations(name, problem):
    f, base, sample = problem
    rows = np.log(f / base)[sample.observation, sample.action]
    found = PROGRAMS[name](rows, sample, base, 0.3)
    assert found.dtype == np.float64
    for i in range(40):
        u = (sample.observation[i], sample.action[i])
        drawn = np.repeat(np.arange(OBSERVATIONS), sample.negatives[i].astype(int))
        expected = by_hand(name, f, base, u, sample.next_observation[i], drawn, 0.3)
        assert found[i] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["maximum_likelihood", "ranking"])
def test_a_scale_of_each_pair_is_free(name, problem):
    f, base, sample = problem
    scaled = f * np.random.default_rng(1).uniform(0.1, 9, (OBSERVATIONS, ACTIONS, 1))
    rows = [np.log(one / base)[sample.observation, sample.action] for one in (f, scaled)]
    found = [PROGRAMS[name](one, sample, base, 0.0) for one in rows]
    np.testing.assert_allclose(*found, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_happened_is_never_ruled_out(name, problem):
    _, base, sample = problem
    rows = np.full((40, OBSERVATIONS), -np.inf)
    rows[:, 0] = 1.0
    found = PROGRAMS[name](rows, sample, base, 0.0)
    np.testing.assert_array_equal(np.isposinf(found), sample.next_observation != 0)
    assert np.isfinite(found[sample.next_observation == 0]).all()


def test_nothing_left_to_tell_apart_from_loses_too():
    only = Transitions(np.array([0]), np.array([0]), np.array([1]), np.array([[3.0, 0.0, 0.0]]))
    rows = np.array([[-np.inf, -np.inf, 0.0]])
    assert PROGRAMS["ranking"](rows, only, np.full(3, 1 / 3), 0.0) == np.inf


def test_draws_follow_the_transition_and_the_base_measure():
    mdp = models.random_low_rank(4, 2, 3, seed=2)
    pairs = np.random.default_rng(0).dirichlet(np.ones(8)).reshape(4, 2)
    sample = draw(np.random.default_rng(1), mdp, pairs, 200_000, 3)
    counts = np.zeros((4, 2, 4))
    np.add.at(counts, (sample.observation, sample.action, sample.next_observation), 1)
    expected = pairs[..., None] * mdp.transition
    assert np.abs(counts / 200_000 - expected).max() < 0.004
    np.testing.assert_array_equal(sample.negatives.sum(axis=1), 3)
    assert np.abs(sample.negatives.mean(axis=0) / 3 - mdp.base_measure).max() < 0.004
