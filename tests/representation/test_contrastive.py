"""One update of phi and mu: what moves, what does not, and that NCE finds a known P."""

from dataclasses import replace
from functools import cache
from typing import get_args, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.errors import InputError
from phimu.representation.contrastive import ACCURACY_ROWS, MEAN_RATE, MEAN_STRIDE, Contrastive
from phimu.representation.features import OUTPUTS
from phimu.representation.losses import LOSSES, ranking_of_normalised
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import Exponential, Linear, log_ratio, own_log_ratio
from phimu.representation.seam import bonus_input
from phimu.settings import override
from phimu.types import Batch, Feed, Spec

SPEC = Spec(3, 2)
TINY = Contrastive(
    noise=Negatives(6), feature_dim=8, feature_sizes=(8,), feature_learning_rate=1e-2
)
LINEAR = replace(
    TINY, ratio=Linear(mu_output="softplus"), feature_rate=0.3, phi_gain=2.0, mu_gain=1.5
)
EVERYTHING = replace(
    TINY,
    ratio=Exponential(learn_temperature=True),
    fourier=(4, 1.0),
    reward_weight=1.0,
    bonus_prediction_weight=1.0,
)
KEY = jax.random.PRNGKey(7)  # of the noise on s', of which only `next_noise` draws


def transitions(seed, size=32):
    """A batch whose next observation and reward follow from (s, a), and noise [6, 3]."""
    rng = np.random.default_rng(seed)
    observation = rng.normal(size=(size, 3)).astype(np.float32)
    action = rng.uniform(-1, 1, (size, 2)).astype(np.float32)
    batch = Batch(
        observation=observation,
        action=action,
        reward=observation[:, 0] - 2 * action[:, 1] + 0.5,
        next_observation=np.tanh(observation + action[:, :1]),
        terminated=np.zeros(size, np.float32),
        truncated=np.zeros(size, np.float32),
    )
    return batch, rng.normal(size=(6, 3)).astype(np.float32)


@cache  # one compilation per learner
def step_of(learner):
    def step(state, batch, noise, key=KEY):
        bonus = jnp.clip(1 + batch.observation[:, 1], 0, 2)
        return learner.update(state, Feed(batch, {"negatives": noise}), key, bonus)

    return jax.jit(step)


def objective(learner, features, batch, noise):
    """The loss and its metrics, with the negatives after the batch's own s'."""
    following = jnp.concatenate([batch.next_observation, noise])
    return learner.objective(features, Feed(batch), following, None, None)


def ratios_of(learner, features, batch, noise):
    """Log ratios of every row with every candidate, by the batch's own mean of mu: [B, B + K]."""
    phi = features.phi(batch.observation, batch.action)
    mu = features.mu(jnp.concatenate([batch.next_observation, noise]))
    return log_ratio(learner.ratio, phi, mu, jnp.mean(mu, axis=0), features.log_temperature)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def numpy_map(feature_map, x, last):
    """An ELU feature map without Fourier inputs in float64, from its weights."""
    for i, layer in enumerate(feature_map.network.layers):
        if i:
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
        x = x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)
    return last(feature_map.gain * x)


def softplus(x):
    return np.logaddexp(x, 0)


# Shapes and bounds


@pytest.mark.parametrize("learner", [TINY, EVERYTHING, LINEAR])
def test_shapes(learner):
    state = learner.init(SPEC, jax.random.PRNGKey(0))
    batch, noise = transitions(0)
    d = learner.feature_dim
    phi = state.slow.phi(batch.observation, batch.action)
    assert phi.shape == (32, d)
    assert state.slow.phi(batch.observation[0], batch.action[0]).shape == (d,)
    assert state.slow.mu(noise).shape == (6, d)
    if learner is LINEAR:  # the only ratio that needs the mean of mu
        assert state.slow.mu_mean.shape == (d,)
        assert state.features.log_temperature is None
    else:
        assert state.slow.mu_mean is None
        assert state.features.log_temperature.shape == ()
    assert learner.log_ratio(state, phi, noise).shape == (32, 6)
    np.testing.assert_array_equal(phi, state.features.phi(batch.observation, batch.action))
    np.testing.assert_array_equal(phi, learner.phi(state)(batch.observation, batch.action))


