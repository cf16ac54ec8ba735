"""MBBL's tasks begin, repeat and refuse as they should, and score as the benchmark does."""

import math
import subprocess
import sys
import textwrap
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from phimu.environments.task import open_task
from phimu.errors import InputError

CLASSIC = ("Pendulum", "CartPole")
# name -> (observation_dim, action_dim, max_episode_steps, render_fps)
SIZES = {
    "HalfCheetah": (17, 6, 1000, 20),
    "Reacher": (11, 2, 50, 50),
    "HumanoidET": (376, 17, 1000, 67),
    "Pendulum": (3, 1, 200, 20),
    "IPendulum": (4, 1, 100, 25),
    "AntET": (27, 8, 1000, 20),
    "HopperET": (11, 3, 1000, 125),
    "SHumanoidET": (45, 17, 1000, 67),
    "CartPole": (4, 1, 200, 50),
    "WalkerET": (17, 6, 1000, 125),
    "Hopper": (11, 3, 1000, 125),
    "Walker": (17, 6, 1000, 125),
    "Ant": (27, 8, 1000, 20),
    "SHumanoid": (45, 17, 1000, 67),
}


def make(name, **kwargs):
    """The environment within its time limit; quietly, which `gymnasium.make` alone is not."""
    if name not in CLASSIC:
        pytest.importorskip("mujoco", reason="the bodies need the extra mujoco")
    return open_task(f"mbbl/{name}-v0", **kwargs).env


def episode_return(env, policy, seed):
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total, over = total + reward, terminated or truncated
    return total


@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_limits(name):
    env = make(name)
    observation_dim, action_dim, steps, fps = SIZES[name]
    assert env.observation_space.shape == (observation_dim,)
    assert env.observation_space.dtype == np.float64
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (action_dim,), np.float32)
    assert (env.spec.max_episode_steps, env.spec.namespace) == (steps, "mbbl")
    assert env.metadata == {"render_modes": ["rgb_array"], "render_fps": fps}


@pytest.mark.parametrize("name", SIZES)
def test_gymnasium_checks_pass_without_a_warning(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo's compiler leaves a log where it is
    env = make(name).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Gymnasium says so of its own bodies too: nothing bounds a speed.
        warnings.filterwarnings("ignore", ".*Box observation space m.*imum value is -?infinity")
        check_env(env, skip_render_check=name not in CLASSIC)  # bodies: in a process of its own


def steps(env, seed, count=60):
    """Everything that `count` steps after a reset return, as bytes."""
    rng = np.random.default_rng(seed)
    seen = [env.reset(seed=seed)[0]]
    for _ in range(count):
        observation, reward, terminated, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape))
        seen += [observation, np.array([reward, terminated])]
    return b"".join(part.tobytes() for part in seen)


@pytest.mark.parametrize("name", SIZES)
def test_seed_and_actions_fix_the_episode_to_the_bit(name):
    fresh, used = make(name).unwrapped, make(name).unwrapped
    first = steps(fresh, seed=3)
    assert steps(used, seed=4) != first
    assert steps(used, seed=3) == first
    assert steps(fresh, seed=3) == first


@pytest.mark.parametrize("name", ["HalfCheetah", "AntET", "HopperET", "WalkerET", "HumanoidET"])
def test_a_reset_leaves_nothing_of_the_simulation_before(name):
    fresh, used = make(name).unwrapped, make(name).unwrapped
    steps(used, seed=4)
    fresh.reset(seed=3)
    used.reset(seed=3)
    for field in ("qacc_warmstart", "qacc", "ctrl", "cfrc_ext", "qfrc_applied", "xpos", "cacc"):
        left, right = (getattr(env.simulator.data, field) for env in (fresh, used))
        assert left.tobytes() == right.tobytes(), field
    assert (fresh.simulator.data.time, used.simulator.data.time) == (0, 0)


