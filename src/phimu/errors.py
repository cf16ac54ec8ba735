"""How a command can end early: each with one sentence and an exit code of its own.

Faults of the disk are plain OSErrors that name their file; the command line exits with 74.
"""

import signal
from typing import Any


class InputError(Exception):
    """Something the user gave cannot be used: the sentence names the field and the fix."""

    exit_code = 2


def at_least(least: int, **values: float) -> None:
    """InputError where one of these, under the names that users know them by, is below it."""
    for name, value in values.items():
        if value < least:
            raise InputError(f"{name} is {value}: give at least {least}.")


class Busy(InputError):
    """Another process works in the run directory; later the same command may do."""

    exit_code = 75


class NotFinite(InputError):
    """A loss, a gradient or a weight is NaN or infinite; `arrays` is the batch that did it."""

    def __init__(self, sentence: str, arrays: dict[str, Any] | None = None):
        super().__init__(sentence)
        self.arrays = arrays or {}


class Stopped(Exception):
    """A signal ended a command; a training run was saved first."""

    def __init__(self, number: int, after: str = "re-run to resume."):
        super().__init__(f"stopped by {signal.Signals(number).name}; {after}")
        self.number = number
        self.exit_code = 128 + number