def test_phi_and_mu_are_their_weights():
    state = TINY.init(SPEC, jax.random.PRNGKey(0))
    batch, noise = transitions(0)
    pair = np.concatenate([batch.observation, batch.action], axis=1)
    phi = numpy_map(state.slow.phi, pair, lambda x: x)
    mu = numpy_map(state.slow.mu, noise, np.tanh)
    np.testing.assert_allclose(
        state.slow.phi(batch.observation, batch.action), phi, rtol=1e-4, atol=1e-5
    )
    ratio = TINY.log_ratio(state, jnp.asarray(phi, jnp.float32), noise)
    np.testing.assert_allclose(ratio, phi @ mu.T / 0.2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "learner",
    [
        LINEAR,
        replace(LINEAR, feature_layer_norm=True, feature_sizes=(8, 8)),
        replace(TINY, ratio=Exponential(phi_output="unit_variance"), feature_layer_norm=True),
    ],
)
def test_unnormalised_phi_is_its_layers_and_nothing_else(learner):
    state = learner.init(SPEC, jax.random.PRNGKey(0))
    batch, _ = transitions(0)
    pair = np.concatenate([batch.observation, batch.action], axis=1)
    found = learner.unnormalised_phi(state)(batch.observation, batch.action)
    expected = numpy_map(state.slow.phi, pair, lambda x: x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    far = learner.unnormalised_phi(state)(100 * batch.observation, batch.action)
    lengths = np.linalg.norm(far, axis=1) / np.linalg.norm(found, axis=1)
    assert np.median(lengths) > 10  # while phi itself is as long as ever


def test_what_the_bonus_is_of():
    state = TINY.init(SPEC, jax.random.PRNGKey(0))
    batch, _ = transitions(0)
    phi, unnormalised, unit = (
        np.asarray(bonus_input(TINY, name, state)(batch.observation, batch.action))
        for name in ("phi", "unnormalised_phi", "unit_phi")
    )
    np.testing.assert_array_equal(phi, TINY.phi(state)(batch.observation, batch.action))
    np.testing.assert_array_equal(phi, unnormalised)  # nothing here normalises it
    expected = phi.astype(np.float64) / np.linalg.norm(phi, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, expected, rtol=1e-5)


BOUNDS = {
    "sigmoid": (0, 1),
    "gaussian": (0, 1),
    "tanh": (-1, 1),
    "softmax": (0, 1),
    "unit_norm": (-1, 1),
    "softplus": (0, np.inf),
    "exponential": (0, np.inf),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounded_outputs_are_bounded(name):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(50, 5)) * 100, jnp.float32)
    y = np.asarray(OUTPUTS[name](x))
    low, high = BOUNDS[name]
    assert np.isfinite(y).all()
    assert y.min() >= low
    assert y.max() <= high * (1 + 1e-6)
    assert y.max() > 0.8  # and they use the range


def test_normalised_outputs():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(9, 5)) * 3 + 1, jnp.float32)
    np.testing.assert_allclose(np.sum(OUTPUTS["softmax"](x), axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.sum(OUTPUTS["unit_norm"](x) ** 2, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.var(OUTPUTS["unit_variance"](x), axis=1), 1, rtol=1e-3)
    np.testing.assert_allclose(np.mean(OUTPUTS["unit_variance"](x), axis=1), 0, atol=1e-6)


def test_a_linear_ratio_offers_mu_the_non_negative_outputs_and_all_of_them():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(50, 5)) * 3, jnp.float32)
    non_negative = {name for name, output in OUTPUTS.items() if (output(x) >= 0).all()}
    assert set(get_args(get_type_hints(Linear)["mu_output"])) == non_negative
    assert Linear().phi_output == "softmax"


@pytest.mark.parametrize(
    ("made", "settings", "field"),
    [
        (Linear, {"mu_output": "tanh"}, "mu_output is 'tanh'"),
        (Exponential, {"temperature": 0.0}, r"temperature is 0\.0"),
        (Contrastive, {"feature_dim": 0}, "feature_dim is 0"),
        (Contrastive, {"feature_decay": 0}, "feature_decay is 0"),
        (Contrastive, {"fourier": (0, 1.0)}, r"fourier is \(0, 1\.0\)"),
    ],
)
def test_bad_settings_are_refused_by_name(made, settings, field):
    with pytest.raises(InputError, match=field):
        made(**settings)


