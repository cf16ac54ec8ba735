"""Every critic against its formula in float64, from its own weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.planning.critics import (
    CRITICS,
    FREQUENCY,
    RandomFeatures,
    beside,
    smaller,
    twin,
    values,
)

D, WIDTH, B = 5, 7, 6


def dense(layer, x):
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def activate(x, activation, norm):
    if norm:
        mean = x.mean(axis=1, keepdims=True)
        x = (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + 1e-5)
    if activation == "relu":
        return np.maximum(x, 0)
    return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)


def linear(critic, phi, activation, norm):
    return dense(critic.out, phi)[:, 0]


def random_features(critic, phi, activation, norm):
    """w' (cos V phi, sin V phi) + b."""
    angle = phi @ np.asarray(critic.frequencies, np.float64)
    return dense(critic.out, np.concatenate([np.cos(angle), np.sin(angle)], axis=1))[:, 0]


def linear_plus_hidden(critic, phi, activation, norm):
    """w1' phi + w2' sigma(w3' phi), equation (q_param)."""
    hidden = activate(dense(critic.hidden, phi), activation, norm)
    return dense(critic.direct, phi)[:, 0] + dense(critic.out, hidden)[:, 0]


def layers(critic, phi, activation, norm):
    first, *rest = critic.network.layers
    x = dense(first, phi)
    for layer in rest:
        x = dense(layer, activate(x, activation, norm))
    return x[:, 0]


ORACLES = {
    "linear": (linear, None),
    "random_features": (random_features, None),
    "linear_plus_hidden": (linear_plus_hidden, None),
    "two_layer": (layers, 2),
    "three_layer": (layers, 3),
    "four_layer": (layers, 4),
}


def made(name, activation="elu", norm=False):
    """A twin critic with biases that are not zero."""
    critic = twin(name, D, WIDTH, jax.random.PRNGKey(0), activation, norm)
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: x + jnp.asarray(rng.normal(size=x.shape), x.dtype) if eqx.is_array(x) else x,
        critic,
    )


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("activation", ["elu", "relu"])
@pytest.mark.parametrize("name", CRITICS)
def test_both_values_are_the_formula(name, activation, norm):
    critic = made(name, activation, norm)
    phi = np.random.default_rng(0).normal(size=(B, D)) * 2
    both = values(critic, jnp.asarray(phi, jnp.float32))
    assert both.shape == (2, B)
    oracle, depth = ORACLES[name]
    for which in range(2):
        if depth:
            assert len(critic[which].network.layers) == depth
        expected = oracle(critic[which], phi, activation, norm)
        np.testing.assert_allclose(both[which], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CRITICS)
def test_twins_start_apart(name):
    critic = twin(name, D, WIDTH, jax.random.PRNGKey(0), "elu", False)
    both = np.asarray(values(critic, jnp.ones((3, D))))
    assert (np.abs(both[0] - both[1]) > 1e-3).all()


def test_the_smaller_value_is_that_of_each_row():
    critic, phi = made("two_layer"), np.random.default_rng(0).normal(size=(B, D))
    both = np.asarray(values(critic, jnp.asarray(phi, jnp.float32)))
    np.testing.assert_array_equal(smaller(critic, jnp.asarray(phi, jnp.float32)), both.min(axis=0))
    assert 0 < (both[0] < both[1]).sum() < B  # now the one, now the other


def test_random_features_are_a_gaussian_kernel_and_are_not_trained():
    """<f(x), f(y)> / count = exp(-FREQUENCY^2 |x - y|^2 / (2 d)), up to sampling."""
    critic = RandomFeatures(D, 40_000, jax.random.PRNGKey(0), "elu", False)
    x, y = np.random.default_rng(0).normal(size=(2, 4, D))
    angles = [points @ np.asarray(critic.frequencies, np.float64) for points in (x, y)]
    found = np.mean(np.cos(angles[0] - angles[1]), axis=1)
    kernel = np.exp(-(FREQUENCY**2) * ((x - y) ** 2).sum(axis=1) / (2 * D))
    np.testing.assert_allclose(found, kernel, atol=0.03)
    grads = jax.grad(lambda head: jnp.sum(head(jnp.asarray(x, jnp.float32))))(critic)
    assert not np.asarray(grads.frequencies).any()
    assert np.asarray(grads.out.weight).any()


# What a critic reads beside phi

PHI = np.arange(16, dtype=np.float32).reshape(2, 8)
PAIR = np.array([[0.5]], np.float32).repeat(2, 0), np.array([[-1.0], [0.25]], np.float32)


def test_nothing_beside_phi_is_phi():
    np.testing.assert_array_equal(beside(PHI, "nothing", *PAIR), PHI)


@pytest.mark.parametrize(("how", "times"), [("pair", 1), ("scaled_pair", 2)])  # sqrt(8 / 2)
def test_the_pair_beside_phi_as_it_is_and_as_loud_as_phi(how, times):
    """Exact: all these numbers are multiples of powers of two."""
    found = beside(PHI, how, *PAIR)
    np.testing.assert_array_equal(found[:, :8], PHI)
    np.testing.assert_array_equal(found[:, 8:], times * np.array([[0.5, -1.0], [0.5, 0.25]]))


def test_at_unit_variance_the_scaled_pair_weighs_as_much_as_phi():
    """Sums of squares of both halves, whatever their sizes."""
    rng = np.random.default_rng(0)
    phi, observation, action = (rng.choice([-1.0, 1.0], (4, n)) for n in (45, 3, 2))
    found = np.asarray(beside(phi, "scaled_pair", observation, action))
    assert found.shape == (4, 50)
    np.testing.assert_allclose((found[:, :45] ** 2).sum(axis=1), 45.0)
    np.testing.assert_allclose((found[:, 45:] ** 2).sum(axis=1), 45.0, rtol=1e-6)


@pytest.mark.parametrize("how", ["nothing", "pair", "scaled_pair"])
def test_one_row_is_read_as_a_batch_is(how):
    one = beside(PHI[0], how, PAIR[0][0], PAIR[1][0])
    np.testing.assert_array_equal(one, beside(PHI, how, *PAIR)[0])
