"""The conditions of a linear MDP, on models that hold them and on ones that do not."""

import itertools

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite import mdp as finite
from phimu.finite import models
from phimu.finite.planning import evaluate

EVERY = [
    models.cliff(4, 2),
    models.coins(5, 2, 0.2),
    models.random_low_rank(8, 3, 4),
    models.combination_lock(3, 3, 2, decoy=0.1),
]


@pytest.mark.parametrize("mdp", EVERY)
def test_our_models_are_linear_mdps(mdp):
    root = np.sqrt(mdp.phi.shape[2])
    found = finite.conditions(mdp)
    for error in ("row_error", "factorisation_error", "marginal_error", "reward_error"):
        assert found[error] < 1e-12
    assert found["phi_norm"] <= 1 + 1e-12
    assert found["theta_norm"] <= root + 1e-12
    assert found["mu_norm"] == pytest.approx(root)
    assert found["mu_norm_bound"] >= found["mu_norm"] - 1e-12


@pytest.mark.parametrize("mdp", EVERY)
def test_q_of_any_policy_is_linear_in_phi(mdp):
    size, actions, dim = mdp.phi.shape
    policy = np.random.default_rng(0).dirichlet(np.ones(actions), size)
    plan = evaluate(mdp.transition, mdp.reward, mdp.discount, policy)
    weights, error = finite.linear_fit(mdp, plan.action_value)
    assert error < 1e-11
    assert np.linalg.norm(weights) <= 2 * np.sqrt(dim) / (1 - mdp.discount)


def test_what_is_not_linear_is_seen():
    mdp = models.random_low_rank(8, 3, 4)
    curved = np.random.default_rng(0).uniform(size=(8, 3))
    assert finite.linear_fit(mdp, curved)[1] > 0.1
    assert finite.conditions(mdp._replace(reward=curved))["reward_error"] > 0.1


def test_known_violations_have_their_size():
    mdp = models.random_low_rank(8, 3, 4)
    doubled = finite.conditions(mdp._replace(phi=2 * mdp.phi))
    assert doubled["marginal_error"] == pytest.approx(1)
    assert doubled["phi_norm"] == pytest.approx(2 * finite.conditions(mdp)["phi_norm"])
    assert doubled["factorisation_error"] == pytest.approx(mdp.transition.max())
    larger = finite.conditions(mdp._replace(transition=mdp.transition * 1.1))
    assert larger["row_error"] == pytest.approx(0.1)


def test_mu_norm_is_the_largest_over_all_functions():
    mdp = models.random_low_rank(6, 2, 3)
    weighted = mdp.mu * mdp.base_measure[:, None]
    signs = itertools.product([-1.0, 1.0], repeat=6)
    largest = max(np.linalg.norm(np.array(g) @ weighted) for g in signs)
    assert finite.conditions(mdp)["mu_norm"] == pytest.approx(largest)


def test_stack_puts_seeds_in_front():
    both = finite.stack([models.random_low_rank(5, 2, 3, seed=seed) for seed in range(4)])
    assert both.transition.shape == (4, 5, 2, 5)
    assert both.discount.shape == (4,)


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("phi", lambda x: x / 2, "normalise"),
        ("mu", lambda x: -x, "normalise"),
        ("base_measure", lambda x: 0 * x, "base_measure"),
        ("reward", lambda x: x + 1, "reward"),
        ("start", lambda x: 2 * x, "start"),
        ("discount", lambda x: 1.0, "discount"),
    ],
)
def test_what_is_no_mdp_is_refused(field, value, word):
    mdp = models.random_low_rank(5, 2, 3)
    names = ("phi", "mu", "base_measure", "reward", "start", "discount")
    parts = {name: getattr(mdp, name) for name in names}
    parts[field] = value(parts[field])
    with pytest.raises(InputError, match=word):
        finite.make(**parts)
