"""Every representation where P is known: the measures on known answers, and learning in small."""

import numpy as np
import pytest

from phimu.finite import models
from phimu.reports.theory import figures, tables
from phimu.studies import known_worlds as known
from phimu.studies.known_worlds import RepresentationRow


@pytest.fixture(scope="module")
def low_rank():
    return known.low_rank(0)


def test_q_is_linear_in_the_true_phi_and_not_in_a_constant(low_rank):
    mdp, rng = low_rank.mdp, np.random.default_rng(0)
    true_phi = np.asarray(mdp.phi).reshape(-1, mdp.phi.shape[2])
    assert known.value_error(mdp, true_phi, rng) < 1e-12
    assert known.value_error(mdp, np.ones((len(true_phi), 1)), rng) == pytest.approx(1)
    # Half of the observations of all pairs told apart: the variance within the other half is left.
    assert 0.1 < known.value_error(mdp, true_phi[:, :1], rng) < 1


def test_transition_error_of_the_true_ratio_is_zero_whatever_its_scale(low_rank):
    mdp, base = low_rank.mdp, np.random.default_rng(0).dirichlet(np.ones(40))
    ratio = np.log(np.asarray(mdp.transition).reshape(-1, 40) / base)
    scaled = ratio + np.arange(len(ratio))[:, None]
    assert known.transition_error(mdp, scaled, base) < 1e-12
    two = models.tabular(np.eye(2)[[[0], [1]]], np.zeros((2, 1)), np.array([1.0, 0.0]), 0.9)
    assert known.transition_error(two, np.zeros((2, 2)), np.array([0.5, 0.5])) == pytest.approx(0.5)


def test_the_data_is_of_the_world(low_rank):
    store = known._collect(low_rank, np.random.default_rng(0))
    rows = store.rows
    s, a, t = (
        column.argmax(axis=1) for column in (rows.observation, rows.action, rows.next_observation)
    )
    counts = np.zeros(low_rank.mdp.transition.shape)
    np.add.at(counts, (s, a, t), 1)
    found = counts / counts.sum(axis=2, keepdims=True)
    expected = np.sqrt(
        low_rank.mdp.transition * (1 - low_rank.mdp.transition) / counts.sum(2, keepdims=True)
    )
    assert np.mean(np.abs(found - low_rank.mdp.transition)) < 1.1 * np.mean(expected)
    np.testing.assert_allclose(rows.reward, low_rank.mdp.reward[s, a], rtol=1e-6)
    share = known._share(store, low_rank)
    np.testing.assert_allclose(share, np.bincount(t, minlength=40) / len(t))


def test_maze_moves_by_its_noise_and_stops_at_walls():
    world = known.maze(0)
    transition = np.asarray(world.mdp.transition)
    np.testing.assert_allclose(transition.sum(axis=2), 1)
    places = np.round((world.observation * 20 / np.sqrt(12) + 10) / 1.25 - 0.5).astype(int)
    number = {tuple(place): n for n, place in enumerate(places)}
    right = int(np.flatnonzero((known.STEPS == (1, 0)).all(axis=1))[0])
    mean = (transition[number[2, 2], right] @ places)[0] - 2
    assert mean == pytest.approx(2 / 1.25, abs=0.15)  # a step of top_speed
    corner = transition[number[15, 15], right]
    assert corner @ places[:, 0] > 14.9  # the boundary


def test_learning_is_better_than_not():
    world = known.lock(0)
    none = known.measure(world, known.UNTRAINED, 0, 0)
    some = known.measure(world, "contrastive", 1_000, 0)
    assert np.isnan(none[0])
    assert some[0] < 0.1  # 0.87 without learning anything but p(s')
    assert some[1] < 0.6 * none[1]


def rows(seeds=2):
    return [
        RepresentationRow(world, name, seed, float("nan") if name == "b" else 0.1 + seed, 0.25)
        for world in ("one", "two")
        for name in ("a", "b")
        for seed in range(seeds)
    ]


def test_table_and_picture():
    found = tables.representations(rows())
    assert "| representation | P, one | P, two | Q, one | Q, two |" in found
    assert "| a | 0.600 [0.100, 1.100] |" in found
    assert "| b |  |  | 0.250 [0.250, 0.250] |" in found
    assert len(figures.representations(rows()).axes) == 4
