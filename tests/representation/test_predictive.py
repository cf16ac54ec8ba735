"""InfoNCE of an embedding, against float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp

from phimu.errors import InputError
from phimu.representation.predictive import PredictiveCoding
from phimu.types import Spec

B = 6


class PlainDescent(PredictiveCoding):
    def optimiser(self):
        return optax.sgd(1.0)


SETTINGS = PlainDescent(embedding_dim=3, embedding_sizes=(4,), window=4)


def embed(network, x):
    (w1, b1), (w2, b2) = (
        [np.asarray(a, np.float64) for a in (layer.weight, layer.bias)] for layer in network.layers
    )
    hidden = x @ w1 + b1
    return hidden / (1 + np.exp(-hidden)) @ w2 + b2


def test_step_on_the_forms_and_the_loss():
    """The form of the offset steps down the gradient; the others stay; who is not asked is not."""
    rng = np.random.default_rng(0)
    observation, later = rng.normal(size=(2, B, 2)).astype(np.float32)
    valid = np.array([1, 1, 0, 1, 1, 0], bool)
    state = SETTINGS.init(Spec(2, 1), jax.random.PRNGKey(0))
    np.testing.assert_array_equal(state.embedding.forms, np.tile(np.eye(3), (3, 1, 1)))
    after, metrics = SETTINGS.update(state, observation, later, jnp.int32(2), valid)

    z, z_later = (embed(state.embedding.network, x) for x in (observation, later))
    logits = z @ z_later.T  # the form is the identity
    losses, gradient = [], np.zeros((3, 3))
    for i in np.flatnonzero(valid):
        losses.append(logsumexp(logits[i]) - logits[i, i])
        share = np.exp(logits[i] - logsumexp(logits[i]))
        gradient += np.outer(z[i], share @ z_later - z_later[i]) / valid.sum()
    np.testing.assert_allclose(metrics["nce_loss"], np.mean(losses), rtol=1e-4)
    right = [logits[i].argmax() == i for i in np.flatnonzero(valid)]
    np.testing.assert_allclose(metrics["nce_accuracy"], np.mean(right), rtol=1e-6)
    moved = np.asarray(state.embedding.forms - after.embedding.forms)
    np.testing.assert_allclose(moved[1], gradient, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(moved[[0, 2]], 0)


def test_a_batch_without_anyone_to_ask_teaches_nothing():
    rows = np.ones((B, 2), np.float32)
    state = SETTINGS.init(Spec(2, 1), jax.random.PRNGKey(0))
    after, metrics = SETTINGS.update(state, rows, rows, jnp.int32(3), np.zeros(B, bool))
    assert float(metrics["nce_loss"]) == 0
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_window_without_a_later_observation_is_refused():
    with pytest.raises(InputError, match="window"):
        PredictiveCoding(window=1)
