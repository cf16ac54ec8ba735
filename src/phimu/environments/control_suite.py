"""The DeepMind Control Suite as `dmc/<domain>-<task>-v0`, with the sparse versions of two tasks."""

import contextlib
import math
import os
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from phimu.environments.checks import Reset, Step, check_render_mode, finite_action
from phimu.environments.control_rewards import known
from phimu.environments.making import quiet_model_compiler
from phimu.errors import InputError

LONGEST = 1_000  # control steps, where the suite sets no limit; elsewhere this is its own


class ControlSuite(gymnasium.Env):
    """One task of the suite: its observations flat in its own order, its actions as [-1, 1].

    A decision lasts `action_repeat` control steps and earns the sum of their rewards, of which
    those below `sparse_below` count as 0, unless it is 0. The time limit, after `horizon` control
    steps, truncates; an end with discount 0 terminates. Where controls have no limits (lqr), they
    are the actions themselves.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    width, height = 320, 240  # of a rendered frame

    def __init__(
        self,
        domain: str,
        task: str,
        action_repeat: int = 1,
        sparse_below: float = 0.0,
        render_mode: str | None = None,
        camera: int = 0,
    ) -> None:
        if not isinstance(action_repeat, int) or action_repeat < 1:
            raise InputError(f"action_repeat must be a whole number from 1, not {action_repeat!r}.")
        if not 0 <= sparse_below < math.inf:
            raise InputError(f"sparse_below must be a reward of at least 0, not {sparse_below!r}.")
        check_render_mode(render_mode)
        self._suite = _load(domain, task)
        self.physics = self._suite.physics
        if not -1 <= camera < self.physics.model.ncam:
            raise InputError(
                f"camera must be from -1 (free) to {self.physics.model.ncam - 1} in {domain}, "
                f"not {camera!r}."
            )
        self.action_repeat = action_repeat
        self.sparse_below = sparse_below
        # Of several control steps only the last is seen.
        self.known = known(f"{domain}-{task}", sparse_below) if action_repeat == 1 else None
        limit = self._suite._step_limit
        self.horizon = LONGEST if math.isinf(limit) else math.ceil(limit)
        self.render_mode = render_mode
        self.camera = camera
        seconds = self._suite.control_timestep() * action_repeat
        self.metadata = self.metadata | {"render_fps": max(1, round(1 / seconds))}
        self._middle, self._half_width = _action_range(self._suite.action_spec())
        size = sum(math.prod(spec.shape) for spec in self._suite.observation_spec().values())
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, self._middle.shape, np.float32)
        self.decisions = self.simulator_steps = 0  # in this episode
        self._over = True
        self._renderer: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        # Anew at each reset, so that an episode depends on nothing that happened before it.
        self._suite.task.random.seed(int(self.np_random.integers(2**32)))
        first = self._suite.reset()
        self.decisions = self.simulator_steps = 0
        self._over = False
        if self.physics.model.nhfield:  # a new terrain, of which the renderer holds the last one
            self.close()
        return _flat(first.observation), self._counts()

    def step(self, action: np.ndarray) -> Step:
        if self._over:
            raise gymnasium.error.ResetNeeded("The episode is over: call reset before step.")
        numbers = finite_action(action, self._middle.size)
        control = self._middle + self._half_width * np.clip(numbers, -1.0, 1.0)
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

        if self._renderer is None:  # MuJoCo's own: `_import_suite` switches dm_control's off
            model = self.physics.model.ptr
            model.vis.global_.offwidth, model.vis.global_.offheight = self.width, self.height
            try:
                self._renderer = mujoco.Renderer(model, self.height, self.width)
            except Exception as error:  # each OpenGL has its own
                raise RuntimeError(
                    f"MuJoCo finds no OpenGL to draw with ({error}): start Python with "
                    f"MUJOCO_GL=egl or MUJOCO_GL=osmesa."
                ) from error
        look = mujoco.MjvOption()
        look.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False
        self._renderer.update_scene(self.physics.data.ptr, self.camera, look)
        return self._renderer.render()

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _counts(self) -> dict[str, Any]:
        return {"decisions": self.decisions, "simulator_steps": self.simulator_steps}


def _load(domain: str, task: str) -> Any:
    """The suite's environment."""
    suite = _import_suite()
    tasks = suite.TASKS_BY_DOMAIN
    if task not in tasks.get(domain, ()):
        what, given = "domain", domain
        if domain in tasks:
            what, given = f"task of the domain {domain}", task
        known = ", ".join(tasks.get(domain, tasks))
        raise InputError(f"There is no {what} called {given!r}: use one of {known}.")
    with quiet_model_compiler():  # one seed: lqr draws its springs here, and they are the task's
        made = suite.load(domain, task, task_kwargs={"random": 0})
    # quadruped-escape asks for an OpenGL context at each reset, which would make one.
    own = type(made.physics)
    made.physics.__class__ = type(own.__name__, (own,), {"contexts": None})
    return made


def _import_suite() -> Any:
    """`dm_control.suite` without OpenGL, which it would look for when imported, screen or not."""
    import dm_control  # noqa: F401  # first, so that a missing one is what the message names

    with contextlib.suppress(Exception):  # that OpenGL cannot be loaded, which only pictures need
        import mujoco  # with the user's OpenGL, for `render`
    own = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = "disabled"
    try:
        import mujoco  # noqa: F401
        from dm_control import suite
    finally:
        del os.environ["MUJOCO_GL"]
        if own is not None:
            os.environ["MUJOCO_GL"] = own
    return suite


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
