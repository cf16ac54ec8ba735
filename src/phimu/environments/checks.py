"""What our environments share: their types, and checks of actions and options."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from phimu.errors import InputError

Reset = tuple[np.ndarray, dict[str, Any]]  # observation, info
Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]  # ..., terminated, truncated, info


def finite_action(action: Any, size: int) -> np.ndarray:
    """An action as [size] float64, if its numbers are finite."""
    numbers = np.asarray(action, dtype=np.float64)
    if numbers.shape != (size,) or not math.isfinite(numbers @ numbers):
        what = "number" if size == 1 else "numbers"
        raise InputError(f"action must be {size} finite {what} in [-1, 1], not {action!r}.")
    return numbers


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def check_render_mode(render_mode: str | None) -> None:
    if render_mode not in (None, "rgb_array"):
        raise InputError(f"render_mode must be rgb_array or None, not {render_mode!r}.")
