"""Perturbed and multi-step contrast: what is blurred, what mu is told, and a known answer."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.data.replay import Replay
from phimu.errors import InputError
from phimu.representation.contrastive import Contrastive
from phimu.representation.losses import ranking
from phimu.representation.negatives import Negatives
from phimu.representation.perturbation import tell
from phimu.representation.ratio import Exponential, log_ratio
from phimu.types import Batch, Feed, Spec

SPEC = Spec(3, 2)
PLAIN = Contrastive(
    noise=Negatives(negatives=8, random_share=0.0), feature_dim=4, feature_sizes=(8,)
)
BLURRED = replace(PLAIN, levels=(0.5, 2.0))
KEY = jax.random.PRNGKey(0)


def feed(rows=16, seed=0, **columns):
    rng = np.random.default_rng(seed)
    s, a, following = (rng.standard_normal((rows, n), np.float32) for n in (3, 2, 3))
    zero = np.zeros(rows, np.float32)
    others = {"negatives": rng.standard_normal((8, 3), np.float32)}
    return Feed(Batch(s, a, zero, following, zero, zero), others, columns)


def test_blurred_deterministic_dynamics_are_bilinear_in_d_plus_2_numbers():
    """log N(y; f, sigma^2) - log p(y) = <phi, mu> exactly: the loss of the truth is reached.

    s' = f(s, a) blurred by sigma, p(y) any density: phi = (f, -|f|^2 / 2, 1) / sigma^2.
    """
    rng = np.random.default_rng(0)
    sigma = 0.7
    f = rng.normal(size=(20, 3))
    y = f + sigma * rng.normal(size=(20, 3))
    log_p = rng.normal(size=20)
    true = -((y[None] - f[:, None]) ** 2).sum(2) / (2 * sigma**2) - log_p[None]
    phi = np.column_stack([f, -(f**2).sum(1) / 2, np.ones(20)]) / sigma**2
    mu = np.column_stack([y, np.ones(20), -(y**2).sum(1) / 2 - sigma**2 * log_p])
    assert phi.shape[1] == 3 + 2
    arrays = (jnp.asarray(x, jnp.float32) for x in (phi, mu))
    found = log_ratio(Exponential(), *arrays, None, jnp.zeros(()))
    np.testing.assert_allclose(found, true, rtol=1e-4, atol=1e-4)
    split = Negatives(negatives=0, random_share=0.0).split
    losses = [float(ranking(*split(jnp.asarray(x, jnp.float32)), 19)) for x in (found, true)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_noise_is_in_units_of_each_components_own_deviation():
    """A component of a thousandth the size gets a thousandth of the noise: nothing changes."""
    small = feed()
    scale = np.array([1.0, 1e-3, 1e3], np.float32)
    batch = small.batch
    other = Feed(
        batch._replace(
            observation=batch.observation * scale, next_observation=batch.next_observation * scale
        ),
        {"negatives": small.others["negatives"] * scale},
    )
    state = BLURRED.init(SPEC, KEY)
    spreads = [BLURRED.update(state, each, KEY)[0].spread for each in (small, other)]
    ratio = jnp.sqrt(spreads[1].variance / spreads[0].variance)
    np.testing.assert_allclose(ratio, scale, rtol=1e-3)


def test_mu_is_told_the_level_and_other_keys_draw_others():
    state = BLURRED.init(SPEC, KEY)
    assert state.features.mu.network.layers[0].weight.shape[0] == 3 + 8
    assert PLAIN.init(SPEC, KEY).features.mu.network.layers[0].weight.shape[0] == 3
    assert not np.allclose(tell(1, jnp.float32(0.5)), tell(1, jnp.float32(2.0)))
    found = {
        float(BLURRED.update(state, feed(), jax.random.PRNGKey(i))[1]["nce_loss"]) for i in range(4)
    }
    assert len(found) == 4
    again = [BLURRED.update(state, feed(), KEY)[1]["nce_loss"] for _ in range(2)]
    assert again[0] == again[1]


def test_plain_contrast_draws_no_noise():
    state = PLAIN.init(SPEC, KEY)
    found = [PLAIN.update(state, feed(), jax.random.PRNGKey(i))[1]["nce_loss"] for i in range(2)]
    assert found[0] == found[1]
    assert state.spread is None


def test_multi_step_positives_come_from_the_same_episode():
    """The observation counts steps of an episode, so s' of k - 1 rows later is s + k."""
    learner = replace(PLAIN, multi_step=0.8)
    replay = Replay(SPEC, 200, 0, batch_size=32)
    for step in range(150):
        at = np.full(3, step % 30, np.float32)
        replay.add(at, np.zeros(2), 0.0, at + 1, False, step % 30 == 29)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(20):
        drawn = learner.draw(replay, replay.sample(rng), rng)
        steps, valid = int(drawn.columns["steps"]), drawn.columns["valid"]
        start = drawn.rows[:, 0]
        np.testing.assert_array_equal(valid, start + steps <= 30)
        np.testing.assert_array_equal(drawn.others["later"][valid, 0], start[valid] + steps)
        seen.add(steps)
    assert len(seen) > 4