@pytest.mark.parametrize(
    ("name", "controller", "at_least"),
    [
        ("CartPole", lambda seen: np.dot([0.1, 0.3, 1.0, 0.3], seen), 199.0),
        ("IPendulum", lambda seen: np.dot([0.5, 3.0, 0.6, 0.8], seen), -0.01),
        ("Pendulum", lambda seen: -seen[2], 160.0),  # the torque is twice the action
    ],
)
def test_a_simple_controller_comes_near_the_optimum(name, controller, at_least):
    env = make(name)

    def policy(observation):
        return np.clip([controller(observation)], -1.0, 1.0)

    assert np.mean([episode_return(env, policy, seed) for seed in range(20)]) >= at_least


@pytest.mark.parametrize(
    ("name", "middle", "positions", "velocities"),
    [
        ("HopperET", [1.25, 0, 0, 0, 0], 0.005, 0.005),
        ("WalkerET", [1.25, *[0] * 7], 0.005, 0.005),
        ("SHumanoidET", [1.4, 1, *[0] * 20], 0.01, 0.01),
        ("IPendulum", [0, 0], 0.01, 0.01),
        ("HalfCheetah", [0] * 8, 0.1, None),
        ("AntET", [0.75, 1, *[0] * 11], 0.1, None),
        ("Pendulum", [0], math.pi, 1.0),
        ("CartPole", [0, 0], 0.05, 0.05),
    ],
)
def test_first_states(name, middle, positions, velocities):
    env = make(name).unwrapped
    seen = np.array([env.reset(seed=seed)[0] for seed in range(100)])
    if name == "Pendulum":
        seen = np.stack([np.arctan2(seen[:, 1], seen[:, 0]), seen[:, 2]], axis=1)
    if name == "CartPole":
        seen = seen[:, [0, 2, 1, 3]]
    noise = np.abs(seen[:, : len(middle)] - np.array([middle]))
    assert 0.9 * positions < noise.max() <= positions
    assert noise.max(axis=0).min() > 0.8 * positions
    speeds = seen[:, len(middle) :]
    if velocities is None:
        assert speeds.std() == pytest.approx(0.1, rel=0.1)
        assert np.abs(speeds).max() > 0.25  # a normal distribution, not a uniform one
    else:
        assert 0.9 * velocities < np.abs(speeds).max() <= velocities


def test_the_goals_of_reacher_fill_a_square():
    env = make("Reacher").unwrapped
    seen = np.array([env.reset(seed=seed)[0] for seed in range(200)])
    goals = seen[:, 4:6]
    assert 0.19 < np.abs(goals).max() <= 0.2
    assert np.mean(np.linalg.norm(goals, axis=1) > 0.2) == pytest.approx(1 - math.pi / 4, abs=0.1)
    angles = np.arctan2(seen[:, 2:4], seen[:, :2])
    assert 0.09 < np.abs(angles).max() <= 0.1
    assert 0.0045 < np.abs(seen[:, 6:8]).max() <= 0.005
    np.testing.assert_array_equal(env.simulator.data.qvel[2:], 0)


def test_models_are_those_of_the_benchmark():
    model = make("WalkerET").unwrapped.simulator.model
    assert (model.geom("foot_geom").friction[0], model.geom("foot_left_geom").friction[0]) == (
        0.9,
        1.9,
    )
    for name in ("HumanoidET", "SHumanoidET", "SHumanoid"):
        model = make(name).unwrapped.simulator.model
        np.testing.assert_allclose(np.rad2deg(model.joint("left_hip_y").range), [-120, 20])
        np.testing.assert_allclose(np.rad2deg(model.joint("right_hip_y").range), [-110, 20])


@pytest.mark.parametrize(("name", "dim"), [("Pendulum", 1), ("HopperET", 3)])
def test_bad_input_is_named(name, dim):
    env = make(name).unwrapped
    env.reset(seed=0)
    for action in (np.full(dim, np.nan), np.full(dim, np.inf), np.zeros(dim + 1), np.float64(0)):
        with pytest.raises(InputError, match=rf"action must be {dim} finite number"):
            env.step(action)
    with pytest.raises(InputError, match=r"task must be one of .*, not 'Jumper'"):
        type(env)("Jumper")
    with pytest.raises(InputError, match="render_mode must be rgb_array or None, not 'ansi'"):
        type(env)(name, render_mode="ansi")


