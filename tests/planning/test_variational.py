"""The autoencoder of the behaviour: its loss in float64 NumPy, its samples, and what it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phimu.errors import InputError
from phimu.planning.variational import Autoencoder, GenerativeCloning
from phimu.types import Spec

SPEC, KEY = Spec(3, 2), jax.random.PRNGKey(1)
RNG = np.random.default_rng(0)
OBSERVATION = RNG.normal(size=(6, 3)).astype(np.float32)
ACTION = RNG.uniform(-1, 1, (6, 2)).astype(np.float32)


class PlainDescent(GenerativeCloning):
    def optimiser(self):
        return optax.sgd(1.0)


def float64(tree):
    return [np.asarray(x, np.float64) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def network(arrays, x):
    w1, b1, w2, b2 = arrays
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def test_update_is_the_gradient_of_squared_error_and_divergence(slopes):
    """The KL divergence from N(0, I) is a mean over dimensions, and so is the error."""
    settings = PlainDescent((5,), latent_weight=0.3)
    state = settings.init(SPEC, jax.random.PRNGKey(0))
    state = state._replace(model=jax.tree.map(lambda x: x + 0.1, state.model))
    after, metrics = jax.jit(settings.update)(state, OBSERVATION, ACTION, KEY)
    noise = np.asarray(jax.random.normal(KEY, (6, 4)), np.float64)

    def parts(arrays):
        mean, log_std = np.split(network(arrays[:4], np.hstack([OBSERVATION, ACTION])), 2, axis=1)
        std = np.exp(log_std)
        made = np.tanh(network(arrays[4:], np.hstack([OBSERVATION, mean + std * noise])))
        divergence = np.log(1 / std) + (std**2 + mean**2) / 2 - 0.5
        return ((made - ACTION) ** 2).mean(), divergence.mean()

    old = float64(state.model)
    np.testing.assert_allclose(metrics["reconstruction_error"], parts(old)[0], rtol=1e-4)
    np.testing.assert_allclose(metrics["latent_divergence"], parts(old)[1], rtol=1e-4)
    down = slopes(lambda arrays: np.dot(parts(arrays), (1, 0.3)), old)
    for was, new, slope in zip(old, float64(after.model), down, strict=True):
        np.testing.assert_allclose(was - new, slope, rtol=1e-3, atol=1e-4)


def test_latents_are_clipped_where_actions_are_sampled():
    """A decoder that hands z on shows it: half of it lies beyond 0.5 and ends there."""
    model = Autoencoder(SPEC, (), jax.random.PRNGKey(0))  # one linear layer each
    weight = np.zeros((3 + 4, 2), np.float32)
    weight[3, 0] = weight[4, 1] = 1.0
    model = eqx.tree_at(lambda m: m.decoder.layers[0].weight, model, jnp.asarray(weight))
    shown = np.asarray(GenerativeCloning().sample(model, OBSERVATION, 50, KEY))
    assert shown.shape == (6, 50, 2)
    assert np.abs(shown).max() == 0.5
    assert 0.5 < (np.abs(shown) == 0.5).mean() < 0.75
    assert len(np.unique(shown[np.abs(shown) < 0.5])) > 100  # each its own draw


def test_deviations_of_latents_are_bounded():
    model = Autoencoder(SPEC, (), jax.random.PRNGKey(0))
    for bias, bound in ((-50.0, -4.0), (50.0, 15.0)):
        pushed = eqx.tree_at(lambda m: m.encoder.layers[0].bias, model, jnp.full(8, bias))
        np.testing.assert_array_equal(pushed.encode(OBSERVATION, ACTION)[1], bound)


def test_learns_a_linear_behaviour():
    """a = K s: its samples, whatever z, are the logged action."""
    settings = GenerativeCloning((32,), behaviour_learning_rate=1e-2)
    observation = np.random.default_rng(2).uniform(-1, 1, (64, 3)).astype(np.float32)
    action = observation @ np.array([[0.5, 0], [0, -0.4], [0.2, 0.3]], np.float32)

    def step(state, key):
        return settings.update(state, observation, action, key)

    keys = jax.random.split(KEY, 400)
    state = settings.init(SPEC, jax.random.PRNGKey(0))
    state, metrics = jax.jit(lambda state: jax.lax.scan(step, state, keys))(state)
    assert metrics["reconstruction_error"][-1] < 2e-3
    sampled = np.tanh(settings.sample(state.model, observation, 5, KEY))
    np.testing.assert_allclose(sampled, np.repeat(action[:, None], 5, axis=1), atol=0.2)
    assert np.sqrt(((sampled - action[:, None]) ** 2).mean()) < 0.06


def test_bad_settings_are_refused_by_name():
    for name in ("latent_weight", "latent_clip"):
        with pytest.raises(InputError, match=f"{name} is -1"):
            GenerativeCloning(**{name: -1.0})
