"""Conjugate gradient, Fisher products and the line search against plain float64 versions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from phimu.planning.trust_region import (
    conjugate_gradient,
    divergence,
    fisher_product,
    line_search,
    longest_step,
)
from phimu.policies import Gaussian

ROWS, DAMPING = 5, 0.1


@pytest.fixture(scope="module")
def policy():
    """A small policy with a mean that depends on what it sees, and where it is looked at."""
    actor = Gaussian(2, 2, (8,), jax.random.PRNGKey(0))
    parameters, restored = ravel_pytree(actor)
    rng = np.random.default_rng(0)
    parameters = parameters + jnp.asarray(0.3 * rng.normal(size=parameters.shape), jnp.float32)
    observation = jnp.asarray(rng.normal(size=(ROWS, 2)), jnp.float32)
    return parameters, lambda p: restored(p)(observation), restored


def exact_fisher(parameters, restored, observation):
    """J' M J with a Jacobian by hand in float64; the parameters in the order of `restored`."""
    numbers = restored(jnp.arange(float(len(parameters))))
    place = {
        "w0": np.asarray(numbers.network.layers[0].weight, int),
        "b0": np.asarray(numbers.network.layers[0].bias, int),
        "w1": np.asarray(numbers.network.layers[1].weight, int),
        "b1": np.asarray(numbers.network.layers[1].bias, int),
        "log_std": np.asarray(numbers.log_std, int),
    }
    flat = np.asarray(parameters, np.float64)
    values = {name: flat[index] for name, index in place.items()}
    fisher = np.zeros((len(flat), len(flat)))
    for s in np.asarray(observation, np.float64):
        hidden = np.tanh(s @ values["w0"] + values["b0"])
        for a in range(2):
            row = np.zeros(len(flat))
            row[place["w1"][:, a]] = hidden
            row[place["b1"][a]] = 1.0
            back = values["w1"][:, a] * (1 - hidden**2)
            row[place["b0"]] = back
            row[place["w0"]] = np.outer(s, back)
            fisher += np.outer(row, row) * np.exp(-2 * values["log_std"][a]) / len(observation)
    for index in place["log_std"]:
        fisher[index, index] = 2.0
    return fisher


def test_conjugate_gradient_is_a_direct_solve():
    """With as many iterations as unknowns, in float64."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    matrix, b = root @ root.T + DAMPING * np.eye(12), rng.normal(size=12)
    with jax.enable_x64(True):
        found = conjugate_gradient(lambda v: jnp.asarray(matrix) @ v, jnp.asarray(b), 40, 1e-24)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, b), rtol=1e-8)


def test_conjugate_gradient_counts_its_iterations():
    """One step of it is the best one along b; it stops when nothing is left to do."""
    matrix, b = np.diag([1.0, 2.0, 3.0]).astype(np.float32), np.ones(3, np.float32)
    once = conjugate_gradient(lambda v: matrix @ v, jnp.asarray(b), 1)
    np.testing.assert_allclose(once, b * (b @ b) / (b @ matrix @ b), rtol=1e-6)
    np.testing.assert_array_equal(conjugate_gradient(lambda v: v, jnp.zeros(3), 10), 0.0)


def test_divergence_is_the_closed_form():
    rng = np.random.default_rng(0)
    means, log_stds = rng.normal(size=(2, ROWS, 3)), rng.normal(size=(2, 3))
    one, other = (
        (jnp.asarray(m, jnp.float32), jnp.asarray(s, jnp.float32))
        for m, s in zip(means, log_stds, strict=True)
    )
    variances = np.exp(2 * log_stds)
    expected = np.mean(
        np.sum(
            log_stds[1]
            - log_stds[0]
            + (variances[0] + (means[0] - means[1]) ** 2) / (2 * variances[1])
            - 0.5,
            axis=1,
        )
    )
    np.testing.assert_allclose(divergence(one, other), expected, rtol=1e-5)
    assert float(divergence(one, one)) == 0.0


def test_fisher_product_is_the_exact_fisher(policy):
    parameters, gaussians, restored = policy
    observation = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, 2)), jnp.float32)
    fisher = exact_fisher(parameters, restored, observation)
    product = jax.jit(fisher_product(lambda p: restored(p)(observation), parameters, 0.0))
    found = np.stack([product(row) for row in jnp.eye(len(parameters))])
    np.testing.assert_allclose(found, fisher, atol=1e-5 * np.abs(fisher).max())
    damped = fisher_product(gaussians, parameters, DAMPING)
    plain = fisher_product(gaussians, parameters, 0.0)
    v = jnp.asarray(np.random.default_rng(1).normal(size=len(parameters)), jnp.float32)
    np.testing.assert_allclose(damped(v), plain(v) + DAMPING * v, rtol=1e-5, atol=1e-6)


def test_fisher_product_is_the_curvature_of_the_divergence(policy):
    """KL(p, p + x) is 1/2 x' F x up to third order."""
    parameters, gaussians, _ = policy
    product = fisher_product(gaussians, parameters, 0.0)
    v = jnp.asarray(np.random.default_rng(1).normal(size=len(parameters)), jnp.float32)
    v = 0.02 * v / jnp.linalg.norm(v)
    kl = divergence(gaussians(parameters), gaussians(parameters + v))
    np.testing.assert_allclose(kl, 0.5 * jnp.vdot(v, product(v)), rtol=0.05)


def test_the_longest_step_is_on_the_border_of_the_region(policy):
    """1/2 x' (F + damping I) x = max_kl, so the KL is max_kl - damping |x|^2 / 2."""
    parameters, gaussians, _ = policy
    product = fisher_product(gaussians, parameters, DAMPING)
    v = jnp.asarray(np.random.default_rng(1).normal(size=len(parameters)), jnp.float32)
    v = product(v) - DAMPING * v  # a gradient of the policy has nothing where F is 0
    step = longest_step(conjugate_gradient(product, v, 10), product, 1e-3)
    np.testing.assert_allclose(0.5 * jnp.vdot(step, product(step)), 1e-3, rtol=1e-4)
    kl = float(divergence(gaussians(parameters), gaussians(parameters + step)))
    assert kl == pytest.approx(1e-3 - 0.5 * DAMPING * float(step @ step), rel=0.1)
    nothing = longest_step(jnp.zeros_like(v), product, 0.01)
    np.testing.assert_array_equal(nothing, 0.0)


SEARCH = {"backtracks": 10, "accept_ratio": 0.1, "kl_limit": None}


def parabola(x):
    """Its maximum is at 1; the divergence is the squared distance from 0."""
    return -jnp.sum((x - 1.0) ** 2), jnp.sum(x**2)


@pytest.mark.parametrize(
    ("step", "changes", "share"),
    [
        (0.5, {}, 1.0),
        (1.9, {}, 0.5),  # 1.9 gains 0.19 of the 3.8 that are promised: too little
        (100.0, {}, 0.5**6),  # 1.5625
        (1.0, {"kl_limit": 0.1}, 0.25),
        (100.0, {"backtracks": 5}, 0.0),
        (-1.0, {}, 0.0),
        (np.nan, {}, 0.0),
    ],
)
def test_the_line_search_takes_the_first_good_share(step, changes, share):
    start, step = jnp.zeros(1), jnp.full(1, step, jnp.float32)
    slope = jax.grad(lambda x: parabola(x)[0])(start)
    found = line_search(parabola, start, step, slope, **SEARCH | changes)
    assert float(found.share) == share
    expected = start if share == 0 else share * step
    np.testing.assert_array_equal(found.parameters, expected)
