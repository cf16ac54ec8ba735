"""The paper's four-room maze, and a longer one: find the far corner by moves that walls stop."""

import math
from typing import Any, get_args

import gymnasium
import numpy as np

from phimu.environments.checks import Reset, Step, check_choice, check_render_mode
from phimu.environments.maze_geometry import Maze, Walls
from phimu.errors import InputError


class FourRooms(gymnasium.Env):
    """From the bottom right to the top left; y is up and the observation is the position.

    `walls` are the cross of the paper's maze, or those of a serpentine: five corridors, a way of
    some 80 units that a random walk does not find.
    s' = s + top_speed * a * t + N(0, noise^2 I), stopped where the straight move meets a wall.
    The goal is reached by ending a move within `goal_radius` of it; passing through does not count.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    resolution = 256  # pixels per side of a rendered frame

    def __init__(
        self,
        top_speed: float = 2.0,
        noise: float = 1.0,
        start: tuple[float, float] = (18.0, 2.0),
        random_start: bool = False,
        goal: tuple[float, float] = (2.0, 18.0),
        goal_radius: float = 1.5,
        reward: str = "sparse",
        walls: Walls = "cross",
        render_mode: str | None = None,
    ) -> None:
        if not (isinstance(top_speed, int | float | np.number) and 0 < top_speed < math.inf):
            raise InputError(f"top_speed must be a positive number, not {top_speed!r}.")
        if not (isinstance(noise, int | float | np.number) and 0 <= noise < math.inf):
            raise InputError(f"noise must be a standard deviation of at least 0, not {noise!r}.")
        check_choice("walls", walls, get_args(Walls))
        self.maze = Maze(top_speed=top_speed, noise=noise, walls=walls)
        self.start = _floor("start", start, self.maze)
        self.goal = _floor("goal", goal, self.maze)
        if not 0 < goal_radius <= self.maze.size / 2:
            raise InputError(f"goal_radius must lie in (0, 10], not {goal_radius!r}.")
        check_choice("reward", reward, ("sparse", "dense"))
        check_render_mode(render_mode)
        self.goal_radius = float(goal_radius)
        self.random_start = random_start
        self.reward = reward
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0.0, self.maze.size, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.position = self.start  # in float64; only the observation is rounded

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.position = self._first_position()
        return np.array(self.position, dtype=np.float32), {}

    def step(self, action: np.ndarray) -> Step:
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
        ticks = (np.arange(self.resolution) + 0.5) * (self.maze.size / self.resolution)
        pixels = np.stack(np.meshgrid(ticks, ticks[::-1]), axis=-1)  # row 0 is the top
        frame = np.full((self.resolution, self.resolution, 3), 255, dtype=np.uint8)

        def disc(centre: tuple[float, float], radius: float) -> np.ndarray:
            return np.linalg.norm(pixels - centre, axis=-1) <= radius

        frame[disc(self.start, 0.02 * self.maze.size)] = (255, 226, 190)
        frame[disc(self.goal, self.goal_radius)] = (60, 170, 80)
        frame[self.maze.inside_wall(pixels.reshape(-1, 2)).reshape(frame.shape[:2])] = 0
        frame[disc(self.position, 0.02 * self.maze.size)] = (255, 140, 0)
        return frame

    def _first_position(self) -> tuple[float, float]:
        if self.random_start:
            while True:
                x, y = self.maze.uniform_positions(1, self.np_random)[0].tolist()
                if math.dist((x, y), self.goal) > self.goal_radius:
                    return x, y
        return self.start


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
