"""Line 4 of Algorithm 1 against exact occupancies."""

import numpy as np
import pytest

from phimu.finite import exact
from phimu.finite.collecting import collect, count, geometric
from phimu.finite.models import random_low_rank
from phimu.finite.planning import occupancy

SIZE = 40_000


@pytest.fixture(scope="module")
def mdp():
    return random_low_rank(5, 3, 2, discount=0.8, seed=3)._replace(start=np.eye(5)[2])


def policies(count, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(3), (count, 5))


def frequencies(mdp, chosen, uniform_action):
    def drawn(key):
        return collect(key, mdp, chosen, SIZE, uniform_action)

    data = exact(drawn)(np.array([0, 7], np.uint32))
    found = np.zeros(mdp.transition.shape)
    np.add.at(found, data[:3], 1 / SIZE)
    np.testing.assert_allclose(exact(lambda new: count(new, 5, 3))(data), found * SIZE)
    return found


def far(one, two):
    return 0.5 * np.abs(one - two).sum()


def visited(mdp, chosen):
    return np.mean(
        [occupancy(mdp.transition, mdp.start, mdp.discount, policy) for policy in chosen], axis=0
    )


@pytest.mark.parametrize("several", [1, 3])
def test_stops_where_the_policies_are_then_acts_uniformly(mdp, several):
    chosen = policies(several)
    found = frequencies(mdp, chosen, uniform_action=True)
    expected = visited(mdp, chosen).sum(axis=1)[:, None, None] / 3 * mdp.transition
    assert far(found, expected) < 0.02  # 75 cells; a wrong start, stop or action is above 0.05


def test_own_actions_give_the_occupancy_of_pairs(mdp):
    chosen = policies(1, seed=1)
    found = frequencies(mdp, chosen, uniform_action=False).sum(axis=2)
    assert far(found, visited(mdp, chosen)) < 0.015


def test_lengths_are_geometric():
    lengths = exact(geometric)(0.9, np.random.default_rng(0).uniform(size=SIZE))
    shares = np.bincount(lengths, minlength=30)[:30] / SIZE
    np.testing.assert_allclose(shares, 0.1 * 0.9 ** np.arange(30), atol=0.006)
    assert lengths.mean() == pytest.approx(9, abs=0.2)
