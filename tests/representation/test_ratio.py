import jax.numpy as jnp
import numpy as np
import pytest

from phimu.representation.ratio import exponential, linear


@pytest.fixture
def maps():
    """Non-negative phi [4, 6] and mu [3, 6], float64."""
    rng = np.random.default_rng(0)
    return rng.uniform(0.1, 2, (4, 6)), rng.uniform(0.1, 2, (3, 6))


def call(ratio, phi, mu, temperature):
    return ratio(jnp.asarray(phi, jnp.float32), jnp.asarray(mu, jnp.float32), temperature)


@pytest.mark.parametrize("temperature", [0.2, 3.0])
def test_every_pair_has_its_log_ratio(maps, temperature):
    phi, mu = maps
    of_linear = call(linear, phi, mu, jnp.float32(temperature))
    of_exponential = call(exponential, phi, mu, jnp.float32(temperature))
    assert of_linear.shape == of_exponential.shape == (4, 3)
    for i in range(4):
        for j in range(3):
            inner = sum(phi[i, k] * mu[j, k] for k in range(6))
            np.testing.assert_allclose(of_linear[i, j], np.log(inner), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(of_exponential[i, j], inner / temperature, rtol=1e-5)


def test_linear_of_orthogonal_features_is_finite():
    value = call(linear, [[1.0, 0.0]], [[0.0, 1.0]], jnp.float32(1.0))
    assert np.isfinite(value).all()
    assert value[0, 0] < -20  # and still next to nothing
