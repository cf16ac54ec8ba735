"""Dynamics with Gaussian noise: a step against float64 NumPy, known losses and densities."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp

from phimu.errors import InputError
from phimu.representation.gaussian import GaussianDynamics, energy
from phimu.representation.negatives import Negatives
from phimu.representation.seam import compared, density, needs_next_action
from phimu.types import Batch, Feed, Spec

KEY = jax.random.PRNGKey(0)
SIZES = {"feature_dim": 3, "feature_sizes": (4,), "reward_sizes": (4,), "feature_layer_norm": False}


class PlainDescent(GaussianDynamics):
    def optimiser(self):
        return optax.sgd(1.0)


class StandsStill(GaussianDynamics):
    def optimiser(self):
        return optax.sgd(0.0)


def transitions(size=6):
    rng = np.random.default_rng(0)
    observation, following = rng.normal(size=(2, size, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (size, 1)).astype(np.float32)
    reward, none = rng.normal(size=size).astype(np.float32), np.zeros(size, np.float32)
    batch = Batch(observation, action, reward, following, none, none)
    others = {"negatives": rng.normal(size=(2, 2)).astype(np.float32)}
    return Feed(batch, others), rng.normal(size=(4, 3)).astype(np.float32)


def started(learner, spec=Spec(2, 1)):  # noqa: B008 (it has no state)
    """Its first state; compiled, which takes less time than an array at a time."""
    return jax.jit(partial(learner.init, spec))(KEY)


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def two_layers(arrays, x):
    w1, b1, w2, b2 = arrays
    return elu(x @ w1 + b1) @ w2 + b2


def arrays_of(tree):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize(("output", "unit"), [("identity", True), ("elu", False)])
def test_a_step_is_down_the_gradient(output, unit, slopes):
    """Of -E_ii + log sum_j exp E_ij, of the reward's error and of what pulls at phi."""
    learner = PlainDescent(
        **SIZES,
        noise=Negatives(2),
        feature_output=output,
        frequency=0.7,
        waves_of_unit_variance=unit,
        reward_weight=0.3,
        feature_rate=0.25,
    )
    feed, pull = transitions()
    batch = feed.batch
    state = started(learner)
    after, metrics = jax.jit(partial(learner.update, key=KEY))(state, feed, pull=pull)

    last = elu if output == "elu" else lambda x: x
    arrays = arrays_of(state.networks)
    frequencies, phases = arrays_of(state.waves)
    pair = np.concatenate([batch.observation, batch.action], 1).astype(np.float64)
    following = np.concatenate([batch.next_observation, feed.others["negatives"]])

    def parts(arrays):
        f, g = last(two_layers(arrays[:4], pair)), two_layers(arrays[4:8], following)
        energies = np.array([[-0.5 * np.mean((x - y) ** 2) for y in g] for x in f])
        contrast = np.mean(logsumexp(energies, axis=1) - np.diagonal(energies))
        reward = np.mean((two_layers(arrays[8:], f)[:, 0] - batch.reward) ** 2)
        f = f[: len(pull)]
        if unit:
            f = (f - f.mean(1, keepdims=True)) / np.sqrt(f.var(1, keepdims=True) + 1e-5)
        phi = np.sqrt(2) * np.cos(f @ frequencies + phases)
        return contrast, reward, np.sum(pull * phi)

    def loss(arrays):
        contrast, reward, pulled = parts(arrays)
        return contrast + 0.3 * reward + pulled

    np.testing.assert_allclose(
        [metrics["nce_loss"], metrics["reward_loss"]], parts(arrays)[:2], rtol=1e-5
    )
    moved = arrays_of(after.networks)
    for gradient, before, now in zip(slopes(loss, arrays), arrays, moved, strict=True):
        np.testing.assert_allclose(before - now, gradient, rtol=2e-3, atol=2e-5)
    for was, now, fast in zip(arrays[:8], arrays_of(after.slow), moved[:8], strict=True):
        np.testing.assert_allclose(now, was + 0.25 * (fast - was), rtol=1e-4, atol=1e-6)
    for was, now in zip(arrays_of(state.waves), arrays_of(after.waves), strict=True):
        np.testing.assert_array_equal(was, now)
    assert after.updates == 1


def test_known_losses():
    """f = g = a constant cannot tell anything apart: log B; far from all others: 0."""
    learner = GaussianDynamics(**SIZES)
    feed, _ = transitions()
    state = started(learner)
    blind = jax.tree.map(jnp.zeros_like, state.networks)
    _, metrics = jax.jit(learner.objective)(blind, state.waves, Feed(feed.batch))
    np.testing.assert_allclose(metrics["nce_loss"], np.log(6), rtol=1e-6)
    far = 100.0 * jnp.eye(6, 3) + 100.0 * jnp.arange(6.0)[:, None] * jnp.ones((1, 3))
    energies = np.asarray(energy(far, far))
    np.testing.assert_allclose(np.diagonal(energies), 0, atol=1e-2)
    assert logsumexp(energies, axis=1).max() < 1e-2