@pytest.mark.parametrize(
    ("ratio", "alien"),
    [
        ("linear", {"temperature": 0.2}),
        ("linear", {"learn_temperature": True}),
        ("linear", {"marginal_weight": 1.0}),
        ("linear", {"phi_output": "softplus"}),
        ("exponential", {"balance_weight": 1.0}),
    ],
)
def test_what_a_ratio_has_no_use_for_cannot_be_set_beside_it(ratio, alien):
    """A temperature of the linear ratio would change nothing, and a free phi has no integral."""
    with pytest.raises(InputError, match=f"no setting '{next(iter(alien))}'"):
        override((TINY,), {"ratio": ratio} | alien)


# The linear ratio


def test_linear_ratio_with_phi_on_the_simplex_integrates_to_one():
    """Over the batch's base measure, whatever the weights: E_p <phi, mu> = 1 for every (s, a)."""
    state = LINEAR.init(SPEC, jax.random.PRNGKey(1))
    assert (state.slow.phi.gain, state.slow.mu.gain) == (2.0, 1.5)
    batch, noise = transitions(1)
    _, metrics = objective(LINEAR, state.features, batch, noise)
    ratio = np.exp(ratios_of(LINEAR, state.features, batch, noise))
    np.testing.assert_allclose(ratio.mean(axis=1), 1.0, rtol=1e-5)
    assert ratio.std() > 0.01  # not merely the constant
    # The metric leaves out each row's own s', so it is near zero but not at it.
    own = ratio[np.arange(32), np.arange(32)]
    expected = np.mean(np.log((ratio.sum(axis=1) - own) / (32 + 6 - 1)))
    np.testing.assert_allclose(metrics["log_normaliser"], expected, atol=1e-5)


def test_the_shortcut_for_normalised_ratios_is_the_ranking_loss():
    """Value and gradient, with more rows than the metrics look at."""
    batch, noise = transitions(2, size=ACCURACY_ROWS + 6)
    features = LINEAR.init(SPEC, jax.random.PRNGKey(2)).features

    def directly(features):
        positive, negative = LINEAR.noise.split(ratios_of(LINEAR, features, batch, noise))
        return LOSSES["ranking"](positive, negative, 0, None)

    def shortcut(features):
        return objective(LINEAR, features, batch, noise)[0]

    (value, slope), (expected, expected_slope) = (
        jax.jit(jax.value_and_grad(loss))(features) for loss in (shortcut, directly)
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for one, other in zip(leaves(slope), leaves(expected_slope), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "changes", [{"loss": "binary"}, {"noise": Negatives(6, in_batch=False)}, {"ratio": TINY.ratio}]
)
def test_the_shortcut_is_not_taken_where_integrals_are_free(changes):
    """Then the loss is that of the whole matrix, and the shortcut would be another number."""
    learner, (batch, noise) = replace(LINEAR, **changes), transitions(2)
    features = learner.init(SPEC, jax.random.PRNGKey(2)).features
    ratios, count = ratios_of(learner, features, batch, noise), learner.noise.count(32)
    directly = LOSSES[learner.loss](*learner.noise.split(ratios), count, features.log_normaliser)
    total, _ = objective(learner, features, batch, noise)
    np.testing.assert_allclose(total, directly, rtol=1e-5)
    assert abs(float(total - ranking_of_normalised(jnp.diagonal(ratios), count))) > 1e-3


def test_a_row_has_the_same_ratio_alone_as_among_all():
    batch, noise = transitions(2)
    features = LINEAR.init(SPEC, jax.random.PRNGKey(2)).features
    phi = features.phi(batch.observation, batch.action)
    mu = features.mu(jnp.concatenate([batch.next_observation, noise]))
    own = own_log_ratio(phi, mu[:32], jnp.mean(mu, axis=0))
    ratios = ratios_of(LINEAR, features, batch, noise)
    np.testing.assert_allclose(own, jnp.diagonal(ratios), rtol=1e-4, atol=1e-6)


# Slow copies


@pytest.mark.parametrize(("learner", "rate"), [(TINY, 0.005), (LINEAR, 0.3)])
def test_slow_copies_follow_their_recursion(learner, rate):
    assert learner.feature_rate == rate
    state = learner.init(SPEC, jax.random.PRNGKey(0))
    slow = [x.astype(np.float64) for x in leaves((state.slow.phi, state.slow.mu))]
    mean = np.ones(learner.feature_dim)
    distance = 0.0
    for t in range(5):
        batch, noise = transitions(t)
        state, _ = step_of(learner)(state, batch, noise)
        fast = leaves((state.features.phi, state.features.mu))
        slow = [s + rate * (f - s) for s, f in zip(slow, fast, strict=True)]
        distance += sum(np.abs(s - f).sum() for s, f in zip(slow, fast, strict=True))
        if learner is LINEAR:  # the exponential ratio needs no mean
            places = np.concatenate([batch.next_observation, noise]).astype(np.float64)
            mu = numpy_map(state.slow.mu, places[::MEAN_STRIDE], softplus)
            mean = mean + MEAN_RATE * (mu.mean(axis=0) - mean)
    for computed, expected in zip(leaves((state.slow.phi, state.slow.mu)), slow, strict=True):
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6)
    assert distance > 0.1  # the copies lag behind
    if learner is LINEAR:
        np.testing.assert_allclose(state.slow.mu_mean, mean, rtol=1e-5)
        assert (np.abs(mean - 1) > 1e-3).all()
    else:
        assert state.slow.mu_mean is None


