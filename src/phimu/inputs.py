"""Arrays as a user gives them: shapes and numbers are checked before anything is computed."""

import math
from typing import Any

import numpy as np

from phimu.errors import InputError


def rows_of(
    name: str, value: Any, shape: tuple[int, ...], rows: int | None = None, kind: Any = np.float32
) -> np.ndarray:
    """A batch [B, *shape] of finite numbers as [B, prod(shape)]; of `rows` rows if given.

    A shape of () means one number a row: [B].
    """
    try:
        with np.errstate(over="ignore"):  # what overflows is refused below
            array = np.asarray(value, kind)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is no array of numbers ({error}).") from error
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        wanted = ", ".join(map(str, ("B", *shape)))
        raise InputError(f"{name} has shape {array.shape}: give a batch [{wanted}].")
    if rows is not None and len(array) != rows:
        raise InputError(f"{name} has {len(array)} rows: give {rows}, one for each of the others.")
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise InputError(f"{name} is not finite in row {row}: drop or mend it.")
    return array.reshape(len(array), math.prod(shape)) if shape else array
