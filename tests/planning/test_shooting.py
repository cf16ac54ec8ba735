"""Random shooting, CEM and particles, where the best plan or its return is known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.errors import InputError
from phimu.planning.shooting import (
    NOT_FINITE,
    Shooting,
    World,
    cross_entropy,
    random_shooting,
    sample_plans,
)
from phimu.types import Known

KEY = jax.random.PRNGKey(0)
PAPER = Shooting()  # 500 candidates, 50 elites, 5 iterations, 0.1


def to_target(target):
    """The return of a plan is minus its squared distance from a target [H, A]."""
    wide = jnp.asarray(target, jnp.float32)[None]
    return lambda plans, key: (
        -jnp.sum((plans - jnp.broadcast_to(wide, plans.shape)) ** 2, axis=(1, 2))
    )


def error(settings, size, seeds=5):
    """Root mean squared, of the mean that CEM ends with."""
    targets = np.random.default_rng(0).uniform(-0.8, 0.8, (seeds, 1, size)).astype(np.float32)

    def plan(target, key):
        return cross_entropy(settings, to_target(target), (1, size), key)

    plans = jax.jit(jax.vmap(plan))(targets, jax.random.split(KEY, seeds))
    return float(np.sqrt(np.mean((np.asarray(plans) - targets) ** 2)))


# The search


@pytest.mark.parametrize(("size", "low", "high"), [(1, 0, 5e-3), (6, 0, 0.02), (30, 0.1, 0.18)])
def test_cem_finds_a_target(size, low, high):
    """Five iterations do, in few dimensions; in thirty they do not get there."""
    assert low <= error(PAPER, size) < high


def test_cem_in_the_dimensions_of_the_cheetah_wants_more_iterations():
    """180 numbers: 0.46 at the beginning, some 0.30 after five iterations."""
    assert 0.25 < error(PAPER, 180, seeds=2) < 0.35
    assert error(replace(PAPER, iterations=10), 180, seeds=2) < 0.27


def test_cem_goes_to_the_edge_and_no_further():
    """It stops at 0.95, where hardly anything varies any more."""
    returns = to_target(np.full((1, 6), 1.5))
    for iterations, mean in ((5, 0.78), (20, 0.95)):
        settings = replace(PAPER, iterations=iterations)
        plan = jax.jit(lambda key, s=settings: cross_entropy(s, returns, (1, 6), key))(KEY)
        np.testing.assert_allclose(np.mean(plan), mean, atol=0.03)


def test_samples_never_leave_the_box():
    mean = jnp.array([[-0.999, 0.0, 0.9]])
    plans = np.asarray(sample_plans(mean, jnp.full((1, 3), 4.0), 5_000, KEY))
    assert np.abs(plans).max() <= 1.0
    np.testing.assert_allclose(plans.mean(axis=0), mean, atol=0.02)
    assert plans[:, 0, 0].std() < 1e-3
    np.testing.assert_allclose(plans[:, 0, 1].std(), 0.5 * 0.88, atol=0.02)


def test_cem_follows_its_elites_by_hand():
    """One iteration, in NumPy."""
    settings = Shooting(candidates=20, elites=4, iterations=1, smoothing=0.25)
    returns = to_target(np.full((2, 1), 0.7))
    found = cross_entropy(settings, returns, (2, 1), KEY)
    for_plans, for_returns = jax.random.split(jax.random.fold_in(KEY, 0))
    plans = np.asarray(sample_plans(jnp.zeros((2, 1)), jnp.full((2, 1), 0.25), 20, for_plans))
    best = np.argsort(-np.asarray(returns(jnp.asarray(plans), for_returns)))[:4]
    np.testing.assert_allclose(found, 0.75 * plans[best].mean(axis=0), atol=1e-6)


def test_cem_stops_when_nothing_varies_any_more():
    many = replace(PAPER, iterations=1_000)
    count = []

    def returns(plans, key):
        jax.debug.callback(lambda: count.append(1))
        return to_target(np.zeros((1, 1)))(plans, key)

    cross_entropy(many, returns, (1, 1), KEY)
    jax.effects_barrier()
    assert 2 <= len(count) < 10


def test_random_shooting_takes_the_best_of_what_it_tries():
    settings = Shooting(optimiser="rs", candidates=2_500)
    tried = []

    def returns(plans, key):
        tried.append(plans)
        return to_target(np.full((2, 1), 0.3))(plans, key)

    plan = np.asarray(random_shooting(settings, returns, (2, 1), KEY))
    distances = np.sum((np.asarray(tried[0]) - 0.3) ** 2, axis=(1, 2))
    np.testing.assert_array_equal(plan, np.asarray(tried[0])[distances.argmin()])
    assert np.abs(tried[0]).max() <= 1.0
    assert distances.min() < 0.01


# Particles


def walker(noise=0.0, known=None, networks=5, drift=None):
    """s' = s + a + N(0, noise^2); each network may drift on its own. Its reward is -(mean s')^2."""

    def predict(s, a):
        if s.ndim == 2:
            s, a = (jnp.broadcast_to(x, (networks, *x.shape)) for x in (s, a))
        after = s + a
        if drift is not None:
            after = after + jnp.broadcast_to(jnp.asarray(drift)[:, None, None], after.shape)
        return after, jnp.full(after.shape, noise), -jnp.sum(after**2, axis=-1)

    return World(networks, predict, known)


START = jnp.array([0.5])
SEEN = Known(lambda s, a, after: -(after[..., 0] ** 2))
PLANS = np.random.default_rng(0).uniform(-1, 1, (7, 4, 1)).astype(np.float32)
WAYS = ("expectation", "ts_inf", "ts_1")


def earned(way, world, key=KEY, plans=PLANS, particles=20):
    settings = Shooting(propagation=way, particles=particles, elites=1)
    return np.asarray(jax.jit(lambda key: settings.returns(world, START, plans, key))(key))


@pytest.mark.parametrize("way", WAYS)
def test_without_noise_all_ways_earn_what_the_system_pays(way):
    s = 0.5 + np.cumsum(PLANS[..., 0], axis=1)
    np.testing.assert_allclose(earned(way, walker()), -(s**2).sum(axis=1), rtol=1e-4)


@pytest.mark.parametrize("way", ["ts_inf", "ts_1"])
def test_particles_of_equal_networks_are_samples_of_one(way):
    """E s_t^2 = (mean of s_t)^2 + t noise^2; the expectation does not see the noise."""
    noise, steps = 0.3, np.arange(1, 5)
    s = 0.5 + np.cumsum(PLANS[..., 0], axis=1)
    expected = -(s**2 + steps * noise**2).sum(axis=1)
    found = earned(way, walker(noise, SEEN), particles=20_000)
    np.testing.assert_allclose(found, expected, atol=0.05)
    blind = earned("expectation", walker(noise, SEEN))
    np.testing.assert_allclose(blind, -(s**2).sum(axis=1), rtol=1e-4)


def test_a_particle_of_ts_inf_stays_with_its_network_and_one_of_ts_1_does_not():
    """Networks that drift apart: the spread of s_t is t^2 against t times that of the drifts."""
    drift = np.float32([-0.2, -0.1, 0.0, 0.1, 0.2])
    nothing, steps = np.zeros((1, 4, 1), np.float32), np.arange(1, 5)
    variance = drift.var()
    world = walker(known=SEEN, drift=drift)
    stays = earned("ts_inf", world, plans=nothing)
    np.testing.assert_allclose(stays, -(0.25 + steps**2 * variance).sum(), rtol=1e-4)
    changes = earned("ts_1", world, plans=nothing, particles=50_000)
    np.testing.assert_allclose(changes, -(0.25 + steps * variance).sum(), atol=0.01)
    mean = earned("expectation", world, plans=nothing)
    np.testing.assert_allclose(mean, -4 * 0.25, rtol=1e-4)


def test_the_expectation_depends_on_no_draw():
    world = walker(0.3)
    others = [earned("expectation", world, jax.random.PRNGKey(n)) for n in (1, 2)]
    np.testing.assert_array_equal(*others)
    sampled = [earned("ts_inf", world, jax.random.PRNGKey(n)) for n in (1, 2)]
    assert np.abs(sampled[0] - sampled[1]).min() > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_known_reward_takes_the_place_of_a_learned_one(way):
    known = Known(lambda s, a, after: 10 * s[..., 0] + a[..., 0] + 100 * after[..., 0])
    after = 0.5 + np.cumsum(PLANS[..., 0], axis=1)
    before = after - PLANS[..., 0]
    expected = (10 * before + PLANS[..., 0] + 100 * after).sum(axis=1)
    np.testing.assert_allclose(earned(way, walker(known=known)), expected, rtol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_earned_after_the_end(way):
    """Ends where s' > 1; the step that ends it is still paid."""
    known = Known(lambda s, a, after: jnp.ones(s.shape[:-1]), lambda after: after[..., 0] > 1.0)
    plans = np.zeros((2, 4, 1), np.float32)
    plans[1, 1] = 0.9
    np.testing.assert_allclose(earned(way, walker(known=known), plans=plans), [4.0, 2.0])


