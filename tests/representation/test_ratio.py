"""Both ratios of every pair, written out, and what they are divided by."""

import jax.numpy as jnp
import numpy as np
import pytest

from phimu.representation.ratio import Exponential, Linear, log_ratio, own_log_ratio


@pytest.fixture
def maps():
    """Non-negative phi [4, 6] and mu [3, 6], float64."""
    rng = np.random.default_rng(0)
    return rng.uniform(0.1, 2, (4, 6)), rng.uniform(0.1, 2, (3, 6))


def linear(phi, mu, mean=None):
    mean = np.ones(np.shape(mu)[1]) if mean is None else mean
    phi, mu, mean = (jnp.asarray(x, jnp.float32) for x in (phi, mu, mean))
    return log_ratio(Linear(), phi, mu, mean, None)


def exponential(phi, mu, temperature):
    phi, mu = (jnp.asarray(x, jnp.float32) for x in (phi, mu))
    return log_ratio(Exponential(), phi, mu, None, jnp.log(jnp.float32(temperature)))


@pytest.mark.parametrize("temperature", [0.2, 3.0])
def test_every_pair_has_its_log_ratio(maps, temperature):
    phi, mu = maps
    of_linear = linear(phi, mu)
    of_exponential = exponential(phi, mu, temperature)
    assert of_linear.shape == of_exponential.shape == (4, 3)
    for i in range(4):
        for j in range(3):
            inner = sum(phi[i, k] * mu[j, k] for k in range(6))
            np.testing.assert_allclose(of_linear[i, j], np.log(inner), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(of_exponential[i, j], inner / temperature, rtol=1e-5)


def test_the_linear_ratio_divides_mu_by_its_mean(maps):
    """Component by component; a row alone has the ratio that it has among all."""
    phi, mu = maps
    mean = np.linspace(0.5, 3, 6)
    found = linear(phi, mu, mean)
    np.testing.assert_allclose(found, np.log(phi @ (mu / mean).T), rtol=1e-5, atol=1e-6)
    three, mu, mean = (jnp.asarray(x, jnp.float32) for x in (phi[:3], mu, mean))
    own = own_log_ratio(three, mu, mean)
    np.testing.assert_allclose(own, jnp.diagonal(found[:3]), rtol=1e-5, atol=1e-6)


def test_linear_of_orthogonal_features_is_finite():
    value = linear([[1.0, 0.0]], [[0.0, 1.0]])
    assert np.isfinite(value).all()
    assert value[0, 0] < -20  # and still next to nothing


def test_a_component_of_mu_that_is_nowhere_is_finite():
    assert np.isfinite(linear([[0.5, 0.5]], [[0.0, 1.0]], [0.0, 1.0])).all()


def test_parameters_of_the_other_ratio_are_an_error():
    one = jnp.ones((1, 2))
    with pytest.raises(TypeError, match="another ratio"):
        log_ratio(Linear(), one, one, None, jnp.zeros(()))
    with pytest.raises(TypeError, match="another ratio"):
        log_ratio(Exponential(), one, one, jnp.ones(2), None)
