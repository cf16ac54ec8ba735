"""Pictures come from a child process, whatever its OpenGL does, and show the given episode."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import phimu.environments  # noqa: F401  # registers the maze
from phimu.environments import rendering
from phimu.environments.task import open_task
from phimu.errors import InputError

MAZE = "phimu/FourRooms-v0"
needs_suite = pytest.mark.skipif(
    importlib.util.find_spec("dm_control") is None, reason="the extra dmc is not installed"
)
needs_video = pytest.mark.skipif(
    importlib.util.find_spec("imageio_ffmpeg") is None, reason="the extra video is not installed"
)


def with_open_gl(draw, *arguments):
    """What `draw` returns; a machine without OpenGL skips the test."""
    try:
        return draw(*arguments)
    except InputError as error:
        if "No picture could be drawn" not in str(error):
            raise
        pytest.skip(f"OpenGL is missing: {error}")


def episode(task_id, options, seed, steps):
    """(actions, return) of a random beginning."""
    task = open_task(task_id, **options)
    task.reset(seed)
    shape = (steps, task.spec.action_dim)
    actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    return actions, sum(task.step(action)[1] for action in actions)


def frames_of(path):
    import imageio.v2 as imageio

    with imageio.get_reader(path) as reader:
        return reader.get_meta_data()["fps"], [frame.astype(float) for frame in reader.iter_data()]


class Children:
    """Stands in for subprocess.run: each child ends with the next (exit code, last words)."""

    def __init__(self, *ends):
        self.ends, self.variables = list(ends), []

    def __call__(self, command, env, **_):
        self.variables.append(env)
        code, words = self.ends.pop(0)
        if code == 0:
            np.save(Path(command[-1]).parent / "0.npy", np.zeros((2, 2, 3), np.uint8))
        return subprocess.CompletedProcess(command, code, "", words)


@pytest.fixture
def children(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setenv("PYOPENGL_PLATFORM", "egl")

    def ending(*ends):
        made = Children(*ends)
        monkeypatch.setattr(subprocess, "run", made)
        return made

    return ending


@pytest.fixture
def module(tmp_path, monkeypatch):
    """An importable module with an environment of its own, which cannot be drawn."""
    source = """
        import gymnasium, numpy as np
        from gymnasium.spaces import Box

        class Plain(gymnasium.Env):
            metadata = {"render_modes": ["rgb_array"]}
            observation_space, action_space = Box(-1, 1, (1,)), Box(-1, 1, (1,))
            resets = 0

            def __init__(self, draws=False, render_mode=None):
                self.draws, self.render_mode = draws, render_mode

            def reset(self, *, seed=None, options=None):
                self.resets += 1
                return np.zeros(1, np.float32), {}

            def step(self, action):
                # The second episode of an object is unlike its first.
                return np.zeros(1, np.float32), float(self.resets), False, False, {}

            def render(self):
                return np.zeros((64, 64, 3), np.uint8) if self.draws else None

        gymnasium.register("Plain-v0", Plain, disable_env_checker=True)
    """
    (tmp_path / "plain_module.py").write_text(textwrap.dedent(source))
    inherited = os.environ.get("PYTHONPATH")
    paths = [str(tmp_path), *([inherited] if inherited else [])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return "plain_module:Plain-v0"


# Which OpenGL


def test_one_open_gl_after_the_other(children):
    ended = children((-6, ""), (0, ""))
    assert rendering.snapshots([MAZE])[0].shape == (2, 2, 3)
    assert [env["MUJOCO_GL"] for env in ended.variables] == ["egl", "osmesa"]
    assert all("PYOPENGL_PLATFORM" not in env for env in ended.variables)


@pytest.mark.parametrize(
    ("own", "order"),
    [("osmesa", ["osmesa", "egl"]), ("glfw", ["glfw", "egl", "osmesa"]), ("", ["egl", "osmesa"])],
)
def test_the_users_own_comes_first(own, order, children, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", own)
    ended = children(*[(1, "Traceback\n  ...\nAttributeError: no glGetError\n")] * len(order))
    with pytest.raises(InputError) as raised:
        rendering.snapshots([MAZE])
    assert [env["MUJOCO_GL"] for env in ended.variables] == order
    said = str(raised.value)
    assert "\n" not in said
    for word in ("libegl1", "libosmesa6", "AttributeError: no glGetError"):
        assert word in said


def test_elsewhere_mujoco_chooses(children, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    ended = children((0, ""))
    rendering.snapshots([MAZE])
    assert "MUJOCO_GL" not in ended.variables[0]


def test_bad_input_is_not_tried_again(children):
    children((2, "a warning\nThere is no such task.\n"))
    with pytest.raises(InputError, match=r"^There is no such task\.$"):
        rendering.snapshots([MAZE])


# Real children


def test_snapshots_of_tasks_that_need_no_open_gl():
    (frame,) = rendering.snapshots([MAZE])
    env = gymnasium.make(MAZE, render_mode="rgb_array")
    env.reset(seed=0)
    assert (frame.shape, frame.dtype) == ((256, 256, 3), np.uint8)
    assert (frame != env.render()).any()  # some steps later
    assert (frame == (60, 170, 80)).all(axis=-1).sum() > 500  # the goal


def test_unknown_tasks_are_said():
    with pytest.raises(InputError, match="'dmc/cheeta-run-v0' is not a registered Gymnasium id"):
        rendering.snapshots(["dmc/cheeta-run-v0"])


def test_a_task_that_cannot_be_drawn_is_said(module):
    with pytest.raises(InputError, match="Plain-v0 cannot be drawn: its render returns None"):
        rendering.snapshots([module])


@needs_suite
def test_snapshots_with_open_gl():
    names = ["dmc/cheetah-run-v0", "dmc/quadruped-escape-v0", MAZE]
    cheetah, terrain, maze = with_open_gl(rendering.snapshots, names)
    assert cheetah.shape == terrain.shape == (240, 320, 3)
    assert maze.shape == (256, 256, 3)
    for frame in (cheetah, terrain):
        assert frame.std() > 10
    assert np.abs(cheetah.astype(float) - terrain).mean() > 10


@needs_video
def test_a_film_shows_the_episode(tmp_path):
    actions, total = episode(MAZE, {"noise": 0.5}, 3, 12)
    out = tmp_path / "new" / "maze.mp4"
    rendering.film(out, MAZE, {"noise": 0.5}, 3, actions, total)
    assert list(out.parent.iterdir()) == [out]
    rate, frames = frames_of(out)
    assert (rate, len(frames)) == (10, 13)
    env = gymnasium.make(MAZE, noise=0.5, render_mode="rgb_array")
    env.reset(seed=3)
    drawn = [env.render()]
    for action in actions:
        env.step(action)
        drawn.append(env.render())
    for frame, expected in zip(frames, drawn, strict=True):
        dot = (expected == (255, 140, 0)).all(axis=-1)
        assert np.abs(frame[dot].mean(axis=0) - (255, 140, 0)).max() < 40  # the codec blurs


@needs_video
@needs_suite
def test_a_film_with_open_gl(tmp_path):
    name, options, out = "dmc/walker-run-v0", {"action_repeat": 2}, tmp_path / "walker.mp4"
    actions, total = episode(name, options, 7, 30)
    with_open_gl(rendering.film, out, name, options, 7, actions, total)
    rate, frames = frames_of(out)
    assert (rate, len(frames)) == (20, 31)  # 0.025 s, twice
    assert frames[0].shape == (240, 320, 3)
    assert np.abs(frames[0] - frames[-1]).max() > 50  # it fell


@needs_video
@pytest.mark.parametrize(("total", "said"), [(5.0, None), (4.0, "did not repeat its episode")])
def test_a_film_of_another_episode_is_refused(total, said, module, tmp_path):
    out, actions = tmp_path / "films" / "out.mp4", np.zeros((5, 1), np.float32)
    arguments = (out, module, {"draws": True}, 0, actions, total)
    if said is None:
        rendering.film(*arguments)
        assert out.exists()
    else:
        with pytest.raises(InputError, match=said):
            rendering.film(*arguments)
        assert list(out.parent.iterdir()) == []
