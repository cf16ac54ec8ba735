"""Score matching: a step against float64 NumPy, and the score of a linear-Gaussian system."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phimu.errors import InputError
from phimu.representation.perturbation import kept_signal
from phimu.representation.score import ScoreMatching
from phimu.representation.seam import density, needs_next_action
from phimu.types import Batch, Feed, Spec

KEY = jax.random.PRNGKey(0)


class PlainDescent(ScoreMatching):
    def optimiser(self):
        return optax.sgd(1.0)


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def two_layers(arrays, x):
    w1, b1, w2, b2 = arrays
    return elu(x @ w1 + b1) @ w2 + b2


def arrays_of(tree):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


def test_a_step_is_down_the_gradient(slopes):
    """Of the squared error of the noise, of the reward's error and of what pulls at phi."""
    learner = PlainDescent(
        noise_levels=5,
        feature_dim=3,
        feature_sizes=(4,),
        feature_layer_norm=False,
        phi_output="elu",
        reward_sizes=(4,),
        reward_weight=0.3,
        feature_rate=0.25,
    )
    rng = np.random.default_rng(0)
    observation, following = rng.normal(size=(2, 6, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (6, 1)).astype(np.float32)
    reward, none = rng.normal(size=6).astype(np.float32), np.zeros(6, np.float32)
    pull = rng.normal(size=(4, 3)).astype(np.float32)
    feed = Feed(Batch(observation, action, reward, following, none, none))
    state = learner.init(Spec(2, 1), KEY)
    after, metrics = jax.jit(partial(learner.update, key=KEY))(state, feed, pull=pull)

    for_level, for_noise = jax.random.split(KEY)
    u = (np.asarray(jax.random.randint(for_level, (6,), 0, 5)) + 1.0) / 5
    assert len(set(u)) > 2
    kept = np.exp(-0.1 * u - 4.95 * u**2)
    noise = np.asarray(jax.random.normal(for_noise, (6, 2)), np.float64)
    wide = (following - observation.mean(0)) / np.sqrt(observation.var(0) + 1e-6)
    x = np.sqrt(kept)[:, None] * wide + np.sqrt(1 - kept)[:, None] * noise
    angles = 0.5 * np.log((1 - kept) / kept)[:, None] * np.array([0.5, 1.0, 2.0, 4.0])
    told = np.concatenate([x, np.sin(angles), np.cos(angles)], 1)
    pair = np.concatenate([observation, action], 1).astype(np.float64)

    def parts(arrays):
        phi = elu(two_layers(arrays[:4], pair))
        kernel = two_layers(arrays[4:8], told).reshape(6, 3, 2)
        expected = np.array([k.T @ f for k, f in zip(kernel, phi, strict=True)])
        reward_loss = np.mean((two_layers(arrays[8:], phi)[:, 0] - reward) ** 2)
        return np.mean((expected - noise) ** 2), reward_loss, np.sum(pull * phi[:4])

    def total(arrays):
        score, rewarded, pulled = parts(arrays)
        return 2 * score + 0.3 * rewarded + pulled

    arrays, moved = arrays_of(state.networks), arrays_of(after.networks)
    np.testing.assert_allclose(
        [metrics["score_loss"], metrics["reward_loss"]], parts(arrays)[:2], rtol=1e-4
    )
    for gradient, before, now in zip(slopes(total, arrays), arrays, moved, strict=True):
        np.testing.assert_allclose(before - now, gradient, rtol=2e-3, atol=2e-5)
    for was, now, fast in zip(arrays[:4], arrays_of(after.slow), moved[:4], strict=True):
        np.testing.assert_allclose(now, was + 0.25 * (fast - was), rtol=1e-4, atol=1e-6)


def test_the_score_of_a_linear_gaussian_system():
    """s' = (s + a) / 2 + noise of 0.3: x is Gaussian too, and its score known at every level.

    A score that knows nothing of s and a is off by 0.5 and more where there is little noise.
    """
    learner = ScoreMatching(
        noise_levels=5,
        feature_dim=8,
        feature_sizes=(32,),
        feature_layer_norm=False,
        reward_sizes=(),
        reward_weight=0.0,
        phi_output="identity",
        feature_learning_rate=3e-3,
    )

    def drawn(key):
        for_s, for_a, for_noise = jax.random.split(jax.random.fold_in(key, 1), 3)
        s, a = (jax.random.uniform(k, (256, 1), minval=-1.0) for k in (for_s, for_a))
        following = (s + a) / 2 + 0.3 * jax.random.normal(for_noise, (256, 1))
        none = jnp.zeros(256)
        return Feed(Batch(s, a, none, following, none, none))

    @jax.jit
    def learned(state):
        step = lambda state, key: learner.update(state, drawn(key), key)  # noqa: E731
        return jax.lax.scan(step, state, jax.random.split(KEY, 1_500))[0]

    state = learned(learner.init(Spec(1, 1), KEY))
    batch = drawn(jax.random.PRNGKey(7)).batch
    deviation = 1 / np.sqrt(3)  # of observations, which are uniform
    mean = np.asarray(batch.observation + batch.action, np.float64) / 2 / deviation
    for level, kept in enumerate(kept_signal(5)):
        variance = kept * (0.3 / deviation) ** 2 + 1 - kept
        noise = np.random.default_rng(level).normal(size=mean.shape)
        x = np.sqrt(kept) * mean + np.sqrt(variance) * noise
        true = -(x - np.sqrt(kept) * mean) / variance
        found = learner.score(
            state,
            batch.observation,
            batch.action,
            jnp.asarray(x, jnp.float32),
            jnp.full(256, level),
        )
        error = np.sqrt(np.mean((found - true) ** 2) / np.mean(true**2))
        assert error < 0.2, f"level {level}: {error:.3f}"


def test_what_it_says_of_itself():
    assert not needs_next_action(ScoreMatching())
    assert ScoreMatching().bonus_prediction_weight == 0
    with pytest.raises(InputError, match="ScoreMatching has no density"):
        density(ScoreMatching())
    with pytest.raises(InputError, match="noise_levels is 0"):
        ScoreMatching(noise_levels=0)
