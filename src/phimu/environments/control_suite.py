"""The DeepMind Control Suite as `dmc/<domain>-<task>-v0`, with the sparse versions of two tasks."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from phimu.errors import InputError

# Written down, because asking dm_control takes seconds. The tests compare it with the suite.
TASKS = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": (
        *("balance", "balance_sparse", "swingup", "swingup_sparse"),
        *("two_poles", "three_poles"),
    ),
    "cheetah": ("run",),
    "dog": ("stand", "walk", "trot", "run", "fetch"),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("upright", "swim"),
    "hopper": ("stand", "hop"),
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
    "humanoid_CMU": ("stand", "walk", "run"),
    "lqr": ("lqr_2_1", "lqr_6_2"),
    "manipulator": ("bring_ball", "bring_peg", "insert_ball", "insert_peg"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "quadruped": ("walk", "run", "escape", "fetch"),
    "reacher": ("easy", "hard"),
    "stacker": ("stack_2", "stack_4"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}
SPARSE = (("cheetah", "run"), ("walker", "run"))
SPARSE_BELOW = 0.25  # of the sparse versions
CAMERAS = {("dog", "fetch"): 2}  # where the suite's first one does not show the body
LONGEST = 1_000  # control steps, where the suite sets no limit; elsewhere this is its own


def registrations() -> Iterator[tuple[str, dict[str, Any]]]:
    """(Gymnasium id, constructor arguments) of every task."""
    for domain, tasks in TASKS.items():
        for task in tasks:
            camera = CAMERAS.get((domain, task), 0)
            yield f"dmc/{domain}-{task}-v0", {"domain": domain, "task": task, "camera": camera}
    for domain, task in SPARSE:
        arguments = {"domain": domain, "task": task, "sparse_below": SPARSE_BELOW}
        yield f"dmc/{domain}-{task}-sparse-v0", arguments


class ControlSuite(gymnasium.Env):
    """One task of the suite: its observations flat in its own order, its actions as [-1, 1].

    A decision lasts `action_repeat` control steps and earns the sum of their rewards, of which
    those below `sparse_below` count as 0, unless it is 0. The time limit, after `horizon` control
    steps, truncates; an end with discount 0 terminates. Where controls have no limits (lqr), they
    are the actions themselves.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(
        self,
        domain: str,
        task: str,
        action_repeat: int = 1,
        sparse_below: float = 0.0,
        render_mode: str | None = None,
        camera: int = 0,
        width: int = 320,
        height: int = 240,
    ) -> None:
        _check_options(domain, task, action_repeat, sparse_below, render_mode, width, height)
        self._suite = _load(domain, task)
        self.physics = self._suite.physics
        if not -1 <= camera < self.physics.model.ncam:
            raise InputError(
                f"camera must be from -1 (free) to {self.physics.model.ncam - 1} in {domain}, "
                f"not {camera!r}."
            )
        self.action_repeat = action_repeat
        self.sparse_below = sparse_below
        self.horizon = self._control_steps()
        self.render_mode = render_mode
        self.camera, self.width, self.height = camera, width, height
        seconds = self._suite.control_timestep() * action_repeat
        self.metadata = self.metadata | {"render_fps": max(1, round(1 / seconds))}
        self._middle, self._half_width = _action_range(self._suite.action_spec())
        size = sum(math.prod(spec.shape) for spec in self._suite.observation_spec().values())
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, self._middle.shape, np.float32)
        self.decisions = self.simulator_steps = 0  # in this episode
        self._over = True
        self._renderer: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        # Anew at each reset, so that an episode depends on nothing that happened before it.
        self._suite.task.random.seed(int(self.np_random.integers(2**32)))
        first = self._suite.reset()
        self.decisions = self.simulator_steps = 0
        self._over = False
        if self.physics.model.nhfield:  # a new terrain, of which the renderer holds the last one
            self._close_renderer()
        return _flat(first.observation), self._counts()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise gymnasium.error.ResetNeeded("The episode is over: call reset before step.")
        control = self._control(action)
        total, terminated, truncated = 0.0, False, False
        for _ in range(self.action_repeat):
            last = self._suite.step(control)
            self.simulator_steps += 1
            reward = float(last.reward)
            if not self.sparse_below or reward >= self.sparse_below:
                total += reward
            terminated = bool(last.last() and last.discount == 0.0)
            truncated = not terminated and (last.last() or self.simulator_steps >= self.horizon)
            if terminated or truncated:
                break
        self.decisions += 1
        self._over = terminated or truncated
        return _flat(last.observation), total, terminated, truncated, self._counts()

    def render(self) -> np.ndarray | None:
        """[height, width, 3] uint8; None unless `render_mode` is rgb_array."""
        if self.render_mode is None:
            return None
        import mujoco

        if self._renderer is None:
            self._renderer = self._make_renderer()
        look = mujoco.MjvOption()
        look.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False
        self._renderer.update_scene(self.physics.data.ptr, self.camera, look)
        return self._renderer.render()

    def close(self) -> None:
        self._close_renderer()

    def _control(self, action: np.ndarray) -> np.ndarray:
        """An action in the units of the simulator."""
        flat = np.asarray(action, dtype=np.float64)
        if flat.shape != self._middle.shape or not np.isfinite(flat).all():
            raise InputError(
                f"action must be {self._middle.size} finite numbers in [-1, 1], not {action!r}."
            )
        return self._middle + self._half_width * np.clip(flat, -1.0, 1.0)

    def _control_steps(self) -> int:
        limit = self._suite._step_limit
        return LONGEST if math.isinf(limit) else math.ceil(limit)

    def _counts(self) -> dict[str, Any]:
        return {"decisions": self.decisions, "simulator_steps": self.simulator_steps}

    def _make_renderer(self) -> Any:
        """MuJoCo's own, because `_import_suite` switches that of dm_control off."""
        import mujoco

        model = self.physics.model.ptr
        model.vis.global_.offwidth, model.vis.global_.offheight = self.width, self.height
        try:
            return mujoco.Renderer(model, self.height, self.width)
        except Exception as error:  # each OpenGL has its own
            raise RuntimeError(
                f"MuJoCo finds no OpenGL to draw with ({error}): start Python with MUJOCO_GL=egl "
                f"or MUJOCO_GL=osmesa."
            ) from error

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def _load(domain: str, task: str) -> Any:
    """The suite's environment. One seed, because lqr draws its springs and dampers when it is made.

    They belong to the task, so they are the same in each process.
    """
    suite = _import_suite()
    import mujoco

    # What the compiler says of the suite's own model files, nobody here can act on.
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        made = suite.load(domain, task, task_kwargs={"random": 0})
    finally:
        mujoco.set_mju_user_warning(before)
    # quadruped-escape asks for an OpenGL context at each reset, which would make one.
    own = type(made.physics)
    made.physics.__class__ = type(own.__name__, (own,), {"contexts": None})
    return made