# What is learned and what is not


def test_held_copies_stand_still_and_targets_read_the_one_before():
    learner = replace(TINY, feature_every=3)
    state = learner.init(SPEC, jax.random.PRNGKey(0))
    reads = before = leaves((state.slow.phi, state.slow.mu))
    for number in range(1, 8):
        state, _ = step_of(learner)(state, *transitions(number))
        if number % 3 == 0:
            before, reads = reads, leaves((state.features.phi, state.features.mu))
        found = leaves((state.slow.phi, state.slow.mu))
        assert all(map(np.array_equal, found, reads))
        assert all(map(np.array_equal, leaves(state.held.phi), before))
    observation, action = (np.ones((2, n), np.float32) for n in (3, 2))
    np.testing.assert_array_equal(
        learner.target_phi(state)(observation, action), state.held.phi(observation, action)
    )


@pytest.mark.parametrize("learner", [TINY, EVERYTHING])
def test_temperature_moves_only_if_asked(learner):
    state = learner.init(SPEC, jax.random.PRNGKey(0))
    start = np.asarray(state.features.log_temperature)
    np.testing.assert_allclose(np.exp(start), 0.2, rtol=1e-6)
    for t in range(3):
        state, _ = step_of(learner)(state, *transitions(t))
    unchanged = np.asarray(state.features.log_temperature) == start
    assert unchanged != learner.ratio.learn_temperature


def test_fourier_frequencies_never_change():
    start = state = EVERYTHING.init(SPEC, jax.random.PRNGKey(0))
    for t in range(5):
        state, _ = step_of(EVERYTHING)(state, *transitions(t))
    for where in (state.features, state.slow):
        for feature_map in (where.phi, where.mu):
            np.testing.assert_array_equal(
                feature_map.fourier.frequencies, start.features.phi.fourier.frequencies
            )
    first = start.features.phi.network.layers[0].weight
    assert (np.asarray(state.features.phi.network.layers[0].weight) != first).any()


def test_reward_and_bonus_heads_learn():
    """The reward is linear in (s, a), the bonus nearly; the heads see them through phi only."""
    state = EVERYTHING.init(SPEC, jax.random.PRNGKey(0))
    history = []
    for t in range(400):
        state, metrics = step_of(EVERYTHING)(state, *transitions(t))
        history.append((metrics["reward_loss"], metrics["bonus_loss"]))
    start, end = np.mean(history[:5], axis=0), np.mean(history[-20:], axis=0)
    assert (start > 0.3).all()
    assert (end < 0.1).all()
    # On fresh data, with the head that the metrics speak of.
    batch, _ = transitions(1_000, size=200)
    phi = state.features.phi(batch.observation, batch.action)
    error = np.asarray(state.features.reward_head(phi))[:, 0] - batch.reward
    assert np.mean(error**2) < 0.15


