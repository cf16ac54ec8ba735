"""Algorithm 2: its lines by hand, and that it keeps off what the data do not show."""

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite import exact
from phimu.finite.ctrl_lcb import (
    behaviour_cloning,
    coverage,
    penalised_plan,
    penalty,
)
from phimu.finite.ctrl_ucb import Constants
from phimu.finite.models import cliff, coins
from phimu.finite.planning import evaluate, occupancy, policy_iteration

CONSTANTS = Constants(log_models=20.0, bonus_factor=0.05, ridge_factor=0.01)
JUMP = 2


def without_jumps(mdp, visits_of_each=50):
    """The exact P of what is in the data, the base measure for the jump, which is not."""
    visits = np.full(mdp.reward.shape, float(visits_of_each))
    visits[:, JUMP] = 0
    known = mdp.transition.copy()
    known[:, JUMP] = mdp.base_measure
    return known, visits


def value(mdp, policy):
    return evaluate(mdp.transition, mdp.reward, mdp.discount, policy).value[0]


def planned(mdp, phi, known, visits):
    def both(phi, known, visits):
        careful = penalty(phi, visits, mdp.discount, 2.0, CONSTANTS)
        return careful, penalised_plan(known, mdp.reward, careful, mdp.discount)

    return exact(both)(phi, known, visits)


@pytest.mark.parametrize("jump_at", [1, 4])
def test_the_missing_action_is_left_alone(jump_at):
    mdp = cliff(6, jump_at)
    known, visits = without_jumps(mdp)
    careful, policy = planned(mdp, np.eye(24).reshape(8, 3, 24), known, visits)
    assert (policy[:6, JUMP] == 0).all()
    assert value(mdp, policy) == pytest.approx(0.3)  # stays on the path
    trusting = policy_iteration(known, mdp.reward, mdp.discount).policy
    assert trusting[0, JUMP] == 1
    assert value(mdp, trusting) == 0  # in the pit
    best = policy_iteration(mdp.transition, mdp.reward, mdp.discount).policy
    assert best[jump_at, JUMP] == 1  # the optimal policy needs it
    assert value(mdp, best) > 0.45
    scale = 0.05 * np.sqrt((2 + 24**2) * 0.9 * (20 + np.log(10)))
    ridge = 0.01 * 24 * (20 + np.log(10))
    expected = np.minimum(scale / np.sqrt(visits + ridge), 2)
    np.testing.assert_allclose(careful, expected, atol=1e-12)


def test_rows_of_the_model_as_phi_do_not_protect():
    """The base measure's row lies among those of the data, so its penalty is the smallest."""
    mdp = cliff(6, 4)
    known, visits = without_jumps(mdp)
    careful, policy = planned(mdp, known, known, visits)
    assert careful[0, JUMP] < careful[0, :JUMP].min()
    assert policy[0, JUMP] == 1
    assert value(mdp, policy) == 0


def test_coverage_of_pairs_is_the_sum_of_the_ratios():
    mdp = coins(4, 3, 0.2, seed=1)
    rng = np.random.default_rng(0)
    one, two = (
        occupancy(mdp.transition, mdp.start, mdp.discount, rng.dirichlet(np.ones(3), 4))
        for _ in range(2)
    )
    found = coverage(mdp.phi, one, two)
    assert found == pytest.approx((one / two).sum())


def test_coverage_counts_directions_not_pairs():
    phi = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8], [1.0, 0.0]]])
    data = np.array([[0.5, 0.5], [0.0, 0.0]])
    wanted = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert coverage(phi, wanted, data) == pytest.approx(2 * (0.36 + 0.64))


def test_cloning_repeats_the_data():
    found = exact(behaviour_cloning)(np.array([[3.0, 1.0], [0.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.75, 0.25], [0.5, 0.5]])


def test_best_coin_is_better_by_the_gap():
    mdp = coins(4, 3, 0.1, discount=0.9, seed=0)
    plan = policy_iteration(mdp.transition, mdp.reward, mdp.discount)
    ranked = np.sort(plan.action_value, axis=1)
    np.testing.assert_allclose(ranked[:, 2] - ranked[:, 1], 0.9 * 0.1 * 1.0)
    np.testing.assert_allclose(ranked[:, 0], ranked[:, 1])


@pytest.mark.parametrize(
    ("make", "word"),
    [(lambda: coins(4, 3, 0.6), "gap"), (lambda: cliff(5, 0), "jump_at is 0")],
)
def test_bad_sizes_are_refused(make, word):
    with pytest.raises(InputError, match=word):
        make()