def test_a_plan_along_which_the_model_runs_away_is_the_worst():
    def predict(s, a):
        after = jnp.where(a > 0, jnp.nan, s)
        return after[None], jnp.zeros((1, *after.shape)), -jnp.ones((1, s.shape[0]))

    known = Known(lambda s, a, after: after[..., 0])
    plans = np.stack([np.full((3, 1), -1.0), np.full((3, 1), 1.0)]).astype(np.float32)
    found = Shooting(elites=1).returns(World(1, predict, known), START, plans, KEY)
    np.testing.assert_allclose(found, [1.5, NOT_FINITE])


# A plan


@pytest.mark.parametrize("optimiser", ["cem", "rs"])
@pytest.mark.parametrize("way", WAYS)
def test_a_plan_goes_where_it_is_paid(optimiser, way):
    """From 0.5 to 0 at once, and then it stays."""
    settings = Shooting(
        optimiser=optimiser, plan_horizon=2, candidates=1_000, propagation=way, particles=5
    )
    plan = jax.jit(lambda key: settings.plan(walker(0.01), START, 1, key))(KEY)
    assert plan.shape == (2, 1)
    np.testing.assert_allclose(plan[:, 0], [-0.5, 0.0], atol=0.05 if optimiser == "cem" else 0.15)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"elites": 600}, "elites is 600, but candidates 500"),
        ({"plan_horizon": 0}, "plan_horizon is 0"),
        ({"smoothing": 1.0}, "smoothing is 1.0"),
    ],
)
def test_bad_settings_are_named(bad, said):
    with pytest.raises(InputError, match=said):
        Shooting(**bad)


def test_particles_are_shared_out_evenly():
    with pytest.raises(InputError, match="particles is 7: give a multiple of ensemble_size, 5"):
        Shooting(propagation="ts_inf", particles=7).check(5)
    Shooting(propagation="expectation", particles=7).check(5)
