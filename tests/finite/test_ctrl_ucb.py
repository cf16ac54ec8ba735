"""Algorithm 1: its lines by hand, and that it opens a small lock."""

import jax
import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite import exact
from phimu.finite.ctrl_ucb import Algorithm, Constants, bonus, covariance, optimistic, run
from phimu.finite.estimators import ranking
from phimu.finite.exploration import (
    elliptical_planner,
    epsilon_greedy,
    known_features,
    least_squares,
)
from phimu.finite.learners import Estimate, shifts_by, tables_by_likelihood
from phimu.finite.mdp import stack
from phimu.finite.models import combination_lock, random_low_rank
from phimu.finite.planning import occupancy, policy_iteration
from phimu.finite.ranked_tables import tables_by_ranking

CONSTANTS = Constants(log_models=20.0, bonus_factor=1e-3, ridge_factor=1e-3)


def test_covariance_and_bonus_by_hand():
    rng = np.random.default_rng(0)
    phi, visits = rng.normal(size=(4, 2, 3)), rng.integers(0, 5, (4, 2)).astype(float)
    matrix = 0.5 * np.eye(3)
    for s, a in np.ndindex(4, 2):
        matrix += visits[s, a] * np.outer(phi[s, a], phi[s, a])
    np.testing.assert_allclose(exact(covariance)(phi, visits, 0.5), matrix, atol=1e-12)
    expected = [
        [min(1.5 * np.sqrt(phi[s, a] @ np.linalg.inv(matrix) @ phi[s, a]), 2) for a in range(2)]
        for s in range(4)
    ]
    np.testing.assert_allclose(exact(bonus)(phi, visits, 1.5, 0.5), expected, atol=1e-12)
    assert (exact(bonus)(phi, visits, 1e6, 0.5) == 2).all()


def test_bonus_of_pairs_is_one_over_the_root_of_their_visits():
    visits = np.array([[0.0, 3.0], [8.0, 15.0]])
    found = exact(bonus)(np.eye(4).reshape(2, 2, 4), visits, 1.0, 1.0)
    np.testing.assert_allclose(found, [[1, 1 / 2], [1 / 3, 1 / 4]])


def test_constants_are_the_theorems():
    constants = Constants(log_models=np.log(100), bonus_factor=2.0, ridge_factor=3.0)
    logarithm = np.log(100 * 50 / 0.1)
    scale = exact(lambda n: constants.bonus_scale(n, 5, 7, 0.9))(50.0)
    assert scale == pytest.approx(2 * np.sqrt((5 + 49) * 0.9 * logarithm))
    assert exact(lambda n: constants.ridge(n, 7))(50.0) == pytest.approx(3 * 7 * logarithm)


@pytest.mark.parametrize("settings", [{"bonus_factor": -1}, {"ridge_factor": 0}])
def test_constants_that_make_no_sense_are_refused(settings):
    with pytest.raises(InputError, match="bonus_factor must not be negative"):
        Constants(1.0, **settings)


def run_on_locks(algorithm, plans, batch, seeds=3):
    locks = [combination_lock(3, 4, 2, 0.9, decoy=0.05, seed=seed) for seed in range(seeds)]
    best = [
        lock.start @ policy_iteration(lock.transition, lock.reward, lock.discount).value
        for lock in locks
    ]
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), seeds))
    every = exact(jax.vmap(lambda lock, key: run(algorithm, lock, key, plans, batch)))
    return every(stack(locks), keys), np.array(best)


@pytest.mark.parametrize(
    ("algorithm", "plans", "batch"),
    [
        (Algorithm(tables_by_ranking(64, 1_200, 30), optimistic(CONSTANTS)), 40, 30),
        (Algorithm(tables_by_likelihood(), optimistic(CONSTANTS)), 40, 30),
        (Algorithm(shifts_by(ranking, 64, 2), optimistic(CONSTANTS)), 40, 20),
        (Algorithm(shifts_by(ranking, 64, 2), elliptical_planner(8), policies=8), 20, 40),
        (Algorithm(known_features(), least_squares(1.0), uniform_action=False), 40, 20),
    ],
    ids=["CTRL-UCB", "Rep-UCB", "finite class", "FLAMBE", "LSVI-UCB"],
)
def test_small_lock_is_opened(algorithm, plans, batch):
    trace, best = run_on_locks(algorithm, plans, batch)
    np.testing.assert_array_equal(trace.samples[0], batch * np.arange(1, plans + 1))
    np.testing.assert_allclose(trace.returned[:, -1], best, atol=1e-9)
    assert (trace.collected[:, 0] < 0.1).all()  # the first batch is the uniform policy's


def test_undirected_stay_with_the_decoy():
    trace, best = run_on_locks(Algorithm(tables_by_likelihood(), epsilon_greedy(0.1)), 10, 10)
    assert (trace.returned[:, -1] < 0.5 * best).all()


def test_least_squares_of_known_features_by_hand():
    mdp = random_low_rank(4, 2, 3, seed=0)
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 4, mdp.transition.shape).astype(float)
    found = exact(lambda counts: known_features().read(counts, mdp))(counts)
    value = rng.normal(size=4)
    rows, targets = [], []
    for s, a, following in np.ndindex(4, 2, 4):
        rows += [mdp.phi[s, a]] * int(counts[s, a, following])
        targets += [value[following]] * int(counts[s, a, following])
    rows = np.array(rows)
    weights = np.linalg.solve(rows.T @ rows + np.eye(3), rows.T @ np.array(targets))
    np.testing.assert_allclose(found.transition @ value, mdp.phi @ weights, atol=1e-10)


def test_elliptical_planner_covers_what_one_policy_cannot():
    """Two ways part at the start: each has a direction of phi that the other never sees."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = transition[1, :, 1] = transition[2, :, 2] = 1
    mdp = random_low_rank(3, 2, 2, discount=0.9)._replace(
        transition=transition, start=np.eye(3)[0], reward=np.zeros((3, 2))
    )
    explore = elliptical_planner(4)
    estimate = Estimate(transition, transition)
    decide = exact(lambda key: explore(estimate, np.ones((3, 2)), mdp, key))
    found = decide(jax.random.PRNGKey(0)).policies
    where = [occupancy(transition, mdp.start, mdp.discount, policy) for policy in found]
    seen = np.array(where).sum(axis=2)[:, 1:] > 0.5
    np.testing.assert_array_equal(seen.sum(axis=0), [2, 2])
