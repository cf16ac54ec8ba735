"""Ctrl-C before there is anything to save: the process leaves at once.

While modules are imported, KeyboardInterrupt comes up in the midst of other people's code, which
may swallow it, take it for a missing package or crash. So until a command has begun, or a run saves
on request, nothing is raised. This comes first of all, so it imports only what Python has loaded
already: `signal` itself would load a dozen modules, in which Ctrl-C ends in a traceback.
"""

import _signal  # type: ignore[import-not-found]  # Python's own, without stubs
import os
import sys


def leave(number: int, _: object = None) -> None:
    """A handler: end the process, without a word to anyone inside of it."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h")  # the progress line hides the cursor
    os._exit(128 + number)


def leave_at_once() -> None:
    """On SIGINT, from now on; unless it is ignored, as for a job in the background."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _say_and_leave)


def raise_again() -> None:
    """KeyboardInterrupt, as Python has it: what a command is doing may have to be put in order."""
    if _signal.getsignal(_signal.SIGINT) is _say_and_leave:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _say_and_leave(number: int, _: object) -> None:
    os.write(2, b"phimu: stopped; re-run to resume from the last checkpoint.\n")
    leave(number)
