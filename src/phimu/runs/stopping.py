"""SIGTERM and SIGINT as a request: the training loop saves and leaves where it is safe."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from phimu.errors import Stopped
from phimu.leaving import leave

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Whether someone has asked to stop."""

    def __init__(self) -> None:
        self.number = 0
        self._raises = False

    def check(self) -> None:
        if self.number:
            raise Stopped(self.number)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """In here a signal is not waited for: for long work of which nothing is lost."""
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def heard(self, number: int) -> None:
        """What Python's own handler does; the listener may not have come to it yet."""
        if self._raises:
            raise Stopped(number)


@contextlib.contextmanager
def stop_requests() -> Iterator[Stop]:
    """A `Stop` that hears the first signal; the second one ends the process at once.

    Python runs its handlers between two of its own instructions, so while XLA compiles for a
    minute no handler would. Hence a thread listens: the kernel's handler writes into its pipe.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread can be given handlers
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {
        number: signal.signal(number, lambda number, _: stop.heard(number))
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # as for a job in the background
    }
    listener = threading.Thread(target=_listen, args=(reader, stop), daemon=True)
    listener.start()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        signal.set_wakeup_fd(before_fd)
        os.close(writer)  # the listener reads the end of the pipe
        listener.join()
        os.close(reader)


def _listen(reader: int, stop: Stop) -> None:
    while data := os.read(reader, 1):
        number = data[0]
        if number not in SIGNALS:
            continue
        if stop.number:
            leave(number)
        stop.number = number
