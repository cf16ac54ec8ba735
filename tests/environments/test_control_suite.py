"""The Control Suite at Gymnasium's border: seeds, actions, counts and ends."""

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from phimu.environments import control_suite
from phimu.environments.control_suite import ControlSuite
from phimu.environments.task import open_task
from phimu.errors import InputError

needs_suite = pytest.mark.skipif(
    importlib.util.find_spec("dm_control") is None, reason="the extra dmc is not installed"
)
EVERY = [name for name in gymnasium.registry if name.startswith("dmc/")]
PAPER = [
    "dmc/cheetah-run-v0",
    "dmc/cheetah-run-sparse-v0",
    "dmc/walker-run-v0",
    "dmc/walker-run-sparse-v0",
    "dmc/humanoid-run-v0",
    "dmc/hopper-hop-v0",
]
# A new terrain at each reset; other gears at each reset; other springs whenever it is made.
SHIFTY = ["dmc/quadruped-escape-v0", "dmc/point_mass-hard-v0", "dmc/lqr-lqr_6_2-v0"]
REST = [pytest.param(name, marks=pytest.mark.slow) for name in EVERY if name not in PAPER + SHIFTY]
ALL = [*PAPER, *SHIFTY, *REST]


def make(name, **kwargs) -> ControlSuite:
    env = gymnasium.make(name, **kwargs).unwrapped
    assert isinstance(env, ControlSuite)
    return env


def actions_for(env, steps, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *env.action_space.shape))


def episode(env, seed, actions):
    """Everything that the environment says, as one array per step."""
    observation, info = env.reset(seed=seed)
    said = [np.append(observation, list(info.values()))]
    for action in actions:
        observation, *rest, info = env.step(action)
        assert observation.dtype == np.float64
        said.append(np.concatenate([observation, rest, list(info.values())]))
        assert np.isfinite(said[-1]).all()
    return said


def assert_same(some, others):
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one, other)


# The table of tasks


@needs_suite
def test_the_table_is_the_suites():
    suite = control_suite._import_suite()
    kwargs = [gymnasium.spec(name).kwargs for name in EVERY]
    pairs = [(made["domain"], made["task"]) for made in kwargs if "sparse_below" not in made]
    assert sorted(pairs) == sorted(suite.ALL_TASKS)
    sparse = {name for name in EVERY if "sparse_below" in gymnasium.spec(name).kwargs}
    assert sparse == {"dmc/cheetah-run-sparse-v0", "dmc/walker-run-sparse-v0"}


def test_ids():
    assert {*PAPER, *SHIFTY, "dmc/ball_in_cup-catch-v0", "dmc/humanoid_CMU-run-v0"} <= set(EVERY)
    assert all(gymnasium.spec(name).max_episode_steps is None for name in EVERY)


def test_registering_imports_no_simulator():
    code = "import sys, phimu.environments; assert not {'mujoco', 'dm_control'} & {*sys.modules}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_dm_control_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(InputError, match=r'needs the package dm_control.* "phimu\[dmc\]"'):
        open_task("dmc/cheetah-run-v0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            {"domain": "cheeta"},
            "no domain called 'cheeta': use one of acrobot, ",
            marks=needs_suite,
        ),
        pytest.param(
            {"task": "hop"},
            r"no task of the domain cheetah called 'hop': use one of run\.",
            marks=needs_suite,
        ),
        ({"action_repeat": 0}, "action_repeat must be a whole number from 1, not 0"),
        ({"action_repeat": 1.5}, "action_repeat"),
        ({"sparse_below": -1.0}, "sparse_below"),
        ({"sparse_below": np.nan}, "sparse_below"),
        ({"render_mode": "human"}, "render_mode"),
        pytest.param({"camera": 2}, "camera must be from -1 .* to 1 in cheetah", marks=needs_suite),
    ],
)
def test_bad_options_are_named(change, said):
    with pytest.raises(InputError, match=said):
        ControlSuite(**{"domain": "cheetah", "task": "run"} | change)


# The border