def test_weights_of_zero_leave_the_heads_alone():
    start = TINY.init(SPEC, jax.random.PRNGKey(0))
    state, metrics = step_of(TINY)(start, *transitions(0))
    assert not {"reward_loss", "bonus_loss"} & set(metrics)
    for head in ("reward_head", "bonus_head"):
        before, after = (leaves(getattr(x.features, head)) for x in (start, state))
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(old, new)


def test_mu_norm_is_added_with_its_weight():
    batch, noise = transitions(0)
    state = LINEAR.init(SPEC, jax.random.PRNGKey(0))
    plain, metrics = objective(LINEAR, state.features, batch, noise)
    assert float(plain) == float(metrics["nce_loss"])
    weighted, _ = objective(replace(LINEAR, mu_norm_weight=0.7), state.features, batch, noise)
    places = np.concatenate([batch.next_observation, noise])
    mu = numpy_map(state.features.mu, places.astype(np.float64), softplus)
    np.testing.assert_allclose(weighted - plain, 0.7 * np.mean(np.sum(mu**2, axis=1)), rtol=1e-4)


def test_the_marginal_is_added_with_its_weight():
    """Of the exponential ratio, whose integrals are not one."""
    batch, noise = transitions(0)
    state = TINY.init(SPEC, jax.random.PRNGKey(0))
    plain, metrics = objective(TINY, state.features, batch, noise)
    assert float(plain) == float(metrics["nce_loss"])
    learner = replace(TINY, ratio=Exponential(marginal_weight=3.0))
    weighted, _ = objective(learner, state.features, batch, noise)
    places = np.concatenate([batch.next_observation, noise])
    mu = numpy_map(state.features.mu, places.astype(np.float64), np.tanh)
    pair = np.concatenate([batch.observation, batch.action], axis=1).astype(np.float64)
    ratio = np.exp(numpy_map(state.features.phi, pair, lambda x: x) @ mu.T / 0.2)
    marginal = (ratio.sum(axis=1) - np.diagonal(ratio)) / 37
    np.testing.assert_allclose(weighted - plain, 3 * np.mean(np.log(marginal) ** 2), rtol=1e-4)


def test_balance_is_added_with_its_weight():
    batch, noise = transitions(0)
    state = LINEAR.init(SPEC, jax.random.PRNGKey(0))
    plain, weighted = (
        objective(
            replace(LINEAR, ratio=Linear(balance_weight=weight)), state.features, batch, noise
        )[0]
        for weight in (0.0, 5.0)
    )
    phi = np.asarray(state.features.phi(batch.observation, batch.action), np.float64)
    usage = phi.mean(axis=0)
    expected = 5 * np.sum(usage * np.log(usage * len(usage)))
    np.testing.assert_allclose(weighted - plain, expected, rtol=1e-3)


# Noise on s'


@pytest.mark.parametrize("learner", [TINY, LINEAR])
def test_noise_on_next_observations_is_that_of_the_key(learner):
    """The same key gives the same update bit for bit; another key another one."""
    blurred = step_of(replace(learner, next_noise=0.3))
    state, data = learner.init(SPEC, jax.random.PRNGKey(0)), transitions(0)
    first, again, other = (
        leaves(blurred(state, *data, jax.random.PRNGKey(key))[0]) for key in (1, 1, 2)
    )
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert any((one != two).any() for one, two in zip(first, other, strict=True))


