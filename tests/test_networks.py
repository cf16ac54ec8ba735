"""Products with their own backward pass against float64, in both precisions; the activation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents import preset
from phimu.data.rows import width
from phimu.networks import ACTIVATIONS, MLP, cosine, norm, product, sine, unit_columns
from phimu.policies import Deterministic, Gaussian
from phimu.representation.ratio import inner
from phimu.settings import override
from phimu.training.learner import Learner
from phimu.types import Drawn, Spec

# Rounding of an operand, as a share of it.
TOLERANCE = {"float32": 1e-6, "bfloat16": 2.0**-8}


def close(found, expected, size, precision):
    """Within the rounding of operands, measured by `size`: the sum of the terms' magnitudes."""
    assert found.dtype == jnp.float32
    assert (
        np.abs(np.asarray(found, np.float64) - expected) <= 3 * TOLERANCE[precision] * size
    ).all()


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_product_and_its_gradients(leading, outputs, precision):
    rng = np.random.default_rng(0)
    shapes = (*leading, 7), (7, outputs), (*leading, outputs)
    x, weight, pull = (rng.normal(size=shape) for shape in shapes)

    def pulled(x, weight):
        return jax.vjp(product, x, weight)[1](jnp.asarray(pull, jnp.float32))

    arguments = jnp.asarray(x, jnp.float32), jnp.asarray(weight, jnp.float32)
    with jax.default_matmul_precision(precision):
        out, (for_x, for_weight) = product(*arguments), jax.jit(pulled)(*arguments)
    close(out, x @ weight, np.abs(x) @ np.abs(weight), precision)
    close(for_x, pull @ weight.T, np.abs(pull) @ np.abs(weight.T), precision)
    rows, by_row = x.reshape(-1, 7), pull.reshape(-1, outputs)
    close(for_weight, rows.T @ by_row, np.abs(rows.T) @ np.abs(by_row), precision)


@pytest.mark.parametrize(
    ("found", "true", "slope"), [(sine, np.sin, np.cos), (cosine, np.cos, lambda x: -np.sin(x))]
)
def test_waves_and_their_gradients(found, true, slope):
    """As exact as the angle, whose own last bit is 6e-8 of it."""
    x = np.concatenate([np.linspace(-10, 10, 2001), np.linspace(-2000, 2000, 2001)]).astype(
        np.float32
    )
    for function, expected in ((found, true), (jax.vmap(jax.grad(found)), slope)):
        error = np.abs(
            np.asarray(jax.jit(function)(x), np.float64) - expected(x.astype(np.float64))
        )
        assert (error <= 3e-7 + 6e-8 * np.abs(x)).all()


@pytest.mark.parametrize("precision", TOLERANCE)
def test_inner_and_its_gradients(precision):
    rng = np.random.default_rng(0)
    phi, mu, pull = (rng.normal(size=shape) for shape in ((3, 7), (5, 7), (3, 5)))
    arguments = jnp.asarray(phi, jnp.float32), jnp.asarray(mu, jnp.float32)
    with jax.default_matmul_precision(precision):
        out, back = jax.vjp(inner, *arguments)
        for_phi, for_mu = back(jnp.asarray(pull, jnp.float32))
    close(out, phi @ mu.T, np.abs(phi) @ np.abs(mu.T), precision)
    close(for_phi, pull @ mu, np.abs(pull) @ np.abs(mu), precision)
    close(for_mu, pull.T @ phi, np.abs(pull.T) @ np.abs(phi), precision)


def test_norm_is_that_of_all_arrays_together():
    tree = {"a": jnp.full((2, 3), 2.0), "b": (jnp.asarray([3.0, 4.0]), jnp.asarray(-5.0))}
    assert float(norm(tree)) == pytest.approx(np.sqrt(24 + 25 + 25))


def test_elu():
    x = np.concatenate([np.linspace(-90, 5, 400), [0.0, -1e-6, 1e-6]]).astype(np.float32)
    exact = np.where(x > 0, x, np.expm1(np.minimum(x.astype(np.float64), 0)))
    np.testing.assert_allclose(ACTIVATIONS["elu"](x), exact, atol=1e-7, rtol=1e-7)
    slope = jax.vmap(jax.grad(ACTIVATIONS["elu"]))(x)
    below = np.exp(np.minimum(x.astype(np.float64), 0))
    np.testing.assert_allclose(slope[x != 0], np.where(x > 0, 1, below)[x != 0], atol=1e-6)


