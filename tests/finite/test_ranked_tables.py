"""The update of the ranking loss against its maximum, found by another road."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.finite import exact
from phimu.finite.collecting import Transitions, draw
from phimu.finite.estimators import fit, probabilities, ranking
from phimu.finite.models import random_low_rank
from phimu.finite.ranked_tables import table_by_ranking, tables_by_ranking


@pytest.fixture(scope="module")
def mdp():
    return random_low_rank(5, 2, 3, seed=1)


def table(logits, base_measure):
    """A number for each (s, a, s'), normalised: phi = e_(s,a) and all mu that sum to one."""
    return jax.nn.log_softmax(logits, axis=2) - jnp.log(base_measure)[None, None]


def by_updates(sample, mdp, rounds):
    return exact(lambda sample: table_by_ranking(sample, mdp, rounds))(sample)


def mean_distance(one, two):
    return 0.5 * np.abs(one - two).sum(axis=2).mean()


def test_finds_the_maximum_that_the_gradient_finds(mdp):
    rng = np.random.default_rng(0)
    sample = draw(rng, mdp, np.full((5, 2), 0.1), 400, 8)
    found = fit(ranking, table, np.zeros(mdp.transition.shape), sample, mdp.base_measure, 1e-7)
    expected = probabilities(table(found.parameters, mdp.base_measure), mdp.base_measure)
    np.testing.assert_allclose(by_updates(sample, mdp, 300), expected, atol=1e-4)


def test_nears_the_frequencies_as_negatives_grow(mdp):
    rng = np.random.default_rng(1)
    sample = draw(rng, mdp, np.full((5, 2), 0.1), 500, 4)
    seen = np.zeros(mdp.transition.shape)
    np.add.at(seen, tuple(sample[:3]), 1)
    frequencies = seen / seen.sum(axis=2, keepdims=True)
    distances = []
    for negatives in (4, 64, 1_024):
        noise = rng.multinomial(negatives, mdp.base_measure, 500).astype(np.float64)
        again = sample._replace(negatives=noise)
        distances.append(mean_distance(by_updates(again, mdp, 50), frequencies))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.01


def test_growing_data_end_near_the_maximum_and_unseen_pairs_at_the_base_measure(mdp):
    rng = np.random.default_rng(2)
    pairs = np.full((5, 2), 1 / 9)
    pairs[4, 1] = 0
    sample = draw(rng, mdp, pairs, 600, 0)
    learner = tables_by_ranking(64, 600, 20)

    def learn(memory, batch):
        new, key = batch
        return learner.learn(memory, mdp, new, key), None

    @exact
    def run(new, keys):
        memory, _ = jax.lax.scan(learn, learner.init(mdp), (new, keys))
        rest = memory.candidates.at[np.arange(600), sample.next_observation].add(-1)
        return learner.read(memory, mdp), rest

    batches = [np.reshape(part, (30, 20)) for part in sample[:3]]
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), 30))
    estimate, noise = run(Transitions(*batches), keys)
    assert (noise.astype(int).sum(axis=1) == 64).all()
    expected = by_updates(sample._replace(negatives=noise.astype(np.float64)), mdp, 100)
    np.testing.assert_allclose(estimate.transition, expected, atol=0.01)
    np.testing.assert_allclose(estimate.transition[4, 1], mdp.base_measure)
    np.testing.assert_array_equal(estimate.phi, estimate.transition)
