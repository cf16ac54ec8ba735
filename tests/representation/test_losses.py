"""The losses against the paper's equations, written out in loops over float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from phimu.representation.losses import (
    LOSSES,
    balance_penalty,
    log_marginal,
    marginal_penalty,
    mu_norm_penalty,
    ranking_of_normalised,
)

B, M = 3, 5  # rows, and places for negatives in a row; fixed, so that each loss compiles once


def ranking_oracle(positive, negative, normaliser):
    """Equation (ranking); an entry of -inf is no sample."""
    del normaliser
    total = 0.0
    for i in range(B):
        f_i = np.exp(positive[i])
        rivals = sum(np.exp(y) for y in negative[i] if y != -np.inf)
        total += -np.log(f_i / (f_i + rivals))
    return total / B


def binary_oracle(positive, negative, normaliser):
    """Equation (binary), with h = f e^-c / (f e^-c + K) and 1 - h = K / (f e^-c + K)."""
    total = 0.0
    for i in range(B):
        samples = [y for y in negative[i] if y != -np.inf]
        k = len(samples)
        f = np.exp(positive[i]) * np.exp(-normaliser)
        total += np.log(f / (f + k))
        for y in samples:
            f = np.exp(y) * np.exp(-normaliser)
            total += np.log(k / (f + k))
    return -total / B


ORACLES = {"ranking": ranking_oracle, "binary": binary_oracle}
COMPILED = {
    name: jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 3)), static_argnums=2)
    for name, loss in LOSSES.items()
}


def log_ratios(bound):
    numbers = st.floats(-bound, bound, width=32, allow_subnormal=False)
    return st.tuples(
        arrays(np.float64, B, elements=numbers),
        arrays(np.float64, (B, M), elements=numbers),
        st.floats(-3, 3, width=32, allow_subnormal=False),
        st.permutations(range(M)),  # a row with another place masked than its neighbours
        st.integers(0, 2),
    )


def with_masks(negative, order, masked):
    """The same number of -inf in each row, at places that differ between rows."""
    negative = negative.copy()
    for i in range(B):
        for j in range(masked):
            negative[i, order[(i + j) % M]] = -np.inf
    return negative


def float32(*values):
    return [jnp.asarray(value, jnp.float32) for value in values]


@pytest.mark.parametrize("name", LOSSES)
@given(drawn=log_ratios(20))
@settings(max_examples=60, deadline=None)
def test_loss_is_the_equation(name, drawn):
    positive, negative, normaliser, order, masked = drawn
    negative = with_masks(negative, order, masked)
    p, n, c = float32(positive, negative, normaliser)
    value, _ = COMPILED[name](p, n, M - masked, c)
    expected = ORACLES[name](positive, negative, normaliser)
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", LOSSES)
@given(drawn=log_ratios(8))
@settings(max_examples=25, deadline=None)
def test_gradient_is_that_of_the_equation(name, drawn):
    positive, negative, normaliser, order, masked = drawn
    negative = with_masks(negative, order, masked)
    p, n, c = float32(positive, negative, normaliser)
    _, gradients = COMPILED[name](p, n, M - masked, c)
    step = 1e-5
    inputs = [positive, negative, np.asarray(normaliser)]
    for which, gradient in enumerate(gradients):
        for index in np.ndindex(inputs[which].shape):
            if inputs[which][index] == -np.inf:
                assert gradient[index] == 0.0
                continue
            ends = []
            for sign in (1, -1):
                moved = [np.array(value) for value in inputs]
                moved[which][index] += sign * step
                ends.append(ORACLES[name](moved[0], moved[1], float(moved[2])))
            slope = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(gradient[index], slope, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("real", "noise"), [(80, -80), (-80, 80), (80, 80), (-80, -80)])
def test_large_log_ratios_stay_finite(name, real, noise):
    positive, negative = np.full(B, float(real)), np.full((B, M), float(noise))
    negative = with_masks(negative, range(M), 1)
    value, gradients = COMPILED[name](*float32(positive, negative), M - 1, jnp.float32(0.5))
    expected = ORACLES[name](positive, negative, 0.5)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def test_ranking_ignores_the_scale_of_a_row_and_binary_does_not():
    rng = np.random.default_rng(0)
    positive, negative = float32(rng.normal(size=B), rng.normal(size=(B, M)))
    zero = jnp.zeros(())
    shift = jnp.asarray([1.0, -2.0, 3.0])
    for name, free in (("ranking", True), ("binary", False)):
        before, _ = COMPILED[name](positive, negative, M, zero)
        after, _ = COMPILED[name](positive + shift, negative + shift[:, None], M, zero)
        assert np.allclose(before, after, rtol=1e-5) == free


@given(drawn=log_ratios(8))
@settings(max_examples=20, deadline=None)
def test_ranking_of_ratios_that_sum_to_their_number_needs_the_positive_alone(drawn):
    positive, negative, *_ = drawn
    both = np.concatenate([positive[:, None], negative], axis=1)
    both = both - np.log(np.exp(both).mean(axis=1, keepdims=True))
    expected = ranking_oracle(both[:, 0], both[:, 1:], 0.0)
    value = ranking_of_normalised(*float32(both[:, 0]), M)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


@given(drawn=log_ratios(20))
@settings(max_examples=40, deadline=None)
def test_marginal_is_the_log_of_the_mean_ratio(drawn):
    _, negative, _, order, masked = drawn
    negative = with_masks(negative, order, masked)
    count = M - masked
    expected = np.zeros(B)
    for i in range(B):
        expected[i] = np.log(sum(np.exp(y) for y in negative[i] if y != -np.inf) / count)
    (n,) = float32(negative)
    np.testing.assert_allclose(log_marginal(n, count), expected, rtol=1e-5, atol=1e-5)
    penalty = sum(z**2 for z in expected) / B
    np.testing.assert_allclose(marginal_penalty(n, count), penalty, rtol=5e-5, atol=1e-5)


@given(mu=arrays(np.float64, (4, 3), elements=st.floats(-10, 10, width=32)))
@settings(max_examples=20, deadline=None)
def test_mu_norm_penalty_is_the_mean_squared_length(mu):
    expected = sum(sum(x**2 for x in row) for row in mu) / len(mu)
    np.testing.assert_allclose(mu_norm_penalty(*float32(mu)), expected, rtol=1e-5, atol=1e-30)


def test_balance_penalty_is_the_divergence_of_mean_phi_from_uniform():
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(6, 0.3), 9)
    usage = phi.sum(axis=0) / 9
    expected = sum(u * (np.log(u) - np.log(1 / 6)) for u in usage)
    np.testing.assert_allclose(balance_penalty(*float32(phi)), expected, rtol=1e-5)
    np.testing.assert_allclose(balance_penalty(jnp.full((4, 6), 1 / 6)), 0.0, atol=1e-6)
    one = jnp.zeros((4, 6)).at[:, 2].set(1.0)
    np.testing.assert_allclose(balance_penalty(one), np.log(6), rtol=1e-6)
    assert np.isfinite(jax.grad(balance_penalty)(one)).all()
