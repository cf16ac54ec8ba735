"""Ctrl-C at a moment of our choosing: what must not be left half done is done first.

KeyboardInterrupt, and whatever else a handler of a signal raises, can come between any two
instructions of Python. Between a compiled update, which takes the arrays of the state away, and the
line that keeps the new ones, it would leave a learner without weights.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

Handler = Callable[[int, Any], Any]


class Deferral:
    """A block: within it Python's handlers of signals wait, and are called at its end."""

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._depth = 0
        self._heard: dict[int, Any] = {}  # the frame that each signal came in

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        while self._heard and not self._depth:
            number, frame = self._heard.popitem()
            self._handlers[number](number, frame)

    def _hear(self, number: int, frame: Any) -> None:
        if self._depth:
            self._heard[number] = frame
        else:
            self._handlers[number](number, frame)

    def _install(self) -> None:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):  # not what the kernel does itself
                self._handlers[number] = handler
                signal.signal(number, self._hear)

    def _remove(self) -> None:
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._hear:  # nobody has set another since
                signal.signal(number, handler)


@contextlib.contextmanager
def deferrable_interrupts() -> Iterator[Deferral]:
    """A `Deferral` that works in here; only the main thread is ever interrupted."""
    deferral = Deferral()
    if threading.current_thread() is not threading.main_thread():
        yield deferral
        return
    try:
        with deferral:
            deferral._install()
        yield deferral
    finally:
        with deferral:
            deferral._remove()
