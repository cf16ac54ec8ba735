"""Ctrl-C in the first seconds of `phimu train`, while it imports, opens the task and compiles."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import phimu

SOURCE = str(Path(next(iter(phimu.__path__))).parent)
FLAGS = (
    "--agent sac --actor-sizes 8 --critic-width 8 --batch-size 8 --steps 1000000 "
    "--learning-starts 40 --evaluate-every 0 --quiet"
)
TRAIN = ["train", "Pendulum-v1", *FLAGS.split(), "--run-dir"]
# As the script that pip makes of the entry point.
SCRIPT = "import sys; from phimu.__main__ import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job in the background ignores SIGINT, and its children would too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def seconds_of_python() -> float:
    """Until Python runs anything; before that it is Python that hears a signal."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.monotonic() - began


def interrupt(run: Path, after: float) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *TRAIN, str(run)],
        env=os.environ | {"PYTHONPATH": SOURCE, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        time.sleep(after)
        child.send_signal(signal.SIGINT)
        try:
            code = child.wait(120)
        except subprocess.TimeoutExpired:
            child.kill()
            raise AssertionError(f"swallowed after {after:.2f} s") from None
        assert child.stderr
        said = child.stderr.read()
    assert code in (130, -signal.SIGINT), f"{code} after {after:.2f} s: {said}"
    assert said.count("\n") <= 1, f"after {after:.2f} s: {said}"
    assert not said or (said.startswith("phimu: stopped") and "re-run to resume" in said)


@pytest.mark.parametrize(
    "times",
    [
        2,
        pytest.param(8, marks=pytest.mark.thorough),
        pytest.param(60, marks=pytest.mark.faults),
    ],
)
def test_none_is_swallowed_and_none_ends_in_a_traceback(times: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    earliest = max(0.02, 2 * seconds_of_python())
    for number, after in enumerate(rng.uniform(earliest, 4.0, times)):
        interrupt(tmp_path / str(number), float(after))


def test_other_commands_get_a_keyboard_interrupt_once_they_have_begun(tmp_path: Path) -> None:
    """They may have something to put in order."""
    code = (
        "import signal; from phimu.leaving import leave_at_once; leave_at_once(); "
        "from phimu.cli import main; main(['agents']); "
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "True"


def test_what_is_ignored_stays_ignored() -> None:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "from phimu.leaving import leave_at_once; leave_at_once(); "
        "signal.raise_signal(signal.SIGINT)"
    )
    environment = os.environ | {"PYTHONPATH": SOURCE}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
