"""Two training runs at once, a thread each: what is left of the speed that each has alone.

`python benchmarks/side_by_side.py JOB.json` is one of them: it trains for as many seconds as each
line of its standard input says, and answers with the steps it made in a second.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import jax

import command
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.speed import updates
from phimu.speed.loop import CASES, Job, preset_of
from phimu.training.online import OnlineRun
from phimu.training.threads import cores, environment

RUNS = 2


class SideBySide(NamedTuple):
    """Steps a second of the runs alone, one after the other, and at once; medians of rounds."""

    name: str
    cores: int
    alone: float  # summed over the runs
    together: float
    share: float


def side_by_side(name: str, rounds: int, steps: int) -> SideBySide:
    """One of loop.CASES; a round is as long as `steps` steps take alone."""
    return compare(name, Job(updates.CASES[name], rounds=rounds, steps=steps))


def compare(name: str, job: Job) -> SideBySide:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        file = Path(directory) / "job.json"
        file.write_text(json.dumps(job._asdict()))
        runs: list[subprocess.Popen[str]] = []
        try:
            for _ in range(RUNS):
                runs.append(stack.enter_context(_start(file)))
                _hear(runs[-1])  # it is compiled and warm, and waits
            seconds = job.steps / _speeds(runs[:1], 1.0)[0]
            alone, together = [], []
            for _ in range(job.rounds):
                alone.append(sum(_speeds([run], seconds)[0] for run in runs))
                together.append(sum(_speeds(runs, seconds)))
        finally:
            for run in runs:
                run.kill()
    ratios = [both / single for both, single in zip(together, alone, strict=True)]
    return SideBySide(name, cores(), median(alone), median(together), median(ratios))


def _start(file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, str(file)],
        env=os.environ | environment(1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _speeds(runs: list[subprocess.Popen[str]], seconds: float) -> list[float]:
    """Steps a second of each run, all of them at once."""
    for run in runs:
        print(seconds, file=run.stdin, flush=True)
    return [_hear(run) for run in runs]


def _hear(run: subprocess.Popen[str]) -> float:
    line = run.stdout.readline() if run.stdout else ""
    if not line:
        said = run.stderr.read().strip() if run.stderr else ""
        last = (said or f"exit code {run.wait()}").splitlines()[-1]
        raise InputError(f"Two runs could not be timed side by side: {last}")
    return float(line)


def serve(job: Job) -> None:
    chosen = preset_of(job)
    run = OnlineRun(chosen.settings, open_task(job.task), chosen.schedule, seed=0)
    while run.step < job.learning_starts + job.warm:
        run.advance()
    print(0, flush=True)
    for line in sys.stdin:
        print(_train(run, float(line)), flush=True)


def _train(run: OnlineRun, seconds: float) -> float:
    """Steps a second over so many seconds."""
    begin, before = time.perf_counter(), run.step
    while time.perf_counter() - begin < seconds:
        run.advance()
    jax.block_until_ready(run.metrics)
    return (run.step - before) / (time.perf_counter() - begin)


def every(rounds: int, steps: int) -> list[SideBySide]:
    return [side_by_side(name, rounds, steps) for name in CASES]


if __name__ == "__main__":
    if not (len(sys.argv) == 2 and sys.argv[1].endswith(".json")):
        sys.exit(command.run(__doc__, "side_by_side", every))
    try:
        serve(Job(**json.loads(Path(sys.argv[1]).read_text())))
    except InputError as error:
        sys.exit(str(error))