def _import_suite() -> Any:
    """`dm_control.suite` without OpenGL, which it would look for when imported, screen or not."""
    import dm_control  # noqa: F401  # first, so that a missing one is what the message names

    try:
        import mujoco  # with the user's OpenGL, for `render`
    except ImportError:
        raise
    except Exception:  # that OpenGL cannot be loaded, which only pictures need
        with _variable("MUJOCO_GL", "disabled"):
            import mujoco  # noqa: F401
    with _variable("MUJOCO_GL", "disabled"):
        from dm_control import suite
    return suite


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _flat(observation: Mapping[str, Any]) -> np.ndarray:
    """A new float64 array of all entries in the suite's order; a scalar is one number."""
    return np.concatenate([np.ravel(value) for value in observation.values()], dtype=np.float64)


def _action_range(spec: Any) -> tuple[np.ndarray, np.ndarray]:
    """(middle, half width) of the controls; 0 and 1 where one has no limits."""
    # MuJoCo writes "no limit" as 1e10.
    limited = (np.abs(spec.minimum) < 1e9) & (np.abs(spec.maximum) < 1e9)
    low = np.where(limited, spec.minimum, -1.0)
    high = np.where(limited, spec.maximum, 1.0)
    return (low + high) / 2, (high - low) / 2


def _check_options(
    domain: str,
    task: str,
    action_repeat: int,
    sparse_below: float,
    render_mode: str | None,
    width: int,
    height: int,
) -> None:
    if task not in TASKS.get(domain, ()):
        known = ", ".join(TASKS.get(domain, TASKS))
        what = f"task of the domain {domain}" if domain in TASKS else "domain"
        given = task if domain in TASKS else domain
        raise InputError(f"There is no {what} called {given!r}: use one of {known}.")
    if not isinstance(action_repeat, int) or action_repeat < 1:
        raise InputError(f"action_repeat must be a whole number from 1, not {action_repeat!r}.")
    if not 0 <= sparse_below < math.inf:
        raise InputError(f"sparse_below must be a reward of at least 0, not {sparse_below!r}.")
    if render_mode not in (None, "rgb_array"):
        raise InputError(f"render_mode must be rgb_array or None, not {render_mode!r}.")
    if not (0 < width <= 4096 and 0 < height <= 4096):
        raise InputError(f"width and height must be from 1 to 4096, not {width} and {height}.")