@needs_suite
@pytest.mark.parametrize("name", ALL)
def test_gymnasiums_checker_is_content(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It would rather have bounds, but positions and velocities have none.
        warnings.filterwarnings("ignore", ".*Box observation space m..imum value is -?infinity.*")
        check_env(make(name), skip_render_check=True)


@needs_suite
@pytest.mark.parametrize("name", ALL)
def test_a_seed_and_actions_fix_the_episode_to_the_bit(name):
    env = make(name)
    actions = actions_for(env, 60)
    first = episode(env, 5, actions)
    other = episode(env, 6, actions[:30])
    episode(env, None, actions[::-1])
    assert_same(first, episode(env, 5, actions))
    assert_same(first, episode(make(name), 5, actions))
    assert (first[0] != other[0]).any()


@needs_suite
def test_a_seed_fixes_the_episodes_after_it_as_well():
    some, others = make("dmc/walker-run-v0"), make("dmc/walker-run-v0")
    episode(others, 9, [])
    for seed in (4, None, None):
        assert_same(episode(some, seed, []), episode(others, seed, []))
    assert (some.reset()[0] != some.reset()[0]).any()


@needs_suite
def test_an_episode_is_the_same_in_another_process_and_needs_no_open_gl():
    names = ["dmc/cheetah-run-v0", *SHIFTY]
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import json\n"
        f"from {Path(__file__).stem} import numbers; print(json.dumps(numbers({names!r})))"
    )
    for gl in ("disabled", "no such OpenGL"):
        command, variables = [sys.executable, "-c", code], os.environ | {"MUJOCO_GL": gl}
        done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == numbers(names)


def numbers(names):
    """Of an episode's beginning in each task."""
    envs = [make(name) for name in names]
    return [np.concatenate(episode(env, 3, actions_for(env, 20))).tolist() for env in envs]


@needs_suite
def test_importing_leaves_the_environment_variables_alone():
    before = dict(os.environ)
    make("dmc/cheetah-run-v0")
    assert os.environ == before


@needs_suite
def test_actions_are_rescaled_to_the_simulators():
    env = make("dmc/quadruped-walk-v0")
    spec = env._suite.action_spec()
    assert spec.maximum.max() > 1 > spec.maximum.min()
    env.reset(seed=0)
    for action, control in ((-1, spec.minimum), (1, spec.maximum), (7, spec.maximum)):
        env.step(np.full(12, action, np.float32))
        np.testing.assert_allclose(env.physics.data.ctrl, control, rtol=1e-12)
    env.step(np.full(12, 0.5))
    np.testing.assert_allclose(env.physics.data.ctrl, 0.25 * spec.minimum + 0.75 * spec.maximum)
    for bad in (np.full(12, np.nan), np.zeros(11)):
        with pytest.raises(InputError, match="action must be 12 finite numbers"):
            env.step(bad)


@needs_suite
def test_unlimited_controls_are_the_actions():
    env = make("dmc/lqr-lqr_6_2-v0")
    env.reset(seed=0)
    env.step(np.array([0.25, -3.0]))
    np.testing.assert_array_equal(env.physics.data.ctrl, [0.25, -1.0])


@needs_suite
def test_a_goal_reached_terminates_and_costs_stay_negative():
    env = make("dmc/lqr-lqr_2_1-v0")
    assert env.horizon == 1000
    env.reset(seed=0)
    with env.physics.reset_context():
        env.physics.data.qpos[:] = [3.0, 0.0]
    _, reward, terminated, truncated, _ = env.step(np.zeros(1))
    # 1 - |q|^2 / 2 is the suite's reward without control
    assert reward == pytest.approx(1 - env.physics.data.qpos @ env.physics.data.qpos / 2)
    assert reward < -3
    assert (terminated, truncated) == (False, False)
    with env.physics.reset_context():
        env.physics.data.qpos[:] = 0.0
    _, reward, terminated, truncated, _ = env.step(np.zeros(1))
    assert (reward, terminated, truncated) == (1.0, True, False)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(1))


# Counts and the end


@needs_suite
@pytest.mark.parametrize(("repeat", "decisions"), [(1, 1000), (3, 334)])
@pytest.mark.parametrize("name", ["dmc/cheetah-run-v0", "dmc/lqr-lqr_2_1-v0"])
def test_the_time_limit_truncates(name, repeat, decisions):
    env = make(name, action_repeat=repeat)
    _, info = env.reset(seed=0)
    assert info == {"decisions": 0, "simulator_steps": 0}
    # Away from the state that ends lqr.
    action = np.ones(env.action_space.shape, np.float32)
    for count in range(1, decisions + 1):
        _, _, terminated, truncated, info = env.step(action)
        assert info == {"decisions": count, "simulator_steps": min(count * repeat, env.horizon)}
        assert (terminated, truncated) == (False, count == decisions)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action)
    assert env.reset()[1] == {"decisions": 0, "simulator_steps": 0}


@needs_suite
@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_whole_episodes_last_as_long_as_said(name):
    env = make(name)
    assert env.horizon == 1000
    said = episode(env, 0, [])
    actions = actions_for(env, 1000)
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        assert np.isfinite([*observation, reward]).all()
        if terminated or truncated:
            break
    assert truncated != terminated
    assert info["simulator_steps"] == 1000 or terminated
    assert_same(said, episode(env, 0, []))
