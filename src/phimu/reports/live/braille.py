"""Curves in characters: Braille has two by four dots in each, and bars of eight heights a line."""

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
FIRST = 0x2800  # the empty Braille character
# The bit of each dot: [row][column].
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

Point = tuple[float, float]


class Canvas:
    """Lines in [0, 1] x [0, 1], up and to the right, on this many characters."""

    def __init__(self, width: int, height: int):
        self._width, self._height = width, height
        self._bits = [[0] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]

    def line(self, points: Sequence[Point], style: str) -> None:
        """Through all points; a later line's colour is that of the characters they share."""
        dots = [
            (round(x * (2 * self._width - 1)), round((1 - y) * (4 * self._height - 1)))
            for x, y in points
        ]
        for start, end in zip(dots, dots[1:] or dots, strict=False):
            count = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
            for index in range(count + 1):
                share = index / count
                column = round(start[0] + share * (end[0] - start[0]))
                row = round(start[1] + share * (end[1] - start[1]))
                self._bits[row // 4][column // 2] |= DOTS[row % 4][column % 2]
                self._styles[row // 4][column // 2] = style

    def rows(self) -> list[Text]:
        found = []
        for bits, styles in zip(self._bits, self._styles, strict=True):
            text = Text(no_wrap=True)
            for bit, style in zip(bits, styles, strict=True):
                text.append(chr(FIRST + bit), style)
            found.append(text)
        return found


def sparkline(values: Sequence[float], width: int) -> str:
    """The values in `width` characters, from the lowest to the highest of them."""
    if not values:
        return ""
    count = min(width, len(values))
    ends = [round(index * len(values) / count) for index in range(count + 1)]
    pieces = [values[a:b] for a, b in pairwise(ends)]
    means = [sum(piece) / len(piece) for piece in pieces]
    low, span = min(means), max(means) - min(means)
    if not span:
        return BARS[0] * count
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1))] for mean in means)
