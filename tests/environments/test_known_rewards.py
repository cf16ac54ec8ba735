"""Rewards and ends as JAX functions, against what the environments pay on random transitions."""

import gymnasium
import jax
import numpy as np
import pytest

import phimu.environments  # noqa: F401  (registers the tasks)
from phimu.environments.catalogue import catalogue
from phimu.environments.control_rewards import _TASKS
from phimu.environments.task import Task, open_task
from phimu.types import Known, Spec, TaskSpec

ROWS = 1_000
MBBL = [entry.task for entry in catalogue() if entry.task.startswith("mbbl/")]
CONTROL = [f"dmc/{name}-v0" for name in _TASKS]
SPARSE = ["dmc/cheetah-run-sparse-v0", "dmc/walker-run-sparse-v0"]


def transitions(task: Task, rows: int = ROWS):
    """(s, a, r, s', terminated) of random actions, from many first states."""
    rng, found, observation = np.random.default_rng(0), [], None
    for number in range(rows):
        if observation is None or number % 25 == 0:
            observation = task.reset(number)
        if number % 3 == 0:
            action = rng.uniform(-1, 1, task.spec.action_dim).astype(np.float32)
        after, reward, terminated, truncated = task.step(action)
        found.append((observation, action, np.float32(reward), after, terminated))
        observation = None if terminated or truncated else after
    return [np.stack(column) for column in zip(*found, strict=True)]


def assert_known(name: str, known: Known, rows, share: float = 1.0):
    s, a, reward, after, terminated = rows
    found = np.asarray(jax.jit(known.reward)(s, a, after))
    assert found.shape == reward.shape
    near = np.isclose(found, reward, rtol=1e-4, atol=2e-4)
    assert near.mean() >= share, (name, np.flatnonzero(~near)[:5], found[~near], reward[~near])
    ends = np.zeros(len(s), bool) if known.terminated is None else known.terminated(after)
    np.testing.assert_array_equal(np.asarray(ends), terminated)


@pytest.mark.parametrize("name", MBBL)
@pytest.mark.parametrize("raw", [False, True])
def test_mbbl_pays_what_is_known(name, raw):
    task = open_task(name, raw_actions=raw)
    known = task.spec.known
    assert known is not None
    rows = transitions(task, ROWS if not raw else 100)
    assert_known(name, known, rows)
    assert name.removesuffix("-v0").endswith("ET") == (known.terminated is not None)
    if known.terminated is not None and not raw:
        assert rows[-1].any()  # some of them fell


@pytest.mark.parametrize("name", [*CONTROL, *SPARSE])
def test_the_control_suite_pays_what_is_known(name):
    pytest.importorskip("dm_control")
    task = open_task(name)
    assert task.spec.known is not None
    # On the very edge of a target, float32 may fall on the other side.
    assert_known(name, task.spec.known, transitions(task), share=0.999)


def test_a_known_function_takes_any_leading_axes():
    known = open_task("mbbl/HopperET-v0").spec.known
    s, a = np.zeros((2, 3, 11), np.float32), np.zeros((2, 3, 3), np.float32)
    assert known.reward(s, a, s).shape == (2, 3)
    assert known.terminated(s).shape == (2, 3)


def test_reachers_candidates_with_other_distances_are_paid_otherwise():
    """A norm over the whole batch, as in one published cost, would pay all of them the same."""
    known = open_task("mbbl/Reacher-v0").spec.known
    s = np.zeros((2, 11), np.float32)
    s[1, 8] = 0.3
    near, far = known.reward(s, np.zeros((2, 2), np.float32), s)
    np.testing.assert_allclose([near, far], [0.0, -0.3], atol=1e-6)


def test_a_frozen_reacher_is_paid_what_was_computed_for_it():
    """Return of zero actions over resets: -12.25 on average, deviation 5.15."""
    task = open_task("mbbl/Reacher-v0")
    first = np.stack([task.reset(seed) for seed in range(2_000)])
    paid = 50 * np.asarray(task.spec.known.reward(first, np.zeros((2_000, 2)), first))
    assert abs(paid.mean() + 12.25) < 0.4
    assert abs(paid.std() - 5.15) < 0.4


# Where nothing is known


def test_what_a_wrapper_may_have_changed_is_not_known():
    env = gymnasium.make("mbbl/CartPole-v0")
    assert open_task(env).spec.known is not None
    changed = gymnasium.wrappers.TransformReward(env, lambda reward: 2 * reward)
    assert open_task(changed).spec.known is None


def test_other_tasks_and_repeated_actions_are_not_known():
    assert open_task("Pendulum-v1").spec.known is None
    assert open_task("phimu/FourRooms-v0").spec.known is None
    pytest.importorskip("dm_control")
    assert open_task("dmc/cheetah-run-v0", action_repeat=2).spec.known is None
    assert open_task("dmc/lqr-lqr_2_1-v0").spec.known is None


def test_two_openings_of_a_task_know_the_same_functions():
    """What is compiled for one then serves the other."""
    one, other = (open_task("mbbl/CartPole-v0").spec.known for _ in range(2))
    assert one is other


def test_a_spec_with_more_is_the_same_spec():
    known = Known(lambda s, a, after: s[..., 0])
    spec = TaskSpec(3, 1).knowing(known)
    assert spec == Spec(3, 1)
    assert hash(spec) == hash(Spec(3, 1))
    assert (spec.known, Spec(3, 1).known) == (known, None)


@pytest.mark.parametrize(
    ("name", "position", "velocity"),
    [
        ("acrobot-swingup_sparse", 0.15, 1.0),
        ("cartpole-swingup_sparse", 0.15, 1.0),
        ("pendulum-swingup", 0.3, 1.0),
        ("finger-spin", 0.1, 30.0),
        ("point_mass-easy", 0.03, 1.0),
        ("cheetah-run", 0.3, 10.0),
        ("cheetah-run-sparse", 0.3, 10.0),
        ("hopper-hop", 0.1, 4.0),
        ("walker-run", 0.3, 10.0),
        ("walker-run-sparse", 0.3, 10.0),
    ],
)
def test_rewards_that_random_actions_do_not_meet(name, position, velocity):
    """The suite's own reward at states that are put there."""
    pytest.importorskip("dm_control")
    env = open_task(f"dmc/{name}-v0").env.unwrapped
    env.reset(seed=0)
    physics, suite, rng = env.physics, env._suite.task, np.random.default_rng(0)
    seen, paid = [], []
    for _ in range(200):
        with physics.reset_context():
            physics.data.qpos[:] = rng.uniform(-position, position, physics.model.nq)
            physics.data.qvel[:] = rng.uniform(-velocity, velocity, physics.model.nv)
        physics.set_control(np.zeros(physics.model.nu))
        observation = suite.get_observation(physics).values()
        seen.append(np.concatenate([np.ravel(each) for each in observation]).astype(np.float32))
        reward = float(suite.get_reward(physics))
        paid.append(reward if reward >= env.sparse_below else 0.0)
    seen, action = np.stack(seen), np.zeros((200, physics.model.nu), np.float32)
    found = np.asarray(env.known.reward(seen, action, seen))
    np.testing.assert_allclose(found, paid, rtol=1e-4, atol=1e-5)
    assert np.count_nonzero(paid) > 0