def test_pictures_of_the_classic_tasks():
    pendulum = make("Pendulum", render_mode="rgb_array").unwrapped
    pendulum.state = (math.pi, 0.0)  # hangs down
    frame = pendulum.render()
    assert (frame.shape, frame.dtype) == ((256, 256, 3), np.uint8)
    assert frame[200, 128].tolist() == [255, 140, 0]
    assert frame[60, 128].tolist() == [255, 255, 255]
    pole = make("CartPole", render_mode="rgb_array").unwrapped
    pole.state = (0.0, 0.0, 0.0, 0.0)  # stands
    frame = pole.render()
    assert frame[90, 128].tolist() == [255, 140, 0]
    pole.state = (0.5, 0.0, 0.0, 0.0)
    assert (pole.render() != frame).any()  # the marks on the ground have moved
    assert make("CartPole").unwrapped.render() is None


def run_script(script, tmp_path, **variables):
    environment = {"PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu", **variables}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)


def test_pictures_of_the_bodies(tmp_path):
    pytest.importorskip("mujoco")
    # In a process of its own: MuJoCo chooses how to draw when first imported, and may abort.
    start = 'import os; os.environ["MUJOCO_GL"] = "egl"; from mujoco.egl import GLContext as C\n'
    if run_script(start + "C(64, 64).free()", tmp_path).returncode:
        pytest.skip("needs EGL to draw without a screen")
    script = """
        from phimu.environments.task import open_task
        for name in ("HalfCheetah", "Reacher", "HumanoidET", "WalkerET"):
            env = open_task(f"mbbl/{name}-v0", render_mode="rgb_array").env
            env.reset(seed=0)
            frame = env.render()
            assert frame.shape == (480, 480, 3) and frame.std() > 1, name
            for _ in range(2):
                env.close()
    """
    done = run_script(start + textwrap.dedent(script), tmp_path)
    assert done.returncode == 0, done.stderr


def test_opening_a_body_says_nothing_and_leaves_no_log(tmp_path):
    pytest.importorskip("mujoco")
    script = 'from phimu.environments.task import open_task; open_task("mbbl/HalfCheetah-v0")'
    done = run_script(script, tmp_path, MUJOCO_GL="disabled")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_only_the_bodies_need_mujoco(monkeypatch):
    monkeypatch.delitem(sys.modules, "phimu.environments.mbbl.bodies", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # makes `import` fail
    with pytest.raises(InputError, match=r'package mujoco; .* pip install "phimu\[mujoco\]"'):
        open_task("mbbl/HopperET-v0")
    assert open_task("mbbl/Pendulum-v0").suite == "mbbl"


# Mean and standard deviation of the return of a random policy, and over how many episodes: measured
# once with a separate program on MuJoCo 3.17.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mean", "deviation", "episodes"),
    [
        ("HalfCheetah", -315.9, 108.8, 25),
        ("Reacher", -43.1, 4.3, 100),
        ("HumanoidET", 57.6, 74.6, 100),
        ("Pendulum", -187.1, 232.2, 100),
        ("IPendulum", -201.9, 17.0, 100),
        ("AntET", 97.5, 150.1, 25),
        ("HopperET", 15.1, 13.5, 100),
        ("SHumanoidET", 60.9, 76.7, 100),
        ("CartPole", 38.6, 35.9, 100),
        ("WalkerET", -2.8, 4.6, 100),
    ],
)
def test_returns_of_a_random_policy(name, mean, deviation, episodes):
    env = make(name, raw_actions=True)
    rng = np.random.default_rng(0)

    def policy(observation):
        return rng.uniform(-1.0, 1.0, env.action_space.shape)

    returns = [episode_return(env, policy, seed) for seed in range(100)]
    error = math.hypot(np.std(returns, ddof=1) / 10, deviation / math.sqrt(episodes))
    assert np.mean(returns) == pytest.approx(mean, abs=3 * error)
