"""Likelihood and the finite class against counting and against trying every model."""

import itertools

import jax
import numpy as np
import pytest

from phimu.finite import exact
from phimu.finite.collecting import Transitions, draw
from phimu.finite.estimators import maximum_likelihood, ranking
from phimu.finite.learners import noise, shifts_by, tables_by_likelihood
from phimu.finite.models import through_latents


@pytest.fixture(scope="module")
def mdp():
    """A random MDP of three latent states, each seen as one of two observations of its own."""
    rng = np.random.default_rng(2)
    phi = np.repeat(rng.dirichlet(np.ones(3), (3, 3)), 2, axis=0)
    emission = np.kron(np.eye(3), np.ones(2))
    emission[emission > 0] = rng.dirichlet(np.ones(2), 3).reshape(-1)
    return through_latents(phi, emission, rng.uniform(size=3), emission[0], 0.9)


KEY = np.asarray(jax.random.PRNGKey(5))


def learned(learner, mdp, new):
    def run(new, key):
        return learner.read(learner.learn(learner.init(mdp), mdp, new, key), mdp)

    return exact(run)(new, KEY)


def test_frequencies_are_the_likelihoods_best(mdp):
    new = Transitions(np.array([0, 0, 0, 5]), np.array([1, 1, 1, 2]), np.array([3, 3, 4, 0]))
    found = learned(tables_by_likelihood(), mdp, new)
    np.testing.assert_allclose(found.transition[0, 1], [0, 0, 0, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(found.transition[5, 2], np.eye(6)[0])
    np.testing.assert_allclose(found.transition[0, 0], np.full(6, 1 / 6))  # never seen
    np.testing.assert_array_equal(found.phi, found.transition)


@pytest.mark.parametrize(("loss", "negatives"), [(maximum_likelihood, 0), (ranking, 16)])
def test_finite_class_gives_the_best_of_all_its_models(mdp, loss, negatives):
    rng = np.random.default_rng(0)
    data = draw(rng, mdp, np.full((6, 3), 1 / 18), 60, 0)
    drawn = exact(lambda key: noise(key, mdp.base_measure, 60, negatives))(KEY)
    sample = data._replace(negatives=drawn.astype(np.float64))

    def total(transition):
        rows = np.log(transition / mdp.base_measure)[sample.observation, sample.action]
        return float(exact(loss)(rows, sample, mdp.base_measure, np.zeros(())).sum())

    actions = np.arange(3)
    every = []
    for shifts in itertools.product(range(3), repeat=3):  # one for each latent state
        action = (actions + np.repeat(shifts, 2)[:, None]) % 3
        every.append(mdp.transition[np.arange(6)[:, None], action])
    totals = [total(transition) for transition in every]
    found = learned(shifts_by(loss, negatives, 2), mdp, Transitions(*data[:3]))
    np.testing.assert_array_equal(found.transition, every[int(np.argmin(totals))])
    np.testing.assert_allclose(
        found.phi @ (mdp.mu * mdp.base_measure[:, None]).T, found.transition, atol=1e-12
    )


def test_without_data_the_finite_class_does_not_know_the_truth(mdp):
    nothing = Transitions(*(np.zeros(0, int) for _ in range(3)))
    found = learned(shifts_by(maximum_likelihood, 0, 2), mdp, nothing)
    assert np.abs(found.transition - mdp.transition).max() > 0.1


def test_noise_has_the_base_measure(mdp):
    base = np.array([0.1, 0.2, 0.3, 0.4])
    drawn = exact(lambda key: noise(key, base, 500, 40))(jax.random.PRNGKey(2))
    assert (drawn.astype(int).sum(axis=1) == 40).all()
    np.testing.assert_allclose(drawn.mean(axis=0) / 40, base, atol=0.01)
