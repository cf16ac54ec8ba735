"""The dual form of the KL divergence, against float64 NumPy and Gaussians of known divergence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from phimu.planning.dual_divergence import DualKl, estimate, kl_dual, steepness
from phimu.types import Spec

SPEC, B = Spec(3, 2), 6


@pytest.fixture(scope="module")
def network():
    network = DualKl(dual_sizes=(4,)).init(SPEC, jax.random.PRNGKey(0)).network
    return eqx.tree_at(lambda n: n.layers[0].weight, network, 4 * network.layers[0].weight)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    observation = rng.normal(size=(B, 3)).astype(np.float32)
    return observation, *rng.uniform(-1, 1, (2, B, 2)).astype(np.float32)


def c_of(network, observation, action):
    """(c, dc/da) of a network with one hidden layer."""
    (w1, b1), (w2, b2) = (
        [np.asarray(x, np.float64) for x in (layer.weight, layer.bias)] for layer in network.layers
    )
    before = np.concatenate([observation, action], axis=1) @ w1 + b1
    c = np.maximum(before, 0) @ w2[:, 0] + b2[0]
    return c, ((before > 0) * w2[:, 0]) @ w1[3:].T


def test_estimate(network):
    observation, action, logged = rows()
    g, g_logged = (np.log1p(np.exp(c_of(network, observation, a)[0])) for a in (action, logged))
    expected = 1 + np.log(g) - g_logged
    computed = estimate(network, observation, action, logged)
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-5)
    elsewhere = kl_dual(network, observation, logged)(observation, action, None)
    np.testing.assert_allclose(elsewhere, 1 + np.log(g) - g_logged.mean(), rtol=1e-4, atol=1e-5)


def test_steepness(network):
    observation, action, _ = rows()
    slope = np.linalg.norm(c_of(network, observation, action)[1], axis=1)
    assert slope.min() < 1 < slope.max()
    expected = (np.maximum(slope - 1, 0) ** 2).mean()
    np.testing.assert_allclose(steepness(network, observation, action), expected, rtol=1e-4)


def test_loss_holds_both_and_its_gradient_is_finite(network):
    observation, action, logged = rows()
    settings = DualKl(dual_sizes=(4,))
    state = settings.init(SPEC, jax.random.PRNGKey(0))._replace(network=network)
    share = np.linspace(0, 1, B).astype(np.float32)
    after, told = settings.update(state, observation, action, logged, share)
    between = action + share[:, None] * (logged - action)
    slope = np.linalg.norm(c_of(network, observation, between)[1], axis=1)
    penalty = 5 * (np.maximum(slope - 1, 0) ** 2).mean()
    np.testing.assert_allclose(told["dual_penalty"], penalty, rtol=1e-4)
    leaves = jax.tree.leaves(eqx.filter(after, eqx.is_array))
    assert all(np.isfinite(x).all() for x in leaves)


@pytest.mark.parametrize("weight", [0.0, 5.0])
def test_estimate_approaches_a_known_divergence(weight):
    """pi = N(0.3, 0.3), b = N(0, 0.3), KL = 0.5: with the penalty, what a gentle slope can tell."""
    settings = DualKl((32, 32), 3e-3, gradient_penalty=weight)

    @jax.jit
    def learn(state, key):
        def one(state, key):
            for_pair, for_share = jax.random.split(key)
            pair = 0.3 * jax.random.normal(for_pair, (2, 256, 1))
            share = jax.random.uniform(for_share, (256,))
            empty = jnp.zeros((256, 1))
            state, told = settings.update(state, empty, pair[0] + 0.3, pair[1], share)
            return state, told["dual_estimate"]

        return jax.lax.scan(one, state, jax.random.split(key, 600))

    _, found = learn(settings.init(Spec(1, 1), jax.random.PRNGKey(0)), jax.random.PRNGKey(1))
    expected = 0.5 if weight == 0 else best_of_a_line()
    np.testing.assert_allclose(np.mean(found[-200:]), expected, atol=0.03)


def best_of_a_line():
    """The estimate at the best c = slope a + k, by quadrature: under the penalty c is a line."""
    grid = np.linspace(-2, 2, 2_001)
    pi, b = (scipy.stats.norm.pdf(grid, mean, 0.3) * (grid[1] - grid[0]) for mean in (0.3, 0.0))

    def value(line):
        g = np.log1p(np.exp(line[0] * grid + line[1]))
        return 1 + pi @ np.log(g) - b @ g

    best = scipy.optimize.minimize(
        lambda line: 5 * max(line[0] - 1, 0) ** 2 - value(line), [1.0, 0.0], method="Nelder-Mead"
    )
    return value(best.x)
