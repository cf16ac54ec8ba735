import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

from phimu.runs.interrupts import deferrable_interrupts


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def interrupted(done: list[str], inner: int = 0, error: Exception | None = None) -> None:
    """Interrupted twice in `inner` nested blocks; `done` says what was run."""
    with deferrable_interrupts() as whole:
        with contextlib.ExitStack() as blocks:
            for _ in range(inner):
                blocks.enter_context(whole)
            interrupt()
            interrupt()
            done.append("inside")
            if error is not None:
                raise error
        done.append("after")


@pytest.mark.parametrize(("inner", "expected"), [(0, []), (1, ["inside"]), (2, ["inside"])])
def test_it_waits_for_the_end_of_the_block(inner: int, expected: list[str]) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(done, inner)
    assert done == expected


def test_an_error_in_the_block_does_not_swallow_it() -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        interrupted([], 1, ValueError("inside"))
    assert isinstance(raised.value.__context__, ValueError)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1])
def test_whatever_a_handler_raises_waits_too(number: int) -> None:
    """Such as the SystemExit that a script makes of SIGTERM in order to save in its `finally`."""

    def leave(*_: object) -> None:
        raise SystemExit(3)

    def work() -> None:
        with deferrable_interrupts() as whole, whole:
            signal.raise_signal(number)
            done.append("inside")

    before, done = signal.signal(number, leave), []
    try:
        with pytest.raises(SystemExit):
            work()
        assert signal.getsignal(number) is leave
    finally:
        signal.signal(number, before)
    assert done == ["inside"]


def test_handlers_are_given_back() -> None:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with deferrable_interrupts():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers


def test_a_handler_that_was_set_inside_stays() -> None:
    with deferrable_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with deferrable_interrupts() as whole, whole:
        interrupt()


def test_another_thread_has_nothing_to_defer() -> None:
    done = []

    def work() -> None:
        with deferrable_interrupts() as whole, whole:
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]
