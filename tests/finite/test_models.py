"""Every model is the linear MDP it claims to be, and has the optimum it is known for."""

from itertools import product

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite import models
from phimu.finite.planning import evaluate, policy_iteration

MODELS = {
    "tabular": lambda seed: random_table(seed),
    "low rank": lambda seed: models.random_low_rank(9, 3, 4, seed=seed),
    "lock": lambda seed: models.combination_lock(3, 4, 2, seed=seed),
    "lock with a decoy": lambda seed: models.combination_lock(4, 3, decoy=0.1, seed=seed),
    "lock of one level": lambda seed: models.combination_lock(1, 3, seed=seed),
}


def random_table(seed):
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(5), (5, 2))
    return models.tabular(transition, rng.uniform(size=(5, 2)), np.eye(5)[1], 0.8)


@pytest.mark.parametrize("name", MODELS)
def test_transition_is_the_sum_over_features(name):
    mdp = MODELS[name](0)
    size, actions, dim = mdp.phi.shape
    for s, a, t in product(range(size), range(actions), range(size)):
        terms = [mdp.phi[s, a, i] * mdp.mu[t, i] * mdp.base_measure[t] for i in range(dim)]
        assert mdp.transition[s, a, t] == pytest.approx(sum(terms), abs=1e-12)
    assert mdp.transition.shape == (size, actions, size)
    assert mdp.mu.shape == (size, dim)
    assert all(array.dtype == np.float64 for array in mdp)


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_fixes_the_model(name):
    for one, two in zip(MODELS[name](3), MODELS[name](3), strict=True):
        np.testing.assert_array_equal(one, two)
    assert any(
        one.shape != two.shape or np.any(one != two)
        for one, two in zip(MODELS[name](3), MODELS[name](4), strict=True)
    )


def test_table_has_unit_vectors_and_s_times_p():
    mdp = random_table(0)
    assert mdp.phi.shape == (5, 2, 10)
    np.testing.assert_array_equal(mdp.phi.reshape(10, 10), np.eye(10))
    np.testing.assert_allclose(mdp.mu[4, 2 * 3 + 1], 5 * mdp.transition[3, 1, 4])


@pytest.mark.parametrize("per_latent", [1, 3])
def test_lock_opens_with_one_sequence(per_latent):
    horizon, actions = 4, 5
    mdp = models.combination_lock(horizon, actions, per_latent, discount=0.9, seed=1)
    assert mdp.phi.shape[2] == 2 * horizon
    best = policy_iteration(mdp.transition, mdp.reward, 0.9)
    assert mdp.start @ best.value == pytest.approx(0.9 ** (horizon - 1))
    chance = np.full((mdp.reward.shape), 1 / actions)
    blind = mdp.start @ evaluate(mdp.transition, mdp.reward, 0.9, chance).value
    assert blind == pytest.approx(0.9 ** (horizon - 1) / actions**horizon)
    good = np.flatnonzero(best.value > 0)  # two latent states a level, and all of them
    np.testing.assert_array_equal(
        good // per_latent, np.repeat([s for s in range(3 * horizon) if s % 3 < 2], per_latent)
    )
    assert np.count_nonzero(best.action_value > 0) == 2 * horizon * per_latent
    assert mdp.reward.sum() == 2 * per_latent


def test_nothing_is_paid_after_the_goal():
    mdp = models.combination_lock(2, 2)
    goal, end = 6, 7
    assert mdp.reward[goal].max() == mdp.reward[end].max() == 0
    np.testing.assert_array_equal(mdp.transition[[goal, end]][..., end], 1)


def test_decoy_is_paid_for_the_first_wrong_action_only():
    plain, tempting = (models.combination_lock(3, 4, decoy=decoy) for decoy in (0.0, 0.1))
    extra = tempting.reward - plain.reward
    np.testing.assert_allclose(extra[:2].sum(axis=1), 3 * 0.1)
    np.testing.assert_allclose(extra[2], 0.1)  # never visited
    np.testing.assert_array_equal(extra[3:], 0)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: models.coins(4, 2, 0.1, discount=1.0), "discount"),
        (lambda: models.combination_lock(0, 2), "horizon"),
        (lambda: models.combination_lock(2, 0), "actions"),
        (lambda: models.random_low_rank(4, 2, 0), "feature_dim"),
        (lambda: models.combination_lock(2, 2, decoy=2.0), "reward"),
    ],
)
def test_impossible_sizes_are_refused(make, word):
    with pytest.raises(InputError, match=word):
        make()
