"""The tasks on MuJoCo bodies: the bodies are Gymnasium's, the rest is a row of one table."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import mujoco
import numpy as np

from phimu.environments.checks import Reset, Step, check_choice, check_render_mode, finite_action
from phimu.environments.mbbl.rewards import known

_First = Callable[[np.random.Generator, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

# The bodies "fingertip" and "target" of reacher.xml: looking them up by name is slow.
_FINGERTIP, _TARGET = 3, 4


def _run_at(joint: int, height: float) -> Callable[[mujoco.MjData, float], float]:
    """Run with the torso, whose height is qpos[joint], at `height`."""

    def reward(data: mujoco.MjData, effort: float) -> float:
        off = data.qpos.item(joint) - height
        return data.qvel.item(0) - 3.0 * off * off - 0.1 * effort

    return reward


def _run_upright(data: mujoco.MjData, effort: float) -> float:
    return 0.25 / 0.015 * data.qvel.item(0) - 0.1 * effort


def _run_upright_softly(data: mujoco.MjData, effort: float) -> float:
    forces = data.cfrc_ext.ravel()
    return _run_upright(data, effort) - min(5e-7 * float(forces @ forces), 10.0)


def _reach(data: mujoco.MjData, effort: float) -> float:
    return -math.dist(data.xpos[_FINGERTIP].tolist(), data.xpos[_TARGET].tolist()) - effort


def _balance(data: mujoco.MjData, effort: float) -> float:
    angle = data.qpos.item(1)
    return -angle * angle


def _always(data: mujoco.MjData) -> bool:
    return True


def _state_without(count: int) -> Callable[[mujoco.MjData], np.ndarray]:
    """Positions and velocities, without the first `count` positions: where the body is."""
    return lambda data: np.concatenate((data.qpos[count:], data.qvel))


def _state_and_forces(data: mujoco.MjData) -> np.ndarray:
    tables = (data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)
    return np.concatenate((data.qpos[2:], data.qvel, *(table.ravel() for table in tables)))


def _arm_and_goal(data: mujoco.MjData) -> np.ndarray:
    angles, goal = data.qpos[:2], data.qpos[2:]
    way = data.xpos[_FINGERTIP] - data.xpos[_TARGET]
    return np.concatenate((np.cos(angles), np.sin(angles), goal, data.qvel[:2], way))


def _noise(scale: float, normal_velocities: bool = False) -> _First:
    """Uniform in [-scale, scale]; velocities normal with this deviation where asked."""

    def first(
        rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        qpos = qpos + rng.uniform(-scale, scale, qpos.size)
        if normal_velocities:
            return qpos, qvel + scale * rng.standard_normal(qvel.size)
        return qpos, qvel + rng.uniform(-scale, scale, qvel.size)

    return first


def _goal_in_a_square(
    rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    arm = qpos[:2] + rng.uniform(-0.1, 0.1, 2)
    # Gymnasium's goals lie in a disc; in Gym's first version the test for it never failed one.
    goal = rng.uniform(-0.2, 0.2, 2)
    speeds = qvel[:2] + rng.uniform(-0.005, 0.005, 2)
    return np.concatenate((arm, goal)), np.concatenate((speeds, np.zeros(2)))


class Row(NamedTuple):
    """What makes a body a task."""

    body: str  # Gymnasium's id
    reward: Callable[[mujoco.MjData, float], float]  # of the state and |action|^2
    observe: Callable[[mujoco.MjData], np.ndarray]
    first: _First  # the first positions and velocities, from those of the model
    alive: Callable[[mujoco.MjData], bool] = _always
    bonus: float = 0.0  # added to the reward of a state that is alive
    terminates: bool = False  # when no longer alive
    forces: bool = False  # whether contact forces are read, which cost time to compute
    wide_left_hip: bool = False
    arguments: Mapping[str, Any] = MappingProxyType({})  # of the body


_HOPPER = Row(
    "Hopper-v5",
    _run_at(1, 1.3),
    _state_without(1),
    _noise(0.005),
    alive=lambda data: data.qpos.item(1) > 0.7 and abs(data.qpos.item(2)) < 0.2,
    bonus=1.0,
    terminates=True,
)
# Gymnasium's later model of the walker has more friction under the right foot.
_WALKER = _HOPPER._replace(
    body="Walker2d-v5",
    arguments={"xml_file": "walker2d.xml"},
    alive=lambda data: 0.8 < data.qpos.item(1) < 2.0 and abs(data.qpos.item(2)) < 1.0,
)
_ANT = Row(
    "Ant-v5",
    _run_at(2, 0.57),
    _state_without(2),
    _noise(0.1, normal_velocities=True),
    alive=lambda data: 0.2 <= data.qpos.item(2) <= 1.0,
    bonus=1.0,
    terminates=True,
)
_HUMANOID = Row(
    "Humanoid-v5",
    _run_upright_softly,
    _state_and_forces,
    _noise(0.01),
    alive=lambda data: 1.0 <= data.qpos.item(2) <= 2.0,
    bonus=5.0,
    terminates=True,
    forces=True,
    wide_left_hip=True,
)
_SLIM_HUMANOID = _HUMANOID._replace(reward=_run_upright, observe=_state_without(2), forces=False)

TASKS: dict[str, Row] = {
    "HalfCheetah": Row(
        "HalfCheetah-v5",
        lambda data, effort: data.qvel.item(0) - 0.1 * effort,
        _state_without(1),
        _noise(0.1, normal_velocities=True),
    ),
    "Reacher": Row("Reacher-v5", _reach, _arm_and_goal, _goal_in_a_square),
    "IPendulum": Row("InvertedPendulum-v5", _balance, _state_without(0), _noise(0.01)),
    "HopperET": _HOPPER,
    "WalkerET": _WALKER,
    "AntET": _ANT,
    "HumanoidET": _HUMANOID,
    "SHumanoidET": _SLIM_HUMANOID,
    "Hopper": _HOPPER._replace(alive=_always, terminates=False),
    "Walker": _WALKER._replace(alive=_always, terminates=False),
    "Ant": _ANT._replace(alive=_always, terminates=False),
    "SHumanoid": _SLIM_HUMANOID._replace(terminates=False),
}


class Body(gymnasium.Env):
    """The task of a row of `TASKS`; float64 observations, not clipped.

    Actions in [-1, 1] are stretched to the range of the motors, and the reward counts them in the
    motors' units. With `raw_actions` they go to the motors and into the reward as they are, which
    is how MBBL's random policy was run.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(
        self, task: str, raw_actions: bool = False, render_mode: str | None = None
    ) -> None:
        check_choice("task", task, TASKS)
        check_render_mode(render_mode)
        self.row = TASKS[task]
        self.known = known(task, raw_actions)
        self.raw_actions = raw_actions
        self.render_mode = render_mode
        self.simulator = _simulator(self.row, render_mode)
        self._model, self._data = self.simulator.model, self.simulator.data
        self._frame_skip = self.simulator.frame_skip
        self.metadata = {**self.metadata, "render_fps": self.simulator.metadata["render_fps"]}
        low, high = self.simulator.model.actuator_ctrlrange.T
        self._middle, self._half_width = (low + high) / 2, (high - low) / 2
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, low.shape, np.float32)
        observation = self.set_state(self.simulator.init_qpos, self.simulator.init_qvel)
        self.observation_space = gymnasium.spaces.Box(
            -np.inf, np.inf, observation.shape, np.float64
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        simulator = self.simulator
        qpos, qvel = self.row.first(self.np_random, simulator.init_qpos, simulator.init_qvel)
        return self.set_state(qpos, qvel), {}

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """The observation at these positions and velocities, at rest otherwise."""
        model, data = self._model, self._data
        # Also forgets where the constraint solver last was, which it would otherwise start from.
        mujoco.mj_resetData(model, data)
        self.simulator.set_state(qpos, qvel)
        if self.row.forces:
            mujoco.mj_rnePostConstraint(model, data)
        return self.row.observe(data)

    def step(self, action: np.ndarray) -> Step:
        row, model, data = self.row, self._model, self._data
        control = finite_action(action, self._middle.size)
        if not self.raw_actions:
            control = np.minimum(np.maximum(control, -1.0), 1.0)
            control = self._middle + self._half_width * control
        reward = row.reward(data, float(control @ control))
        if row.alive(data):
            reward += row.bonus
        data.ctrl[:] = control
        mujoco.mj_step(model, data, self._frame_skip)
        if row.forces:
            mujoco.mj_rnePostConstraint(model, data)
        terminated = row.terminates and not row.alive(data)
        return row.observe(data), reward, terminated, False, {}

    def render(self) -> np.ndarray | None:
        """Gymnasium's picture of the body; None unless `render_mode` is rgb_array."""
        return None if self.render_mode is None else self.simulator.render()

    def close(self) -> None:
        self.simulator.close()


def _simulator(row: Row, render_mode: str | None) -> Any:
    """Gymnasium's environment of the body, of which only the simulation and the camera are used."""
    simulator: Any = gymnasium.make(row.body, render_mode=render_mode, **row.arguments)
    simulator = simulator.unwrapped
    if row.wide_left_hip:
        # The model that MBBL used lets the left hip swing further than the right one; Gym levelled
        # the two later, to 110 degrees.
        simulator.model.joint("left_hip_y").range[:] = np.deg2rad((-120.0, 20.0))
    return simulator
