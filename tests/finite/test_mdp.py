"""The conditions of a linear MDP, on models that hold them and on ones that do not."""

import itertools

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite import mdp as finite
from phimu.finite import models
from phimu.finite.planning import evaluate

EVERY = [
    models.river_swim(),
    models.random_low_rank(8, 3, 4),
    models.block_mdp(3, 2, 3),
    models.combination_lock(3, 3, 2, noise=0.1),
]


@pytest.mark.parametrize("mdp", EVERY)
def test_our_models_are_linear_mdps(mdp):
    root = np.sqrt(mdp.phi.shape[2])
    assert finite.row_error(mdp) < 1e-12
    assert finite.factorisation_error(mdp) < 1e-12
    assert finite.marginal_error(mdp) < 1e-12
    assert finite.phi_norm(mdp) <= 1 + 1e-12
    theta, error = finite.reward_weights(mdp)
    assert error < 1e-12
    assert np.linalg.norm(theta) <= root + 1e-12
    assert finite.mu_norm(mdp) == pytest.approx(root)
    assert finite.mu_norm_bound(mdp) >= finite.mu_norm(mdp) - 1e-12


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
    assert finite.reward_weights(mdp._replace(reward=curved))[1] > 0.1


def test_known_violations_have_their_size():
    mdp = models.random_low_rank(8, 3, 4)
    doubled = mdp._replace(phi=2 * mdp.phi)
    assert finite.marginal_error(doubled) == pytest.approx(1)
    assert finite.phi_norm(doubled) == pytest.approx(2 * finite.phi_norm(mdp))
    assert finite.factorisation_error(doubled) == pytest.approx(mdp.transition.max())
    assert finite.row_error(mdp._replace(transition=mdp.transition * 1.1)) == pytest.approx(0.1)


def test_mu_norm_is_the_largest_over_all_functions():
    mdp = models.random_low_rank(6, 2, 3)
    weighted = mdp.mu * mdp.base_measure[:, None]
    signs = itertools.product([-1.0, 1.0], repeat=6)
    largest = max(np.linalg.norm(np.array(g) @ weighted) for g in signs)
    assert finite.mu_norm(mdp) == pytest.approx(largest)


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
