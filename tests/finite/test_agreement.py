"""The deep code, given one-hot inputs, gives the numbers of the exact code."""

import jax.numpy as jnp
import numpy as np
import pytest

from phimu.confidence import Elliptical
from phimu.finite import estimators, exact, models
from phimu.finite.collecting import draw
from phimu.finite.ctrl_ucb import bonus
from phimu.finite.estimators import log_marginal
from phimu.representation import losses, ratio

NEGATIVES = 9


@pytest.fixture
def problem():
    """phi [n, d] and mu of the transitions' s' [n, d] and negatives [n, K, d], from one-hots."""
    mdp = models.random_low_rank(6, 3, 4)
    mu = mdp.mu * np.random.default_rng(1).uniform(0.2, 3, (6, 1))  # so that Z is not 1
    everywhere = np.full((6, 3), 1 / 18)
    sample = draw(np.random.default_rng(0), mdp, everywhere, 50, NEGATIVES)
    drawn = np.stack([np.repeat(np.arange(6), row.astype(int)) for row in sample.negatives])
    pair = np.eye(18, dtype=np.float32)[sample.observation * 3 + sample.action]
    phi = pair @ mdp.phi.reshape(18, 4).astype(np.float32)
    seen = np.eye(6, dtype=np.float32)
    deep_mu = mu.astype(np.float32)
    deep = phi, seen[sample.next_observation] @ deep_mu, seen[drawn] @ deep_mu
    return mdp, np.log(mdp.phi @ mu.T), sample, deep


def deep_ratios(phi, after, noise):
    """Log ratios of the positives [n] and the negatives [n, K] as the learner computes them."""

    def linear(phi, mu):
        return ratio.log_ratio(ratio.Linear(), phi, mu, jnp.ones(mu.shape[1]), None)

    rows = [linear(phi[i : i + 1], noise[i])[0] for i in range(len(phi))]
    return jnp.diagonal(linear(phi, after)), jnp.stack(rows)


@pytest.mark.parametrize("name", ["ranking", "binary"])
def test_losses_agree(name, problem):
    mdp, log_ratio, sample, deep = problem
    rows = log_ratio[sample.observation, sample.action]
    expected = exact(getattr(estimators, name))(rows, sample, mdp.base_measure, 0.3).mean()
    found = losses.LOSSES[name](*deep_ratios(*deep), NEGATIVES, jnp.float32(0.3))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_marginals_agree_on_every_next_observation_once(problem):
    mdp, log_ratio, _, _ = problem
    log_z = exact(log_marginal)(log_ratio, mdp.base_measure)  # p is uniform
    assert np.abs(log_z).max() > 0.05
    deep = jnp.asarray(log_ratio.reshape(18, 6), jnp.float32)
    np.testing.assert_allclose(losses.log_marginal(deep, 6), log_z.reshape(-1), atol=1e-5)
    assert float(losses.marginal_penalty(deep, 6)) == pytest.approx((log_z**2).mean(), abs=1e-5)


def test_maximum_likelihood_of_normalised_models_agrees(problem):
    mdp, _, sample, _ = problem
    rows = np.log(mdp.transition / mdp.base_measure)[sample.observation, sample.action]
    expected = exact(estimators.maximum_likelihood)(rows, sample, mdp.base_measure, 0.0).mean()
    positive = jnp.asarray(rows[np.arange(50), sample.next_observation], jnp.float32)
    found = losses.ranking_of_normalised(positive, NEGATIVES) - np.log(NEGATIVES + 1)
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("model", "bonus_scale"),
    [(models.coins(5, 2, 0.2), 3.0), (models.random_low_rank(6, 3, 4), 8.0)],
    ids=["one-hot", "low rank"],
)
def test_bonuses_agree(model, bonus_scale):
    observations, actions, feature_dim = model.phi.shape
    visits = np.random.default_rng(0).integers(0, 40, (observations, actions))
    phi = np.asarray(model.phi)
    seen = np.repeat(phi.reshape(-1, feature_dim), visits.reshape(-1), axis=0)
    confidence = Elliptical(bonus_scale=bonus_scale, ridge=1.0)
    state = confidence.fit([seen.astype(np.float32)], np.ones(len(seen), np.float32))
    ridge = float(np.mean(np.sum(seen**2, axis=1)))  # the deep code's is in units of this
    expected = exact(bonus)(phi, visits, bonus_scale, ridge)
    found = np.asarray(confidence.bonus(state, jnp.asarray(phi, jnp.float32)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.unique(expected).size > 3


def test_bonus_of_a_table_counts_its_visits():
    """With phi = e_(s,a) the covariance is diagonal: alpha / sqrt(n(s, a) + ridge), at most 2."""
    table = models.coins(5, 2, 0.2)
    visits = np.random.default_rng(0).integers(0, 40, (5, 2))
    expected = np.minimum(3.0 / np.sqrt(visits + 1.0), 2.0)
    np.testing.assert_allclose(exact(bonus)(table.phi, visits, 3.0, 1.0), expected, rtol=1e-12)
    assert (expected == 2.0).any()
