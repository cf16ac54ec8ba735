"""The whole training loop: act, step, store, update. Each case has a process of its own.

`python -m phimu.speed.loop JOB.json` prints the numbers of one `Job` as JSON.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax

from phimu.agents.schedule import Preset
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.settings import override
from phimu.speed import updates
from phimu.speed.peak_memory import peak_memory_mb
from phimu.training.online import OnlineRun

CASES = ("sac 256-256", "ctrl-ucb-m 256-256-256")  # of updates.CASES
MILLION = 1_000_000


class Job(NamedTuple):
    """What a child process is asked to time."""

    agent: updates.Case
    task: str = "HalfCheetah-v5"
    learning_starts: int = 1_000
    batch_size: int = 256
    buffer_size: int = MILLION
    fill: int = 0  # random transitions put into the replay buffer beforehand
    warm: int = 300  # steps between the first update and the first round
    rounds: int = 1
    steps: int = 1_000  # in a round
    work: float = updates.WORK  # floating point operations in a round of updates alone
    saves: int = 0  # checkpoints to time, in the directory for temporary files
    began: float = 0.0  # when the process was started: the wall clock is what two processes share


class LoopSpeed(NamedTuple):
    """How fast a training run goes, how soon it begins to learn, and what it takes."""

    name: str
    steps_per_second: float
    update_share: float  # of a step's time, what its update alone takes
    checkpoint_share: float  # of wall time, what saving every `checkpoint_every` steps takes
    first_update_seconds: float  # from the start of the process; compilation included
    memory_mb: float  # at most
    full_memory_mb: float  # the same with a million transitions in the replay buffer


def loop_speed(name: str, rounds: int, steps: int) -> LoopSpeed:
    job = Job(updates.CASES[name], rounds=rounds, steps=steps)
    timed = run_ours(job._replace(saves=5))
    full = run_ours(job._replace(fill=MILLION, warm=0, rounds=1, steps=10, work=1.0))
    return LoopSpeed(name, **timed, full_memory_mb=full["memory_mb"])


def run_ours(job: Job) -> dict[str, float]:
    return run_child([sys.executable, "-m", "phimu.speed.loop"], job._asdict())


def run_child(
    command: list[str], job: dict[str, Any], variables: dict[str, str] | None = None
) -> dict[str, Any]:
    """What `command JOB.json` prints, with these environment variables; InputError if it fails."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "job.json"
        file.write_text(json.dumps(job | {"began": time.time()}))
        own = os.environ | (variables or {})
        child = subprocess.run([*command, str(file)], capture_output=True, text=True, env=own)
    if child.returncode:
        last = (child.stderr.strip() or f"exit code {child.returncode}").splitlines()[-1]
        raise InputError(f"{job['task']} could not be timed with {command[0]}: {last}")
    return json.loads(child.stdout.splitlines()[-1])


def preset_of(job: Job) -> Preset:
    """The agent of a job, and a schedule that evaluates nothing."""
    fields = ("learning_starts", "batch_size", "buffer_size")
    changes = {name: getattr(job, name) for name in fields} | {"evaluate_every": 0}
    return override(updates.settings(*job.agent), changes)


def measure(job: Job) -> dict[str, float]:
    """Fields of LoopSpeed: all but name and full_memory_mb; checkpoint_share with `saves`."""
    task = open_task(job.task)
    chosen = preset_of(job)
    run = OnlineRun(chosen.settings, task, chosen.schedule, seed=0)
    updates.fill(run.replay, job.fill)
    while not run.updates:
        run.advance()
    jax.block_until_ready(run.metrics)
    first_update = time.time() - job.began
    _seconds(run, job.warm)
    best = min(_seconds(run, job.steps) for _ in range(job.rounds)) / job.steps
    memory = peak_memory_mb()  # before the updates alone, which add a second agent
    shares = {}
    if job.saves:
        every = chosen.schedule.checkpoint_every
        shares["checkpoint_share"] = _save_seconds(run, job.saves) / every / best
    update, _ = updates.time_update(chosen, job.rounds, job.work)
    return shares | {
        "steps_per_second": 1 / best,
        "update_share": update / best,
        "first_update_seconds": first_update,
        "memory_mb": memory,
    }


def _seconds(run: OnlineRun, steps: int) -> float:
    begin = time.perf_counter()
    for _ in range(steps):
        run.advance()
    jax.block_until_ready(run.metrics)
    return time.perf_counter() - begin


def _save_seconds(run: OnlineRun, saves: int) -> float:
    """The median time of a checkpoint with `checkpoint_every` new transitions."""
    every, times = run.schedule.checkpoint_every, []
    with tempfile.TemporaryDirectory() as directory:
        run.save(Path(directory))  # the first writes all there is
        for _ in range(saves):
            updates.fill(run.replay, every)
            run.step += every  # checkpoints are called by it
            times.append(updates.seconds(lambda: run.save(Path(directory))))
    return statistics.median(times)


if __name__ == "__main__":
    try:
        print(json.dumps(measure(Job(**json.loads(Path(sys.argv[1]).read_text())))))
    except InputError as error:
        sys.exit(str(error))
