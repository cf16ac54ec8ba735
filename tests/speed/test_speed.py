"""What the benchmark counts is what an update does, and what it times is a run of its own."""

from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from phimu.agents import preset
from phimu.data.replay import Replay
from phimu.errors import InputError
from phimu.settings import override
from phimu.speed import loop, updates
from phimu.speed.updates import Product


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
    assert found[Product(1, 5, 4)] == 3  # as often as the loop goes round
    assert Product(3, 5, 4).work == 120


def test_work_of_an_update_is_that_of_its_layers():
    """SAC on (17 + 6): two critics of 32-32-1 and an actor of 32-32-12, batch 16."""
    changes = {"critic_width": 32, "actor_sizes": (32, 32), "batch_size": 16}
    chosen = override(preset("sac", "paper-mujoco"), changes)
    seconds, products = updates.time_update(chosen, rounds=1, work=1.0)
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
    monkeypatch.setitem(updates.CASES, "tiny", updates.Case("ctrl-ucb-m", 16, 16, 5.0))
    monkeypatch.setattr(updates, "PEAK_WORK", 1e6)
    speed = updates.update_speed("tiny", rounds=1, work=1.0)
    assert speed.gflops == pytest.approx(speed.gflop / speed.milliseconds * 1e3)
    assert speed.share == pytest.approx(speed.gflops / speed.peak_gflops)


TINY = loop.Job(
    ("sac", 16, 16, 0.0),
    learning_starts=10,
    batch_size=8,
    buffer_size=100,
    fill=150,
    warm=2,
    steps=5,
    work=1.0,
    saves=2,
)


def test_a_loop_is_timed_in_a_process_of_its_own():
    pytest.importorskip("mujoco", reason="the extra mujoco is not installed")
    ballast = bytearray(b"1") * 1_000_000_000  # what the parent holds is not the child's
    found = loop.run_ours(TINY)
    del ballast
    assert found["steps_per_second"] > 0
    assert found["update_share"] > 0
    assert found["checkpoint_share"] > 0
    assert 0 < found["first_update_seconds"] < 300
    assert 50 < found["memory_mb"] < 1_000


def test_a_loop_that_fails_says_why_in_one_sentence():
    with pytest.raises(InputError, match="'Absent-v0' is not a registered Gymnasium id") as caught:
        loop.run_ours(TINY._replace(task="Absent-v0"))
    assert "\n" not in str(caught.value)


def test_a_buffer_is_filled_with_random_transitions():
    replay = Replay(updates.SPEC, 20, 0)
    updates.fill(replay, 30)
    assert len(replay) == 20
    assert all(column.std() > 0 for column in replay.rows[:4])
    assert abs(replay.rows.action).max() <= 1
