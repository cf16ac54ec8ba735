"""The tasks whose equations of motion fit on a page: Pendulum and CartPole."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from phimu.environments.checks import Reset, Step, check_choice, check_render_mode, finite_action
from phimu.environments.mbbl.rewards import known

State = tuple[float, ...]
_BLACK, _GREY, _ORANGE = (0, 0, 0), (190, 190, 190), (255, 140, 0)


class Line(NamedTuple):
    """A thick line with round ends, as far as a picture is concerned."""

    start: tuple[float, float]
    end: tuple[float, float]
    radius: float
    colour: tuple[int, int, int]


class Row(NamedTuple):
    """What makes equations of motion a task; the force is in the simulator's units."""

    time_interval: float
    first_bounds: State  # the first state is uniform within plus and minus these
    observation_bounds: State
    force: Callable[[float], float]  # of an action
    move: Callable[[State, float, float], State]  # of state, force and time interval
    reward: Callable[[State, float], float]
    observe: Callable[[State], State]
    draw: Callable[[State], list[Line]]  # within [-1.5, 1.5]^2, y up


def _swing(state: State, torque: float, time_interval: float) -> State:
    """A rod of mass 1 and length 1 with g = 10; the angle is 0 when it is upright."""
    angle, speed = state
    speed += (15.0 * math.sin(angle) + 3.0 * torque) * time_interval
    # The angle moves by the speed before it is clipped; Gymnasium's Pendulum-v1 clips first.
    return angle + speed * time_interval, min(max(speed, -8.0), 8.0)


def _hang(state: State, torque: float) -> float:
    """MBBL's sign: to hang down is paid, not to stand."""
    angle, speed = state
    lean = math.cos(angle) + 0.1 * abs(math.sin(angle))
    return -(lean + 0.1 * speed * speed + 0.001 * torque * torque)


def _draw_swing(state: State) -> list[Line]:
    tip = (-math.sin(state[0]), math.cos(state[0]))
    return [Line((0.0, 0.0), tip, 0.08, _ORANGE), Line((0.0, 0.0), (0.0, 0.0), 0.04, _BLACK)]


def _roll(state: State, force: float, time_interval: float) -> State:
    """A cart of mass 1 with a pole of mass 0.1 and half length 0.5, with g = 9.8."""
    x, x_speed, angle, angle_speed = state
    sin, cos = math.sin(angle), math.cos(angle)
    pull = (force + 0.05 * angle_speed * angle_speed * sin) / 1.1
    angle_acceleration = (9.8 * sin - cos * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
    x_acceleration = pull - 0.05 * angle_acceleration * cos / 1.1
    return (
        x + time_interval * x_speed,
        x_speed + time_interval * x_acceleration,
        angle + time_interval * angle_speed,
        angle_speed + time_interval * angle_acceleration,
    )


def _draw_roll(state: State) -> list[Line]:
    """Seen from the cart, as no rail stops it; the ground has a mark per unit."""
    x, _, angle, _ = state
    ground = [Line((-2.0, -0.5), (2.0, -0.5), 0.01, _BLACK)]
    marks = [round(x) + step - x for step in range(-2, 3)]
    ground += [Line((mark, -0.6), (mark, -0.5), 0.01, _BLACK) for mark in marks]
    tip = (math.sin(angle), -0.35 + math.cos(angle))
    cart = Line((-0.2, -0.4), (0.2, -0.4), 0.1, _GREY)
    return [*ground, cart, Line((0.0, -0.35), tip, 0.05, _ORANGE)]


TASKS: dict[str, Row] = {
    "Pendulum": Row(
        time_interval=0.05,
        first_bounds=(math.pi, 1.0),
        observation_bounds=(1.0, 1.0, 8.0),
        force=lambda action: min(max(2.0 * action, -2.0), 2.0),
        move=_swing,
        reward=_hang,
        observe=lambda state: (math.cos(state[0]), math.sin(state[0]), state[1]),
        draw=_draw_swing,
    ),
    "CartPole": Row(
        time_interval=0.02,
        first_bounds=(0.05,) * 4,
        observation_bounds=(math.inf,) * 4,
        force=lambda action: 10.0 if action > 0 else -10.0,
        move=_roll,
        reward=lambda state, force: math.cos(state[2]) - 0.01 * state[0] * state[0],
        observe=lambda state: state,
        draw=_draw_roll,
    ),
}


class Classic(gymnasium.Env):
    """The task of a row of `TASKS`; float64 observations, never terminated.

    `raw_actions` is there because the other tasks of MBBL have it: here both ways are the same.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    resolution = 256  # pixels per side of a rendered frame

    def __init__(
        self, task: str, raw_actions: bool = False, render_mode: str | None = None
    ) -> None:
        check_choice("task", task, TASKS)
        check_render_mode(render_mode)
        self.row = TASKS[task]
        self.known = known(task)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1 / self.row.time_interval)}
        bounds = np.array(self.row.observation_bounds)
        self.observation_space = gymnasium.spaces.Box(-bounds, bounds, dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.state: State = (0.0,) * len(self.row.first_bounds)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        bounds = np.array(self.row.first_bounds)
        self.state = tuple(self.np_random.uniform(-bounds, bounds).tolist())
        return np.array(self.row.observe(self.state)), {}

    def step(self, action: np.ndarray) -> Step:
        row = self.row
        force = row.force(finite_action(action, 1).item())
        reward = row.reward(self.state, force)
        self.state = row.move(self.state, force, row.time_interval)
        return np.array(row.observe(self.state)), reward, False, False, {}

    def render(self) -> np.ndarray | None:
        """[resolution, resolution, 3] uint8; None unless `render_mode` is rgb_array."""
        if self.render_mode is None:
            return None
        frame = np.full((self.resolution, self.resolution, 3), 255, dtype=np.uint8)
        ticks = ((np.arange(self.resolution) + 0.5) / self.resolution - 0.5) * 3.0
        pixels = np.stack(np.meshgrid(ticks, ticks[::-1]), axis=-1)  # row 0 is the top
        for line in self.row.draw(self.state):
            frame[_distance(pixels, line) <= line.radius] = line.colour
        return frame


def _distance(pixels: np.ndarray, line: Line) -> np.ndarray:
    """[rows, columns] of each pixel to the nearest point of the line."""
    start, along = np.array(line.start), np.subtract(line.end, line.start)
    length = float(along @ along)
    share = ((pixels - start) @ along / length).clip(0.0, 1.0) if length else 0.0
    nearest = start + np.multiply.outer(share, along)
    return np.linalg.norm(pixels - nearest, axis=-1)
