"""A sweep that is killed, driver and workers, ends with its trials, each done once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import phimu

SOURCE = str(Path(next(iter(phimu.__path__))).parent)
WORDS = (
    "Pendulum-v1 --agent sac --preset small --steps 600 --trials 12 --vary "
    "critic_learning_rate=1e-4..1e-2:log batch_size=16,32,64 --set actor_sizes=8 critic_width=8 "
    "learning_starts=100 evaluation_episodes=1 log_every=50"
)


def begin(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "phimu", "sweep", *WORDS.split(), "--out", str(out)],
        env=os.environ | {"PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def trials(out: Path) -> list[dict]:
    files = list(out.glob("*/sweep.json"))
    return json.loads(files[0].read_text())["trials"] if files else []


def kill(process: subprocess.Popen[str], out: Path) -> None:
    """The driver, and whoever holds the lock of a run."""
    process.kill()
    for lock in out.glob("*/*/*/*/*/*/lock"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
    process.communicate()


@pytest.mark.faults
def test_a_sweep_killed_twice_has_each_trial_once(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the extra sweep is not installed")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    said, _ = begin(whole).communicate(timeout=900)
    assert len(trials(whole)) == 12, said
    for count in (3, 8):
        process = begin(killed)
        until = time.monotonic() + 600
        while len(trials(killed)) < count and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.0)  # into the trial
        kill(process, killed)
    said, _ = begin(killed).communicate(timeout=900)
    found = trials(killed)
    assert len(found) == 12, said
    assert {trial["state"] for trial in found} <= {"done", "pruned"}
    assert len({trial["run"] for trial in found}) == 12
    assert found == trials(whole)  # the same search, to the bit
    runs = {
        str(path.parent.relative_to(next(killed.iterdir()))) for path in killed.rglob("config.json")
    }
    assert runs == {trial["run"] for trial in found}