def test_rows_whose_episode_ended_are_not_asked():
    learner = replace(PLAIN, multi_step=0.8, noise=Negatives(negatives=8, random_share=0.0))
    state = learner.init(SPEC, KEY)
    later = np.random.default_rng(3).standard_normal((16, 3), np.float32)
    valid = np.arange(16) < 5
    whole = feed(steps=np.int32(3), valid=valid)
    whole = whole._replace(others=whole.others | {"later": later})
    other = later.copy()
    other[5:] = later[5:][::-1]  # as negatives they are the same
    moved = whole._replace(others=whole.others | {"later": other})
    losses = [learner.update(state, each, KEY)[1]["nce_loss"] for each in (whole, moved)]
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"levels": (0.0,)}, "levels is"), ({"multi_step": 1.0}, "multi_step is 1.0")],
)
def test_bad_settings_get_one_sentence(changes, words):
    with pytest.raises(InputError, match=words):
        replace(PLAIN, **changes)


def test_phi_and_mu_may_read_observations_in_units_of_their_deviation():
    """Observations in other units give the same loss and the same phi."""
    own = replace(BLURRED, normalise_inputs=True, feature_learning_rate=0.0)
    small, scale = feed(), np.array([1.0, 5.0, 1e2], np.float32)
    batch = small.batch
    other = Feed(
        batch._replace(
            observation=batch.observation * scale + 3,
            next_observation=batch.next_observation * scale + 3,
        ),
        {"negatives": small.others["negatives"] * scale + 3},
    )
    state = own.init(SPEC, KEY)
    (one, first), (two, second) = (own.update(state, each, KEY) for each in (small, other))
    np.testing.assert_allclose(first["nce_loss"], second["nce_loss"], rtol=1e-3)
    read = [
        own.phi(s)(f.batch.observation, f.batch.action) for s, f in ((one, small), (two, other))
    ]
    np.testing.assert_allclose(read[0], read[1], rtol=1e-2, atol=1e-2)
    ratios = [
        own.log_ratio(s, phi, f.others["negatives"])
        for s, phi, f in zip((one, two), read, (small, other), strict=True)
    ]
    np.testing.assert_allclose(ratios[0], ratios[1], rtol=1e-2, atol=1e-2)


def test_a_pull_is_the_gradient_of_another_loss_and_contrast_may_weigh_nothing():
    """With weight 0 and the pull of |phi|^2 / 2, phi shrinks as by that loss alone."""
    only = replace(PLAIN, contrast_weight=0.0, feature_learning_rate=1e-2)
    state, given = only.init(SPEC, KEY), feed()
    pair = given.batch.observation, given.batch.action
    sizes = []
    for _ in range(50):
        phi = only.current(state)(*pair)
        sizes.append(float(jnp.sum(phi**2)))
        state, _ = only.update(state, given, KEY, None, phi)
    assert sizes[-1] < 0.5 * sizes[0]
    start = only.init(SPEC, KEY)
    unmoved, _ = only.update(start, given, KEY)
    assert (
        unmoved.features.phi.network.layers[0].weight == start.features.phi.network.layers[0].weight
    ).all()
