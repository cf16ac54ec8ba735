"""Walls and motion of the mazes, as pure NumPy functions in float64.

Positions are [N, 2], x to the right and y up. Walls are open rectangles and their faces are floor,
so an agent that was stopped stands exactly on a face and may leave it or slide along it.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Rectangle = tuple[float, float, float, float]  # left, bottom, right, top
Walls = Literal["cross", "serpentine"]
CORRIDORS = 5  # of the serpentine


@dataclass(frozen=True)
class Maze:
    """A square cut into four rooms by a cross of two walls, with a doorway in each of its arms.

    Or into one long way: corridors from side to side, each open to the next at alternate ends.
    """

    size: float = 20.0
    wall_thickness: float = 1.0
    door_width: float = 2.5
    door_positions: tuple[float, float] = (0.25, 0.75)  # fractions of `size` along each wall
    top_speed: float = 2.0
    time_interval: float = 1.0
    noise: float = 1.0  # standard deviation of the displacement, per axis
    walls: Walls = "cross"

    @cached_property
    def rectangles(self) -> tuple[Rectangle, ...]:
        """The walls. They reach beyond the square, and pieces of one wall overlap.

        So there is no shared edge along which an agent could slide between two of them.
        """
        return self._cross() if self.walls == "cross" else self._serpentine()

    def _serpentine(self) -> tuple[Rectangle, ...]:
        """A wall above each corridor but the last, open at its left end, the next at its right.

        The openings are as wide as the corridors.
        """
        thickness = self.wall_thickness
        width = (self.size - (CORRIDORS - 1) * thickness) / CORRIDORS
        walls = []
        for number in range(CORRIDORS - 1):
            bottom = (number + 1) * width + number * thickness
            start, end = (
                (width, 2 * self.size) if number % 2 == 0 else (-self.size, self.size - width)
            )
            walls.append((start, bottom, end, bottom + thickness))
        return tuple(walls)

    def _cross(self) -> tuple[Rectangle, ...]:
        """Each of its two walls, less its doorways."""
        near, far = (self.size - self.wall_thickness) / 2, (self.size + self.wall_thickness) / 2
        first, second = (fraction * self.size for fraction in self.door_positions)
        gap = self.door_width / 2
        pieces = (
            (-self.size, first - gap),
            (first + gap, second - gap),
            (second + gap, 2 * self.size),
        )
        vertical = [(near, start, far, end) for start, end in pieces]
        horizontal = [(start, near, end, far) for start, end in pieces]
        return (*vertical, *horizontal)

    @cached_property
    def low(self) -> np.ndarray:
        """[walls, 2] lower left corners."""
        return np.array(self.rectangles)[:, :2]

    @cached_property
    def high(self) -> np.ndarray:
        """[walls, 2] upper right corners."""
        return np.array(self.rectangles)[:, 2:]

    def inside_wall(self, position: np.ndarray) -> np.ndarray:
        """[N] bool: strictly inside a wall, or outside the square."""
        point = np.asarray(position, dtype=np.float64)
        in_each = (point[:, None, :] > self.low) & (point[:, None, :] < self.high)  # per axis
        outside = (point < 0.0) | (point > self.size)
        return np.any(in_each.all(axis=-1), axis=-1) | np.any(outside, axis=-1)

    def distance_to_wall(self, position: np.ndarray, outer: bool = True) -> np.ndarray:
        """[N] Euclidean distance to the walls, and to the outer boundary if `outer`; 0 inside."""
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
        """[N, 2] ends of straight moves, each stopped where it first meets a wall."""
        moves = zip(
            np.asarray(position, np.float64).tolist(),
            np.asarray(displacement, np.float64).tolist(),
            strict=True,
        )
        # Rounding to float32 can put a position into a wall: it starts from the nearest face.
        return np.array([self.move_one(*self._to_floor(*start), *by) for start, by in moves])

    def move_one(self, x: float, y: float, dx: float, dy: float) -> tuple[float, float]:
        """`move` of one position on the floor, in plain floats: the environment steps by it."""
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
        time, face, on_x, low, high = math.inf, 0.0, True, 0.0, self.size
        for left, bottom, right, top in met:
            enter_x, leave_x, near_x = _slab(x, dx, left, right)
            enter_y, leave_y, near_y = _slab(y, dy, bottom, top)
            entry = max(enter_x, enter_y)
            if entry < min(leave_x, leave_y) and min(entry, 1.0) < time:
                on_x = not enter_y > enter_x
                time, face = min(entry, 1.0), near_x if on_x else near_y
                low, high = (bottom, top) if on_x else (left, right)
        for start, delta, end, is_x in ((x, dx, end_x, True), (y, dy, end_y, False)):
            if end < 0.0 or end > self.size:
                boundary = self.size if delta > 0 else 0.0
                out = min((boundary - start) / delta, 1.0)
                if out < time:
                    time, face, on_x, low, high = out, boundary, is_x, 0.0, self.size
        if time < math.inf:
            along = y + time * dy if on_x else x + time * dx
            along = min(max(along, low), high)  # at a corner rounding goes past the face
            end_x, end_y = (face, along) if on_x else (along, face)
        return self._to_floor(end_x, end_y)

    def _to_floor(self, x: float, y: float) -> tuple[float, float]:
        """A position that rounding left inside a wall goes onto its nearest face."""
        x, y = min(max(x, 0.0), self.size), min(max(y, 0.0), self.size)
        for left, bottom, right, top in self.rectangles:
            if left < x < right and bottom < y < top:
                depth = (x - left, y - bottom, right - x, top - y)
                nearest = depth.index(min(depth))
                face = (left, bottom, right, top)[nearest]
                x, y = (x, face) if nearest % 2 else (face, y)
        return x, y


def _slab(start: float, delta: float, low: float, high: float) -> tuple[float, float, float]:
    """Times at which one coordinate enters and leaves [low, high], and the face it enters by."""
    if delta > 0:
        return (low - start) / delta, (high - start) / delta, low
    if delta < 0:
        return (high - start) / delta, (low - start) / delta, high
    return -math.inf, math.inf, high
