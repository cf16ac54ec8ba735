"""Studies whose driver and workers are killed at any instant end as an undisturbed one does."""

import contextlib
import json
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
COMMAND = (
    "table1 --tasks phimu/probe-MatchObservation-v0 phimu/probe-TimeLimit-v0 --preset small "
    "--workers 2 --set actor_sizes=8 critic_width=8 batch_size=8 buffer_size=150 "
    "learning_starts=40 evaluate_every=70 evaluation_episodes=1 checkpoint_every=25 log_every=10"
).split()
QUICK = [*COMMAND, "--agents", "sac", "--seeds", "1", "--steps", "150"]
FOR_PHI = ["feature_dim=8", "feature_sizes=8", "negatives=4"]
WHOLE = [*COMMAND, *FOR_PHI, "--agents", "sac", "ctrl-ucb-m", "--seeds", "2", "--steps", "300"]
KILLS = ["driver", "workers", "both", "driver, and wait"]
STOPS = ["stop", "one worker", "stop", "both"]
VARIABLES = {
    "PYTHONPATH": SOURCE,
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # most of the time would go into it
}


class Driver:
    """A `phimu study` at work."""

    def __init__(self, words: list[str], runs: Path):
        self.runs = runs
        self.said = runs.with_name(f"{runs.name}-{time.monotonic_ns()}.txt")
        with open(self.said, "w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "phimu", "study", *words, "--runs", str(runs)],
                env=os.environ | VARIABLES,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def wait_for_workers(self) -> None:
        """Until some train, or all is over."""
        deadline = time.monotonic() + 180
        while self.process.poll() is None and not workers(self.runs):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def finish(self) -> str:
        """The scores that it prints."""
        code = self.process.wait(600)
        said = self.said.read_text()
        assert code == 0, said
        return said[said.index("\nreturn ") :]


def workers(runs: Path) -> list[int]:
    """The processes that hold the locks of runs and are alive."""
    found = []
    for lock in runs.glob("**/lock"):
        with contextlib.suppress(OSError, ValueError):
            pid = json.loads(lock.read_text())["pid"]
            if str(runs) in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def outcome(runs: Path) -> dict[str, bytes]:
    """The metrics of each run, which say what was trained and evaluated, and each thing once."""
    return {str(path.relative_to(runs)): path.read_bytes() for path in runs.glob("**/*.jsonl")}


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job in the background ignores SIGINT, and its children would too."""
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("words", "kills", "seconds"),
    [
        (QUICK, ["workers", "driver, and wait"], 2.0),
        pytest.param(WHOLE, KILLS * 4, 6.0, marks=pytest.mark.faults),
        pytest.param(WHOLE, STOPS * 4, 6.0, marks=pytest.mark.faults),
    ],
    ids=["quick", "kills", "stops"],
)
def test_killed_at_any_instant_each_run_is_done_once(
    words: list[str], kills: list[str], seconds: float, tmp_path: Path
) -> None:
    """Something is killed within so many seconds after workers have begun."""
    runs, rng = tmp_path / "runs", np.random.default_rng(0)
    driver = Driver(words, runs)
    for what in kills:
        if driver.process.poll() is not None:
            driver = Driver(words, runs)
        driver.wait_for_workers()
        time.sleep(rng.uniform(0, seconds))
        disturb(driver, what)
    if driver.process.poll() is not None:
        driver = Driver(words, runs)
    table = driver.finish()
    assert workers(runs) == []
    undisturbed = Driver(words, tmp_path / "undisturbed")
    assert undisturbed.finish() == table
    assert outcome(tmp_path / "undisturbed") == outcome(runs)


def disturb(driver: Driver, what: str) -> None:
    at_work = workers(driver.runs)
    if what == "one worker":
        kill(at_work[:1])
    if what in ("workers", "both"):
        kill(at_work)
    if what in ("driver", "both", "driver, and wait"):
        driver.process.kill()
        driver.process.wait()
    if what == "driver, and wait":  # the kernel tells its workers to stop
        deadline = time.monotonic() + 60
        while workers(driver.runs):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    if what == "stop":
        driver.process.send_signal(signal.SIGINT)
        assert driver.process.wait(60) in (0, 130), driver.said.read_text()
        assert workers(driver.runs) == []