@pytest.mark.parametrize("name", ["ctrl-ucb-m", "sac"])
def test_an_update_in_bfloat16_is_near_and_keeps_float32(name):
    rng = np.random.default_rng(0)
    spec = Spec(observation_dim=3, action_dim=2)
    rows = rng.normal(size=(16, width(spec))).astype(np.float32)
    rows[:, -2:] = 0  # no ends
    others, changes = {}, {"actor_sizes": (32,), "critic_width": 32}
    if name != "sac":
        changes |= {"feature_dim": 16, "feature_sizes": (32,)}
        others = {"negatives": rng.normal(size=(8, 3)).astype(np.float32)}
    found = {}
    for precision in TOLERANCE:
        settings, schedule = override(preset(name, "small"), changes | {"precision": precision})
        learner = Learner(settings, spec, schedule, seed=0)
        learner.learn("policy", 0, [Drawn(rows, others)], room=1)
        learner.check(1)
        assert {x.dtype for x in jax.tree.leaves(learner.state)} <= {
            jnp.dtype("float32"),
            jnp.dtype("int32"),
        }
        found[precision] = {k: float(v) for k, v in learner.metrics.items()}
    assert found["bfloat16"]["td_loss"] == pytest.approx(found["float32"]["td_loss"], rel=0.03)
    assert found["bfloat16"]["td_loss"] != found["float32"]["td_loss"]


def test_a_sample_of_a_deterministic_policy_is_its_mode():
    """Whatever the key; its density is infinite there, for one observation and for a batch."""
    policy = Deterministic(3, 2, (8,), jax.random.PRNGKey(0))
    observation = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for rows, shape in ((observation, (5,)), (observation[0], ())):
        mode = policy.mode(rows)
        assert mode.shape == (*shape, 2)
        assert (np.abs(mode) < 1).all()
        for seed in range(2):
            action, log_density = policy.sample(rows, jax.random.PRNGKey(seed))
            np.testing.assert_array_equal(action, mode)
            np.testing.assert_array_equal(log_density, np.full(shape, np.inf))
    assert len(np.unique(policy.mode(observation), axis=0)) == 5  # it does look at them


def test_columns_of_unit_length():
    network = unit_columns(MLP((5, 7, 3), jax.random.PRNGKey(0)), last=0.01)
    for layer, length in zip(network.layers, (1.0, 0.01), strict=True):
        np.testing.assert_allclose(jnp.linalg.norm(layer.weight, axis=0), length, rtol=1e-5)
        np.testing.assert_array_equal(layer.bias, 0.0)


def test_a_gaussian_policy():
    """Its samples have the density that it says, and are not clipped; its mode is."""
    policy = Gaussian(3, 2, (8,), jax.random.PRNGKey(0), initial_log_std=-0.3)
    observation = jnp.asarray(np.random.default_rng(0).normal(size=(4_000, 3)), jnp.float32)
    mean, log_std = policy(observation)
    np.testing.assert_array_equal(log_std, np.float32(-0.3))
    assert np.abs(mean).max() < 0.05  # nearly the same everywhere at first
    action, log_density = policy.sample(observation, jax.random.PRNGKey(1))
    np.testing.assert_allclose(np.std(action - mean, axis=0), np.exp(-0.3), rtol=0.05)
    assert np.abs(action).max() > 1
    noise = np.asarray(action - mean, np.float64) / np.exp(-0.3)
    expected = np.sum(-0.5 * noise**2 + 0.3 - 0.5 * np.log(2 * np.pi), axis=1)
    np.testing.assert_allclose(log_density, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy.log_density(observation, action), log_density, atol=1e-5)
    np.testing.assert_allclose(policy.entropy, -np.mean(expected), rtol=0.02)
    far = jax.tree.map(lambda x: 1e3 * x, policy)
    assert np.abs(far.mode(observation)).max() == 1.0