def test_phi_and_mu_are_random_features_of_the_density():
    """<phi, mu> is a mean over d cosines of exp(log ratio), so off by about 1 / sqrt(d)."""
    learner = GaussianDynamics(
        feature_dim=1024, feature_sizes=(), reward_sizes=(), waves_of_unit_variance=False
    )
    feed, _ = transitions()
    state = started(learner)
    pair = feed.batch.observation, feed.batch.action
    f, g = compared(learner, state)(*pair), state.slow[1](feed.batch.next_observation)
    exact = np.exp(-0.5 * np.mean((np.asarray(f)[:, None] - np.asarray(g)[None]) ** 2, axis=2))
    ratios = density(learner).log_ratio(state, f, feed.batch.next_observation)
    np.testing.assert_allclose(np.exp(ratios), exact, rtol=1e-4)
    assert np.ptp(exact) > 0.5
    phi = np.asarray(learner.phi(state)(*pair))
    products = phi @ np.asarray(learner.mu(state, feed.batch.next_observation)).T
    np.testing.assert_allclose(products, exact, atol=4 / np.sqrt(1024))
    np.testing.assert_allclose(np.mean(phi**2), 1, atol=0.1)


@pytest.mark.parametrize(("frequency", "spread"), [(None, 1 / 8), (0.05, 0.05)])
def test_frequencies(frequency, spread):
    waves = started(GaussianDynamics(**SIZES | {"feature_dim": 64}, frequency=frequency)).waves
    np.testing.assert_allclose(np.std(waves.frequencies), spread, rtol=0.05)
    assert 0 <= np.min(waves.phases) < 0.5
    assert 2 * np.pi - 0.5 < np.max(waves.phases) <= 2 * np.pi


def test_noise_on_the_weights_shrinks_slowly():
    """After update t by 1e-2 (t + 1)^(-1/4), cut at two deviations; f and g alone."""
    learner = StandsStill(**SIZES | {"feature_dim": 64}, weight_noise=1e-2)
    feed, _ = transitions()
    state = started(learner)._replace(updates=jnp.int32(15))
    after, _ = jax.jit(learner.update)(state, Feed(feed.batch), jax.random.PRNGKey(1))
    before, now = arrays_of(state.networks), arrays_of(after.networks)
    moved = [b - a for a, b in zip(before, now, strict=True)]
    of_both = np.concatenate([x.ravel() for x in moved[:8]])
    assert np.abs(of_both).max() <= 2 * 0.5e-2 + 1e-6  # 16^(-1/4) = 1 / 2
    np.testing.assert_allclose(of_both.std(), 0.8796 * 0.5e-2, rtol=0.05)
    assert abs(of_both.mean()) < 3 * 0.5e-2 / np.sqrt(of_both.size)
    assert all((x == 0).all() for x in moved[8:])


def test_it_finds_a_known_transition():
    """s' = (s + a) / 2 + noise of 0.2: the learned P(s'|s,a) on a grid, against the true one."""
    learner = GaussianDynamics(
        feature_dim=16,
        feature_sizes=(32,),
        reward_sizes=(4,),
        feature_learning_rate=5e-3,
        feature_rate=0.05,
    )

    def drawn(key):
        for_s, for_a, for_noise = jax.random.split(key, 3)
        s, a = (jax.random.uniform(k, (128, 1), minval=-1.0) for k in (for_s, for_a))
        following = (s + a) / 2 + 0.2 * jax.random.normal(for_noise, (128, 1))
        none = jnp.zeros(128)
        return Batch(s, a, a[:, 0], following, none, none)

    @jax.jit
    def learned(state):
        step = lambda state, key: learner.update(state, Feed(drawn(key)), key)  # noqa: E731
        return jax.lax.scan(step, state, jax.random.split(KEY, 800))[0]

    state = learned(started(learner, Spec(1, 1)))
    base = np.asarray(drawn(jax.random.PRNGKey(9)).next_observation)
    for number in range(10, 30):
        more = drawn(jax.random.PRNGKey(number)).next_observation
        base = np.concatenate([base, np.asarray(more)])
    s, a = np.array([[-0.8], [0.0], [0.5]]), np.array([[-0.4], [0.6], [0.5]])
    logs = np.asarray(learner.log_ratio(state, compared(learner, state)(s, a), base), np.float64)
    weights = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    means = weights @ base
    np.testing.assert_allclose(means, (s + a) / 2, atol=0.06)
    deviations = np.sqrt(
        [w @ (base[:, 0] - m) ** 2 for w, m in zip(weights, means[:, 0], strict=True)]
    )
    np.testing.assert_allclose(deviations, 0.2, atol=0.05)


def test_what_it_says_of_itself():
    assert not needs_next_action(GaussianDynamics())
    assert GaussianDynamics().bonus_prediction_weight == 0
    with pytest.raises(InputError, match="has no temperature"):
        GaussianDynamics().temperature(None)
    with pytest.raises(InputError, match="frequency is -1"):
        GaussianDynamics(frequency=-1.0)
    with pytest.raises(InputError, match="weight_noise is -1"):
        GaussianDynamics(weight_noise=-1.0)
