"""Estimates: known maxima, and NCE near the maximum likelihood when K is large."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.finite import exact, models
from phimu.finite.collecting import draw
from phimu.finite.estimators import (
    Factors,
    binary,
    fit,
    linear,
    linear_features,
    maximum_likelihood,
    probabilities,
    ranking,
)
from phimu.finite.mdp import transition_of

OBSERVATIONS, ACTIONS, DIM = 5, 2, 2
PAIRS = np.full((OBSERVATIONS, ACTIONS), 1 / (OBSERVATIONS * ACTIONS))
MDP = models.random_low_rank(OBSERVATIONS, ACTIONS, DIM, seed=1)


def table(logits, base_measure):
    """A number for each (s, a, s'), normalised: phi = e_(s,a) and all mu that sum to one."""
    return jax.nn.log_softmax(logits, axis=2) - jnp.log(base_measure)[None, None]


def sampled(negatives, size=1_000, seed=0):
    return draw(np.random.default_rng(seed), MDP, PAIRS, size, negatives)


def frequencies(sample):
    counts = np.zeros((OBSERVATIONS, ACTIONS, OBSERVATIONS))
    np.add.at(counts, (sample.observation, sample.action, sample.next_observation), 1)
    return counts / counts.sum(axis=2, keepdims=True)


def estimate(loss, model, first, sample, base=MDP.base_measure):
    found = fit(loss, model, first, sample, base, tolerance=1e-7)
    assert found.gradient <= 1e-7
    read = exact(lambda parameters: probabilities(model(parameters, base), base))
    return read(found.parameters), found


def furthest(one, two):
    """The largest total variation over (s, a)."""
    return 0.5 * np.abs(one - two).sum(axis=2).max()


def random_factors(seed=0):
    rng = np.random.default_rng(seed)
    shapes = (OBSERVATIONS, ACTIONS, DIM), (OBSERVATIONS, DIM)
    return Factors(*(rng.normal(size=shape) for shape in shapes))


def test_likelihood_of_a_table_is_the_frequencies():
    sample = sampled(1)
    found, _ = estimate(maximum_likelihood, table, np.zeros(MDP.transition.shape), sample)
    assert furthest(found, frequencies(sample)) < 1e-5


@pytest.mark.parametrize("loss", [ranking, binary])
def test_contrast_of_a_table_nears_the_frequencies(loss):
    first = np.zeros(MDP.transition.shape)
    few, _ = estimate(loss, table, first, sampled(4))
    many, found = estimate(loss, table, first, sampled(20_000))
    expected = frequencies(sampled(20_000))
    assert furthest(many, expected) < 0.01 < furthest(few, frequencies(sampled(4)))
    assert abs(found.log_normaliser) < 0.01


def test_negatives_count_by_their_ratio_to_a_base_measure_that_is_not_uniform():
    base = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    sample = draw(np.random.default_rng(0), MDP._replace(base_measure=base), PAIRS, 1_000, 20_000)
    found, _ = estimate(ranking, table, np.zeros(MDP.transition.shape), sample, base)
    assert furthest(found, frequencies(sample)) < 0.01


@pytest.mark.parametrize("loss", [ranking, binary])
def test_learned_factors_near_those_of_the_likelihood(loss):
    sample = sampled(20_000)
    best, found = estimate(maximum_likelihood, linear, random_factors(), sample)
    near, _ = estimate(loss, linear, found.parameters, sample)
    assert furthest(near, best) < 0.01
    assert furthest(best, MDP.transition) < 0.2


def test_binary_needs_a_z_that_is_the_same_everywhere():
    """exp(<phi, mu>) with a known phi: Z differs from pair to pair, and c is one number."""
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(OBSERVATIONS, ACTIONS, DIM))
    f = np.exp(phi @ rng.normal(size=(DIM, OBSERVATIONS)))
    base = MDP.base_measure
    mdp = models.tabular(f / f.sum(axis=2, keepdims=True), np.zeros(PAIRS.shape), base, 0.9)
    sample = draw(rng, mdp, PAIRS, 1_000, 20_000)

    def model(mu, base_measure):
        return phi @ mu.T

    best, likely, chosen = (
        estimate(loss, model, np.zeros((OBSERVATIONS, DIM)), sample)[0]
        for loss in (maximum_likelihood, ranking, binary)
    )
    assert furthest(likely, best) < 0.01
    assert furthest(chosen, best) > 0.05


def test_linear_features_are_a_linear_mdp():
    phi, mu = exact(linear_features)(random_factors(), MDP.base_measure)
    np.testing.assert_allclose(phi.sum(axis=2), 1)
    np.testing.assert_allclose(MDP.base_measure @ mu, 1)
    ratio = exact(linear)(random_factors(), MDP.base_measure)
    expected = transition_of(phi, mu, MDP.base_measure)
    np.testing.assert_allclose(np.exp(ratio) * MDP.base_measure, expected, rtol=1e-12)
