"""How a command can end early: each with one sentence and an exit code of its own.

Faults of the disk are plain OSErrors that name their file; the command line exits with 74.
"""

import signal
from types import TracebackType
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


class EnvironmentFault(InputError):
    """An environment gave what cannot be learned from; a training run was saved first."""


def blame_environment(error: Exception, sentence: str) -> None:
    """Mark what an environment raised, where it is caught first; the sentence becomes a note."""
    error.add_note(sentence)
    # From the environment's own frame on.
    error.raised_by_environment = error.__traceback__ and error.__traceback__.tb_next  # type: ignore[attr-defined]


def by_environment(error: Exception) -> bool:
    """Whether it is an environment's fault: all that was learned before is good."""
    return isinstance(error, EnvironmentFault) or hasattr(error, "raised_by_environment")


def environment_traceback(error: Exception) -> TracebackType | None:
    """Where in the environment it was raised."""
    return getattr(error, "raised_by_environment", None)


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
