"""The paper's four-room maze: find the far corner by noisy moves that walls stop."""

import math
from typing import Any

import gymnasium
import numpy as np

from phimu.environments.maze_geometry import Maze
from phimu.errors import InputError

REWARDS = ("sparse", "dense")


class FourRooms(gymnasium.Env):
    """From the bottom right room to the top left one; y is up and the observation is the position.

    s' = s + top_speed * a * t + N(0, noise^2 I), stopped where the straight move meets a wall.
    The goal is reached by ending a move within `goal_radius` of it; passing through does not count.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    resolution = 256  # pixels per side of a rendered frame

    def __init__(
        self,
        size: float = 20.0,
        wall_thickness: float = 1.0,
        door_width: float = 2.5,
        door_positions: tuple[float, float] = (0.25, 0.75),
        top_speed: float = 2.0,
        time_interval: float = 1.0,
        noise: float = 1.0,
        start: tuple[float, float] | None = None,
        start_spread: float = 0.0,
        random_start: bool = False,
        goal: tuple[float, float] | None = None,
        goal_radius: float = 1.5,
        reward: str = "sparse",
        render_mode: str | None = None,
    ) -> None:
        self.maze = Maze(
            size, wall_thickness, door_width, door_positions, top_speed, time_interval, noise
        )
        start = (0.9 * size, 0.1 * size) if start is None else start
        goal = (0.1 * size, 0.9 * size) if goal is None else goal
        self.start = _floor("start", start, self.maze)
        self.goal = _floor("goal", goal, self.maze)
        if not 0 < goal_radius <= size / 2:
            raise InputError(f"goal_radius must lie in (0, {size / 2:g}], not {goal_radius!r}.")
        if not 0 <= start_spread < math.inf:
            raise InputError(
                f"start_spread must be a standard deviation of at least 0, not {start_spread!r}."
            )
        if reward not in REWARDS:
            raise InputError(f"reward must be one of {', '.join(REWARDS)}, not {reward!r}.")
        if render_mode not in (None, "rgb_array"):
            raise InputError(f"render_mode must be rgb_array or None, not {render_mode!r}.")
        self.goal_radius = float(goal_radius)
        self.start_spread = float(start_spread)
        self.random_start = random_start
        self.reward = reward
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0.0, float(size), (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.position = self.start  # in float64; only the observation is rounded
        self._background: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = self._first_position()
        return np.array(self.position, dtype=np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        maze = self.maze
        a_x, a_y = action.tolist() if isinstance(action, np.ndarray) else map(float, action)
        if not (math.isfinite(a_x) and math.isfinite(a_y)):
            raise InputError(f"action must be two finite numbers in [-1, 1], not [{a_x}, {a_y}].")
        noise_x, noise_y = self.np_random.standard_normal(2).tolist()
        # The order of products is that of Maze.transition, so that both round alike.
        dx = maze.top_speed * min(max(a_x, -1.0), 1.0) * maze.time_interval + maze.noise * noise_x
        dy = maze.top_speed * min(max(a_y, -1.0), 1.0) * maze.time_interval + maze.noise * noise_y
        self.position = maze.move_one(*self.position, dx, dy)
        distance = math.dist(self.position, self.goal)
        reached = distance <= self.goal_radius
        reward = 1.0 if reached else 0.0
        if self.reward == "dense":
            reward -= distance / maze.size
        return np.array(self.position, dtype=np.float32), reward, reached, False, {}

    def render(self) -> np.ndarray | None:
        """[resolution, resolution, 3] uint8, y up; None unless `render_mode` is rgb_array."""
        if self.render_mode is None:
            return None
        if self._background is None:
            self._background = self._draw_background()
        frame = self._background.copy()
        frame[self._disc(self.position, 0.02 * self.maze.size)] = (255, 140, 0)
        return frame

    def _first_position(self) -> tuple[float, float]:
        if self.random_start:
            while True:
                x, y = self.maze.uniform_positions(1, self.np_random)[0].tolist()
                if math.dist((x, y), self.goal) > self.goal_radius:
                    return x, y
        if self.start_spread:
            dx, dy = (self.start_spread * self.np_random.standard_normal(2)).tolist()
            return self.maze.move_one(*self.start, dx, dy)
        return self.start

    def _draw_background(self) -> np.ndarray:
        frame = np.full((self.resolution, self.resolution, 3), 255, dtype=np.uint8)
        frame[self._disc(self.start, 0.02 * self.maze.size)] = (255, 226, 190)
        frame[self._disc(self.goal, self.goal_radius)] = (60, 170, 80)
        pixels = self._pixel_positions().reshape(-1, 2)
        frame[self.maze.inside_wall(pixels).reshape(frame.shape[:2])] = 0
        return frame

    def _disc(self, centre: tuple[float, float], radius: float) -> np.ndarray:
        return np.linalg.norm(self._pixel_positions() - centre, axis=-1) <= radius

    def _pixel_positions(self) -> np.ndarray:
        """[rows, columns, 2] centres of the pixels; row 0 is the top."""
        ticks = (np.arange(self.resolution) + 0.5) * (self.maze.size / self.resolution)
        return np.stack(np.meshgrid(ticks, ticks[::-1]), axis=-1)


def _floor(name: str, point: tuple[float, float], maze: Maze) -> tuple[float, float]:
    """`point` as two floats, if it is on the floor."""
    try:
        x, y = (float(value) for value in point)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be two numbers (x, y), not {point!r}.") from None
    if not (math.isfinite(x) and math.isfinite(y)) or maze.inside_wall(np.array([[x, y]]))[0]:
        raise InputError(
            f"{name} must be on the floor of the maze, but ({x:g}, {y:g}) is inside a wall or "
            f"outside [0, {maze.size:g}]^2."
        )
    return x, y
