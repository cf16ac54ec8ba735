"""What the benchmark counts is what an update does."""

from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from phimu.agents.presets import override, preset
from phimu.studies.speed import updates
from phimu.studies.speed.updates import Product


def test_matrix_products_are_counted_in_functions_within_functions():
    @jax.jit
    def inner(a, b):
        return jnp.tanh(a @ b)

    def function(a, b, c):
        batched = jnp.einsum("bij,bjk->bik", c, c)
        return inner(a, b).sum() + jax.lax.map(lambda row: row @ b, a).sum() + batched.sum()

    traced = jax.make_jaxpr(function)(jnp.ones((3, 4)), jnp.ones((4, 5)), jnp.ones((6, 7, 7)))
    found = Counter(updates._products(traced.jaxpr))
    assert found[Product(3, 5, 4)] == 1
    assert found[Product(7, 7, 7)] == 6
    assert found[Product(1, 5, 4)] == 1  # of a loop, once: its length is not looked at
    assert Product(3, 5, 4).work == 120


def test_work_of_an_update_is_that_of_its_layers():
    """SAC on (17 + 6): two critics of 32-32-1 and an actor of 32-32-12, batch 16."""
    chosen = override(
        preset("sac", "paper-mujoco"), {"critic_width": 32, "actor_sizes": (32, 32)}
    ).settings
    seconds, products = updates.time_update(chosen, rounds=1, work=1.0, batch_size=16)
    assert seconds > 0
    critic, actor = 23 * 32 + 32 * 32 + 32, 17 * 32 + 32 * 32 + 32 * 12
    # Critic: target; loss forward and weights and hidden backward; actor's loss forward and
    # backward to the action. Actor: target; forward and backward.
    forward = 2 * 16 * (2 * 3 * critic + 2 * actor)
    backward = 2 * 16 * (2 * critic + actor)  # to weights
    to_inputs = 2 * 16 * (2 * (32 * 32 + 32) + 2 * critic + (32 * 32 + 32 * 12))
    work = sum(product.work * count for product, count in products.items())
    assert work == pytest.approx(forward + backward + to_inputs, rel=0.02)


def test_speed_of_an_update_is_its_work_over_its_time(monkeypatch):
    monkeypatch.setitem(updates.CASES, "tiny", ("ctrl-ucb-m", 16, 16, 5.0))
    speed = updates.update_speed("tiny", rounds=1, work=1.0)
    assert speed.gflops == pytest.approx(speed.gflop / speed.milliseconds * 1e3)
    assert speed.share == pytest.approx(speed.gflops / speed.peak_gflops)