@pytest.mark.parametrize("learner", [TINY, LINEAR])
def test_noise_is_added_to_s_prime_and_to_the_negatives_alike(learner):
    """An update without noise on observations that were blurred beforehand is the same."""
    batch, noise = transitions(0)
    state = learner.init(SPEC, jax.random.PRNGKey(0))
    following = np.concatenate([batch.next_observation, noise])
    blurred = following + 0.3 * np.asarray(jax.random.normal(KEY, following.shape))
    beforehand = batch._replace(next_observation=blurred[:32]), blurred[32:]
    inside, metrics = step_of(replace(learner, next_noise=0.3))(state, batch, noise)
    outside, expected = step_of(learner)(state, *beforehand)
    for name, value in metrics.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
    for one, two in zip(leaves(inside.slow), leaves(outside.slow), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_no_noise_draws_nothing():
    """The key then matters to nothing, not even as an operation of the compiled update."""
    state, (batch, noise) = TINY.init(SPEC, jax.random.PRNGKey(0)), transitions(0)

    def operations(learner):
        feed = Feed(batch, {"negatives": noise})
        return str(jax.make_jaxpr(learner.update)(state, feed, KEY))

    assert "random_bits" not in operations(TINY)
    assert "random_bits" in operations(replace(TINY, next_noise=0.1))
    one, other = (
        leaves(step_of(TINY)(state, batch, noise, jax.random.PRNGKey(key))[0]) for key in (1, 2)
    )
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


# NCE recovers P

STATES, ACTIONS, UPDATES, ROWS, DRAWN = 6, 3, 500, 128, 128


def random_mdp(seed):
    """P [S, A, S'] with a few likely successors each, and a marginal p(s') far from uniform."""
    rng = np.random.default_rng(seed)
    weight = np.array([4.0, 2.0, 1.0, 1.0, 0.5, 0.25])
    return rng.dirichlet(0.5 * weight, (STATES, ACTIONS))


def sample_rows(transition, shape, rng):
    """(s, a, s') with (s, a) uniform."""
    s, a = rng.integers(STATES, size=shape), rng.integers(ACTIONS, size=shape)
    cumulative = np.cumsum(transition[s, a], axis=-1)
    following = (rng.uniform(size=(*shape, 1)) > cumulative[..., :-1]).sum(axis=-1)
    return s, a, following


RATIOS = {"exponential": Exponential(temperature=1.0), "linear": Linear("exponential")}


@pytest.mark.parametrize("loss", ["ranking", "binary"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_nce_recovers_a_tabular_transition_law(loss, ratio):
    transition = random_mdp(0)
    marginal = transition.mean(axis=(0, 1))  # the base measure: the law of s' in the data
    learner = Contrastive(
        loss=loss,
        ratio=RATIOS[ratio],
        noise=Negatives(DRAWN),
        feature_dim=32,
        feature_sizes=(32,),
        feature_learning_rate=1e-2,
        feature_rate=0.05,
    )
    rng = np.random.default_rng(1)
    s, a, following = sample_rows(transition, (UPDATES, ROWS), rng)
    _, _, noise = sample_rows(transition, (UPDATES, DRAWN), rng)
    one_hot = jnp.eye(STATES)

    def step(state, row):
        s, a, following, noise = row
        zero = jnp.zeros(ROWS)
        batch = Batch(one_hot[s], jnp.eye(ACTIONS)[a], zero, one_hot[following], zero, zero)
        return learner.update(state, Feed(batch, {"negatives": one_hot[noise]}), KEY)

    state = learner.init(Spec(STATES, ACTIONS), jax.random.PRNGKey(0))
    state, _ = jax.jit(lambda *start: jax.lax.scan(step, *start))(state, (s, a, following, noise))

    every_s, every_a = (x.ravel() for x in np.indices((STATES, ACTIONS)))
    phi = state.slow.phi(one_hot[every_s], jnp.eye(ACTIONS)[every_a])
    learned = marginal * np.exp(learner.log_ratio(state, phi, one_hot))  # [S A, S']
    integral = learned.sum(axis=1)
    learned = learned / integral[:, None]
    true = transition.reshape(-1, STATES)

    def total_variation(other):
        return np.mean(0.5 * np.abs(other - true).sum(axis=1))

    assert total_variation(learned) < 0.1
    # What a wrong loss could still find: the marginal, the uniform law, P divided by p.
    ratios = true / marginal
    for wrong in (marginal[None, :], 1 / STATES, ratios / ratios.sum(axis=1, keepdims=True)):
        assert total_variation(wrong) > 0.2
    if loss == "binary" or ratio == "linear":  # ranking leaves an exponential ratio's scale free
        assert np.mean(np.abs(np.log(integral))) < 0.15
