"""Ensembles of the dynamics against NumPy, and on systems whose answer is known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phimu.dynamics.ensemble import bounded, stacked_product
from phimu.dynamics.fitting import Dynamics, held_out, statistics
from phimu.errors import InputError
from phimu.types import Spec

SPEC = Spec(2, 1)
SMALL = Dynamics(model_sizes=(8, 6), weight_decay=(0.1, 0.2, 0.3))
KEY = jax.random.PRNGKey(0)


def rows(count, seed=0, networks=None):
    rng = np.random.default_rng(seed)
    shape = (count,) if networks is None else (networks, count)
    inputs, targets = rng.normal(size=(*shape, 3)), rng.normal(size=(*shape, 2))
    return inputs.astype(np.float32), targets.astype(np.float32)


def softplus(x):
    return np.logaddexp(0.0, x)


def by_hand(networks, inputs):
    """Mean and log variance of one network after the other, in float64."""
    means, log_variances = [], []
    low, high = (np.asarray(x, np.float64) for x in (networks.lowest, networks.highest))
    for number in range(inputs.shape[0]):
        x = np.asarray(inputs[number], np.float64)
        last = len(networks.weights) - 1
        for layer, (weight, bias) in enumerate(zip(networks.weights, networks.biases, strict=True)):
            x = x @ np.asarray(weight[number], np.float64) + np.asarray(bias[number], np.float64)
            x = x if layer == last else x / (1 + np.exp(-x))
        mean, raw = np.split(x, 2, axis=-1)
        raw = high - softplus(high - raw)
        means.append(mean)
        log_variances.append(low + softplus(raw - low))
    return np.stack(means), np.stack(log_variances)


# The networks


def test_five_networks_are_five_separate_networks():
    networks = SMALL.init(SPEC, False, KEY).ensemble.networks
    inputs, _ = rows(7, networks=5)
    together = networks(inputs)
    for each in range(5):
        alone = replace(
            networks,
            weights=tuple(w[each : each + 1] for w in networks.weights),
            biases=tuple(b[each : each + 1] for b in networks.biases),
        )
        for whole, own in zip(together, alone(inputs[each : each + 1]), strict=True):
            np.testing.assert_allclose(whole[each], own[0], atol=1e-6)
    for whole, expected in zip(together, by_hand(networks, inputs), strict=True):
        np.testing.assert_allclose(whole, expected, atol=1e-5)
    first, second = (np.asarray(networks.weights[0][n]) for n in (0, 1))
    assert np.abs(first - second).max() > 0.1  # each begins elsewhere


def test_the_backward_pass_of_the_stacked_product_is_that_of_matmul():
    x, weight = rows(7, networks=5)[0], rows(3, 1, networks=5)[1]
    for argument in (0, 1):
        own, plain = (
            jax.grad(lambda *each, f=f: jnp.sum(jnp.sin(f(*each))), argument)(x, weight)
            for f in (stacked_product, jnp.matmul)
        )
        np.testing.assert_allclose(own, plain, atol=1e-5)


def test_the_first_weights_are_the_papers():
    """Truncated normal with deviation 1 / (2 sqrt(inputs)) before it is cut; no biases."""
    networks = Dynamics(model_sizes=(400,)).init(Spec(60, 40), False, KEY).ensemble.networks
    first, second = (np.asarray(w) * 2 * np.sqrt(w.shape[1]) for w in networks.weights)
    for scaled in (first, second):
        assert np.abs(scaled).max() <= 2.0
        assert abs(scaled.std() - 0.8796) < 0.01
    assert not any(np.any(bias) for bias in networks.biases)
    assert (networks.lowest == -10.0).all()
    assert (networks.highest == 0.5).all()


def test_log_variances_stay_within_their_bounds():
    raw = np.linspace(-50, 50, 101, dtype=np.float32)[:, None]
    low, high = np.float32([-10.0]), np.float32([0.5])
    found = np.asarray(bounded(raw, low, high))
    assert (np.diff(found[:, 0]) >= 0).all()
    assert found.min() >= -10.0
    assert found.max() <= 0.5 + 1e-4  # as softly as the lower bound allows
    np.testing.assert_allclose(bounded(np.float32([[-5.0]]), low, high), -5.0, atol=0.02)


# The loss


def test_the_loss_is_the_one_that_numpy_finds():
    networks = SMALL.init(SPEC, False, KEY).ensemble.networks
    inputs, targets = rows(6, networks=5)
    weight = np.float32([1, 1, 1, 1, 0, 0])  # the last rows are padding
    total, (likelihood, error) = SMALL.loss(networks, inputs, targets, weight)
    mean, log_variance = by_hand(networks, inputs)
    squared = (mean - targets)[:, :4] ** 2
    terms = squared * np.exp(-log_variance[:, :4]) + log_variance[:, :4]
    decay = sum(
        0.5 * rate * (np.asarray(w, np.float64) ** 2).sum()
        for rate, w in zip((0.1, 0.2, 0.3), networks.weights, strict=True)
    )
    bounds = 0.01 * (2 * 0.5 + 2 * 10.0)
    expected = terms.mean(axis=(1, 2)).sum() + decay + bounds
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(likelihood, terms.mean(), rtol=1e-5)
    np.testing.assert_allclose(error, squared.mean(), rtol=1e-5)


def test_the_penalty_of_the_bounds_draws_them_together():
    """Alone, for all that the data say of them is in the log variances."""
    networks = SMALL.init(SPEC, False, KEY).ensemble.networks
    inputs, targets = rows(6, networks=5)

    def penalty(networks):
        with_it, without = (
            Dynamics(model_sizes=(8, 6), bound_weight=weight).loss(
                networks, inputs, targets, np.ones(6, np.float32)
            )[0]
            for weight in (0.01, 0.0)
        )
        return with_it - without

    slope = jax.grad(penalty)(networks)
    np.testing.assert_allclose(slope.highest, 0.01, atol=1e-4)  # so it goes down
    np.testing.assert_allclose(slope.lowest, -0.01, atol=1e-4)


def test_weight_decay_of_other_depths():
    assert Dynamics().decays(5) == [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4]
    assert Dynamics().decays(2) == [2.5e-5, 1e-4]
    assert Dynamics().decays(7) == [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 7.5e-5, 7.5e-5, 1e-4]
    assert Dynamics(weight_decay=(0.5,)).decays(3) == [0.5, 0.5, 0.5]


def test_the_squared_error_is_the_one_that_numpy_finds():
    """Of networks with ReLU and no variances; the decay is shared by forty transitions."""
    settings = Dynamics(
        model_sizes=(8, 6), model_objective="squared_error", model_activation="relu",
        weight_decay=(1.0, 0.0), decay_by_count=True,
    )  # fmt: skip
    networks = settings.init(SPEC, False, KEY).ensemble.networks
    assert networks.lowest is None
    inputs, targets = rows(6, networks=5)
    weight = np.float32([1, 1, 1, 1, 0, 0])
    total, (objective, error) = settings.loss(networks, inputs, targets, weight, 40.0)
    expected = decay = 0.0
    for number in range(5):
        x = np.asarray(inputs[number], np.float64)
        layers = list(zip(networks.weights, networks.biases, strict=True))
        for w, b in layers:
            x = np.maximum(x, 0.0) if w is not layers[0][0] else x
            x = x @ np.asarray(w[number], np.float64) + np.asarray(b[number], np.float64)
        expected += np.mean((x - targets[number])[:4] ** 2)
        decay += sum(0.5 * (np.asarray(w[number], np.float64) ** 2).sum() for w, _ in layers[:-1])
    np.testing.assert_allclose(total, expected + decay / 40, rtol=1e-5)
    np.testing.assert_allclose(objective, expected / 5, rtol=1e-5)
    assert error == objective


# A fit


def linear_system(count, seed=0):
    """s' = s + A s + B a + N(0, v): (s, a), s' - s, and the mean of that."""
    rng = np.random.default_rng(seed)
    matrix = np.array([[-0.3, 0.2, 0.5], [0.1, -0.2, -0.4]])
    inputs = rng.uniform(-1, 1, (count, 3))
    mean = inputs @ matrix.T
    targets = mean + rng.normal(size=(count, 2)) * np.sqrt(VARIANCE)
    return (x.astype(np.float32) for x in (inputs, targets, mean))


VARIANCE = np.array([0.04, 0.0025])


@pytest.fixture(scope="module")
def fitted():
    settings = Dynamics(model_sizes=(32, 32), model_batch=64, epochs=60, model_learning_rate=3e-3)
    inputs, targets, _ = linear_system(2_000)
    real = np.ones(2_000, np.float32)
    state = settings.init(SPEC, False, KEY)
    return jax.jit(settings.fit)(state, inputs, targets, real, KEY)


def test_a_fit_finds_mean_and_variance_of_a_linear_system(fitted):
    state, metrics = fitted
    inputs, _, mean = linear_system(500, seed=1)
    after, deviation, reward = state.ensemble.predict(inputs[:, :2], inputs[:, 2:])
    assert reward is None
    found = np.asarray(after) - inputs[None, :, :2]
    assert np.sqrt(((found.mean(axis=0) - mean) ** 2).mean()) < 0.02
    np.testing.assert_allclose(np.mean(deviation**2, axis=(0, 1)), VARIANCE, rtol=0.25)
    np.testing.assert_allclose(metrics["model_error"], VARIANCE.mean(), rtol=0.2)
    assert np.std(np.asarray(after), axis=0).mean() > 1e-4  # bootstraps differ, so networks do


SQUARED = Dynamics(
    model_sizes=(32, 32), model_activation="relu", model_objective="squared_error",
    normalise_targets=True, bootstrap=False, weight_decay=(0.0,), model_learning_rate=3e-3,
    model_batch=64, epochs=40,
)  # fmt: skip


def test_networks_without_variances_find_the_mean_in_the_units_of_the_targets():
    inputs, targets, _ = linear_system(2_000)
    targets = targets * np.float32([100.0, 1.0]) + np.float32([50.0, 0.0])
    state = SQUARED.init(SPEC, False, KEY)
    state, metrics = jax.jit(SQUARED.fit)(state, inputs, targets, np.ones(2_000, np.float32), KEY)
    np.testing.assert_allclose(state.ensemble.target_mean, targets.mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(state.ensemble.target_deviation, targets.std(axis=0), rtol=1e-3)
    inputs, _, mean = linear_system(500, seed=1)
    after, deviation, _ = state.ensemble.predict(inputs[:, :2], inputs[:, 2:])
    assert not np.any(deviation)
    found = (np.asarray(after) - inputs[None, :, :2]).mean(axis=0)
    wanted = mean * [100.0, 1.0] + [50.0, 0.0]
    assert (np.sqrt(np.mean((found - wanted) ** 2, axis=0)) < [4.0, 0.04]).all()
    unexplained = VARIANCE * [1e4, 1.0] / targets.var(axis=0)
    np.testing.assert_allclose(metrics["model_error"], unexplained.mean(), rtol=0.2)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_without_bootstraps_every_network_learns_from_every_row(bootstrap):
    """Steps too small to change anything: the error of an epoch is then that of its rows."""
    settings = replace(SQUARED, bootstrap=bootstrap, model_learning_rate=1e-30, epochs=1)
    inputs, targets, _ = linear_system(640)
    state, fit = settings.init(SPEC, False, KEY), jax.jit(settings.fit)
    state, metrics = fit(state, inputs, targets, np.ones(640, np.float32), KEY)
    ensemble = state.ensemble
    found, _ = ensemble.networks(jnp.broadcast_to(ensemble.normalised(inputs), (5, 640, 3)))
    error = np.mean((np.asarray(found) - ensemble.normalised_targets(targets)[None]) ** 2)
    assert np.isclose(metrics["model_error"], error, rtol=1e-5) != bootstrap


def test_padding_is_never_learned_from():
    settings = Dynamics(model_sizes=(8,), epochs=2, model_batch=16)
    inputs, targets, _ = linear_system(64)
    real = (np.arange(64) < 40).astype(np.float32)
    state, fit = settings.init(SPEC, False, KEY), jax.jit(settings.fit)
    one, _ = fit(state, inputs, targets, real, KEY)
    inputs[40:], targets[40:] = 7.0, -7.0
    other, _ = fit(state, inputs, targets, real, KEY)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_as_many_gradient_steps_as_there_are_batches_in_the_epochs():
    settings = Dynamics(model_sizes=(8,), epochs=3, model_batch=16)
    inputs, targets, _ = linear_system(64)
    state, fit = settings.init(SPEC, False, KEY), jax.jit(settings.fit)
    for count, batches in ((16, 1), (40, 3), (64, 4)):
        real = (np.arange(64) < count).astype(np.float32)
        after, _ = fit(state, inputs, targets, real, KEY)
        assert int(optax.tree.get(after.optimiser, "count")) == 3 * batches
    assert fit._cache_size() == 1


def test_a_fit_stops_when_what_is_held_out_is_predicted_no_better():
    settings = Dynamics(
        model_sizes=(32,), epochs=200, model_batch=16, held_out=0.3, patience=4,
        model_learning_rate=1e-2, weight_decay=(0.0,),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    inputs, targets = rows(100, seed=3)
    targets = rng.normal(size=targets.shape).astype(np.float32)  # nothing to be learned
    state = settings.init(SPEC, False, KEY)
    after, metrics = jax.jit(settings.fit)(state, inputs, targets, np.ones(100, np.float32), KEY)
    assert metrics["epochs_made"] < 100
    unseen = np.asarray(held_out(inputs, 0.3), bool)
    found = after.ensemble.networks(
        jnp.broadcast_to(after.ensemble.normalised(inputs), (5, 100, 3))
    )[0]
    error = np.mean((np.asarray(found)[:, unseen] - targets[None, unseen]) ** 2)
    np.testing.assert_allclose(error, metrics["held_out_error"], rtol=1e-4)  # its best networks


def test_a_fit_may_look_rarely_and_keep_the_last_networks():
    inputs, _ = rows(100, seed=3)
    targets = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    unseen, errors = np.asarray(held_out(inputs, 0.3), bool), []
    for keep_best in (True, False):
        settings = replace(
            SQUARED, epochs=60, model_batch=16, held_out=0.3, patience=12, check_every=5,
            model_learning_rate=1e-2, keep_best=keep_best,
        )  # fmt: skip
        state, fit = settings.init(SPEC, False, KEY), jax.jit(settings.fit)
        after, metrics = fit(state, inputs, targets, np.ones(100, np.float32), KEY)
        made, ensemble = int(metrics["epochs_made"]), after.ensemble
        assert made < 60
        assert made % 5 == 0
        batches = -(-(100 - unseen.sum()) // 16)
        assert int(optax.tree.get(after.optimiser, "count")) == made * batches
        found, _ = ensemble.networks(jnp.broadcast_to(ensemble.normalised(inputs), (5, 100, 3)))
        wanted = ensemble.normalised_targets(targets)
        errors.append(np.mean((np.asarray(found)[:, unseen] - wanted[None, unseen]) ** 2))
        np.testing.assert_allclose(metrics["held_out_error"], errors[-1], rtol=1e-4)
    assert errors[0] < errors[1]  # what was learned last is the noise of the others


def test_a_row_is_held_out_wherever_it_lies():
    inputs, _ = rows(2_000)
    side = np.asarray(held_out(inputs, 0.2))
    assert abs(side.mean() - 0.2) < 0.03
    order = np.random.default_rng(1).permutation(2_000)
    np.testing.assert_array_equal(held_out(inputs[order], 0.2), side[order])
    assert not np.any(held_out(inputs, 0.0))


def test_constant_inputs_are_left_as_they_are():
    inputs, _ = rows(50)
    inputs[:, 1] = 3.7
    weight = (np.arange(50) < 30).astype(np.float32)
    mean, deviation = statistics(inputs, weight)
    np.testing.assert_allclose(mean, inputs[:30].mean(axis=0), rtol=1e-4, atol=1e-6)
    expected = inputs[:30].std(axis=0)
    np.testing.assert_allclose(np.asarray(deviation)[[0, 2]], expected[[0, 2]], rtol=1e-4)
    assert deviation[1] == 1.0


@pytest.mark.parametrize(
    "bad", [{"ensemble_size": 0}, {"epochs": 0}, {"held_out": 1.0}, {"weight_decay": ()}]
)
def test_bad_settings_are_named(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        Dynamics(**bad)
