"""Walls and motion of the four-room maze, as pure NumPy functions in float64.

Positions are [N, 2], x to the right and y up. Walls are open rectangles and their faces are floor,
so an agent that was stopped stands exactly on a face and may leave it or slide along it.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from phimu.errors import InputError

Rectangle = tuple[float, float, float, float]  # left, bottom, right, top


@dataclass(frozen=True)
class Maze:
    """A square cut into four rooms by a cross of two walls, with a doorway in each of its arms."""

    size: float = 20.0
    wall_thickness: float = 1.0
    door_width: float = 2.5
    door_positions: tuple[float, float] = (0.25, 0.75)  # fractions of `size` along each wall
    top_speed: float = 2.0
    time_interval: float = 1.0
    noise: float = 1.0  # standard deviation of the displacement, per axis

    rectangles: tuple[Rectangle, ...] = field(init=False, repr=False, compare=False)
    low: np.ndarray = field(init=False, repr=False, compare=False)  # [walls, 2]
    high: np.ndarray = field(init=False, repr=False, compare=False)  # [walls, 2]

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_doors(self)
        walls = np.array(_cross(self), dtype=np.float64)
        object.__setattr__(self, "rectangles", tuple(tuple(wall) for wall in walls.tolist()))
        object.__setattr__(self, "low", walls[:, :2].copy())
        object.__setattr__(self, "high", walls[:, 2:].copy())

    def inside_wall(self, position: np.ndarray) -> np.ndarray:
        """[N] bool: strictly inside a wall of the cross, or outside the square."""
        point = np.asarray(position, dtype=np.float64)
        in_each = (point[:, None, :] > self.low) & (point[:, None, :] < self.high)  # per axis
        outside = (point < 0.0) | (point > self.size)
        return np.any(in_each.all(axis=-1), axis=-1) | np.any(outside, axis=-1)

    def distance_to_wall(self, position: np.ndarray, outer: bool = True) -> np.ndarray:
        """[N] Euclidean distance to the cross, and to the outer boundary if `outer`; 0 inside."""
        point = np.asarray(position, dtype=np.float64)
        gap = np.maximum(self.low - point[:, None, :], point[:, None, :] - self.high)
        distance = np.linalg.norm(np.maximum(gap, 0.0), axis=-1).min(axis=-1)
        if outer:
            to_boundary = np.minimum(point, self.size - point).min(axis=-1)
            distance = np.minimum(distance, np.maximum(to_boundary, 0.0))
        return distance

    def uniform_positions(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """[n, 2] draws, uniform over the floor, by rejection."""
        kept, count = [np.empty((0, 2))], 0
        while count < n:
            drawn = rng.uniform(0.0, self.size, size=(n - count + 8, 2))
            kept.append(drawn[~self.inside_wall(drawn)])
            count += len(kept[-1])
        return np.concatenate(kept)[:n]

    def transition(
        self, position: np.ndarray, action: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """[N, 2] draws of s' = s + top_speed * a * t + N(0, noise^2 I), stopped by walls."""
        velocity = self.top_speed * np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        displacement = velocity * self.time_interval
        displacement = displacement + self.noise * rng.standard_normal(displacement.shape)
        return self.move(position, displacement)

    def move(self, position: np.ndarray, displacement: np.ndarray) -> np.ndarray:
        """[N, 2] ends of straight moves, each stopped where it first meets a wall.

        A position inside a wall (float32 rounding can do this) starts from the nearest face.
        """
        start = self._out_of_walls(np.clip(np.asarray(position, np.float64), 0.0, self.size))
        delta = np.asarray(displacement, dtype=np.float64)
        end = start + delta
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            time, face, axis = self._first_hit(start, delta, end)
            stopped = start + time[:, None] * delta
        rows = np.arange(len(start))
        stopped[rows, axis] = face
        result = np.where(np.isfinite(time)[:, None], stopped, end)
        return self._out_of_walls(np.clip(result, 0.0, self.size))

    def _first_hit(
        self, start: np.ndarray, delta: np.ndarray, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """When (inf: never), at which face and on which axis each segment meets a wall; each [N].

        A segment meets an open rectangle if their bounding boxes overlap and it has entered both
        slabs before it leaves either. The columns are the walls of the cross, then the boundary in
        x and y; the first of equal times counts, as in `move_one`.
        """
        s, d, e = start[:, None, :], delta[:, None, :], end[:, None, :]
        overlap = ((np.minimum(s, e) < self.high) & (np.maximum(s, e) > self.low)).all(axis=-1)
        near, far = np.where(d > 0, self.low, self.high), np.where(d > 0, self.high, self.low)
        enter = np.where(d == 0, -np.inf, (near - s) / d)  # [N, walls, 2]
        leave = np.where(d == 0, np.inf, (far - s) / d)
        entry = enter.max(axis=-1)
        time = np.where(overlap & (entry < leave.min(axis=-1)), np.minimum(entry, 1.0), np.inf)
        axis = (enter[..., 1] > enter[..., 0]).astype(int)
        face = np.take_along_axis(near, axis[..., None], axis=-1)[..., 0]

        boundary = np.where(delta > 0, self.size, 0.0)  # [N, 2]
        leaves = (end < 0.0) | (end > self.size)
        out = np.where(leaves, np.minimum((boundary - start) / delta, 1.0), np.inf)

        times = np.concatenate([time, out], axis=-1)
        faces = np.concatenate([face, boundary], axis=-1)
        axes = np.concatenate([axis, np.broadcast_to([0, 1], boundary.shape)], axis=-1)
        rows, first = np.arange(len(start)), times.argmin(axis=-1)
        return times[rows, first], faces[rows, first], axes[rows, first]

    def _out_of_walls(self, position: np.ndarray) -> np.ndarray:
        """Put positions that rounding left inside a wall onto its nearest face."""
        position = position.copy()
        for low, high in zip(self.low, self.high, strict=True):
            inside = np.flatnonzero(((position > low) & (position < high)).all(axis=-1))
            if inside.size:
                depth = np.concatenate([position[inside] - low, high - position[inside]], axis=-1)
                nearest = depth.argmin(axis=-1)
                position[inside, nearest % 2] = np.concatenate([low, high])[nearest]
        return position

    def move_one(self, x: float, y: float, dx: float, dy: float) -> tuple[float, float]:
        """`move` for one position on the floor, bit for bit, in plain floats and far faster."""
        end_x, end_y = x + dx, y + dy
        left, right = (x, end_x) if dx > 0 else (end_x, x)
        bottom, top = (y, end_y) if dy > 0 else (end_y, y)
        met = [
            wall
            for wall in self.rectangles
            if left < wall[2] and right > wall[0] and bottom < wall[3] and top > wall[1]
        ]
        stays = left >= 0.0 and right <= self.size and bottom >= 0.0 and top <= self.size
        if stays and not met:
            return end_x, end_y
        return self._stop_one(x, y, dx, dy, met)

    def _stop_one(
        self, x: float, y: float, dx: float, dy: float, met: list[Rectangle]
    ) -> tuple[float, float]:
        """The slow branch of `move_one`; the move's bounding box overlaps the walls `met`."""
        end_x, end_y = x + dx, y + dy
        time, face, on_x = math.inf, 0.0, True
        for left, bottom, right, top in met:
            enter_x, leave_x, near_x = _slab(x, dx, left, right)
            enter_y, leave_y, near_y = _slab(y, dy, bottom, top)
            entry = max(enter_x, enter_y)
            if entry < min(leave_x, leave_y) and min(entry, 1.0) < time:
                on_x = not enter_y > enter_x
                time, face = min(entry, 1.0), near_x if on_x else near_y
        for start, delta, end, is_x in ((x, dx, end_x, True), (y, dy, end_y, False)):
            if end < 0.0 or end > self.size:
                boundary = self.size if delta > 0 else 0.0
                out = min((boundary - start) / delta, 1.0)
                if out < time:
                    time, face, on_x = out, boundary, is_x
        if time < math.inf:
            end_x, end_y = x + time * dx, y + time * dy
            end_x, end_y = (face, end_y) if on_x else (end_x, face)
        end_x, end_y = min(max(end_x, 0.0), self.size), min(max(end_y, 0.0), self.size)
        for left, bottom, right, top in self.rectangles:
            if left < end_x < right and bottom < end_y < top:
                depth = (end_x - left, end_y - bottom, right - end_x, top - end_y)
                nearest = depth.index(min(depth))
                value = (left, bottom, right, top)[nearest]
                end_x, end_y = (end_x, value) if nearest % 2 else (value, end_y)
        return end_x, end_y


def _slab(start: float, delta: float, low: float, high: float) -> tuple[float, float, float]:
    """Times at which one coordinate enters and leaves [low, high], and the face it enters by."""
    if delta > 0:
        return (low - start) / delta, (high - start) / delta, low
    if delta < 0:
        return (high - start) / delta, (low - start) / delta, high
    return -math.inf, math.inf, high


def _cross(maze: Maze) -> list[Rectangle]:
    """Six rectangles: each wall, less its two doorways.

    The pieces overlap in the middle and reach beyond the square, so that no shared edge is left
    along which an agent could slide between two of them.
    """
    middle, half = maze.size / 2, maze.wall_thickness / 2
    first, second = (fraction * maze.size for fraction in maze.door_positions)
    gap = maze.door_width / 2
    pieces = (
        (-maze.size, first - gap),
        (first + gap, second - gap),
        (second + gap, 2 * maze.size),
    )
    vertical = [(middle - half, start, middle + half, end) for start, end in pieces]
    horizontal = [(start, middle - half, end, middle + half) for start, end in pieces]
    return vertical + horizontal


def _check_numbers(maze: Maze) -> None:
    for name in ("size", "wall_thickness", "door_width", "top_speed", "time_interval"):
        value = getattr(maze, name)
        if not (isinstance(value, int | float | np.number) and 0 < value < math.inf):
            raise InputError(f"{name} must be a positive number, not {value!r}.")
    if not (isinstance(maze.noise, int | float | np.number) and 0 <= maze.noise < math.inf):
        raise InputError(f"noise must be a standard deviation of at least 0, not {maze.noise!r}.")


def _check_doors(maze: Maze) -> None:
    arm = (maze.size - maze.wall_thickness) / 2
    if arm <= 0:
        raise InputError(
            f"wall_thickness must be below size, but is {maze.wall_thickness} for size {maze.size}."
        )
    if maze.door_width > arm:
        raise InputError(
            f"door_width must be at most {arm:g}, the length of an arm of the cross, "
            f"not {maze.door_width:g}."
        )
    try:
        first, second = (float(fraction) * maze.size for fraction in maze.door_positions)
    except (TypeError, ValueError):
        raise InputError(
            f"door_positions must be two fractions of size, not {maze.door_positions!r}."
        ) from None
    gap = maze.door_width / 2
    in_first_arm = first >= gap and first + gap <= arm
    in_second_arm = second - gap >= maze.size - arm and second + gap <= maze.size
    if not (in_first_arm and in_second_arm):
        raise InputError(
            f"door_positions must place one door of width {maze.door_width:g} within [0, {arm:g}] "
            f"and one within [{maze.size - arm:g}, {maze.size:g}], "
            f"but centres them at {first:g} and {second:g}."
        )
