"""Carries runs out: starts them, takes up again what was killed, gives up what cannot be done."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from phimu.errors import Busy, InputError, Stopped
from phimu.runs.directory import RunDirectory
from phimu.runs.log import last_rows
from phimu.runs.stopping import Stop
from phimu.studies.plan import Run
from phimu.studies.processes import End

POLL_SECONDS = 0.2
LOOK_SECONDS = 2.0  # between two looks at the metrics of a run
BUSY_SECONDS = 10.0  # before a run that another process has is tried again
RETRIES = 3  # attempts in a row that bring a run no further than it was, after the first

Status = Literal["running", "elsewhere", "waiting", "failed", "done"]
ACTIVE: tuple[Status, ...] = ("running", "elsewhere", "waiting")


class Attempt(Protocol):
    """A command at work, here or on another machine."""

    def end(self) -> End | None:
        """None while it goes on."""

    def stop(self) -> None:
        """Have it save and leave."""


Start = Callable[[list[str]], Attempt]


class Job:
    """A run, who is at it, and how far it is; what lasts is in the run directory alone."""

    def __init__(self, run: Run):
        self.run = run
        self.status: Status = "waiting"
        self.why = ""  # the last attempt failed
        self.step = 0
        self.result: float | None = None  # the last evaluation's return or score
        self._attempt: Attempt | None = None
        self._command: list[str] = []  # of the attempt
        self._saved = 0  # the checkpoint that the attempt began with
        self._failures = 0  # in a row, none of which brought it on
        self._not_before = 0.0
        self._looked_at = 0.0
        self._seen: deque[tuple[float, int]] = deque(maxlen=8)  # when each new step was first seen
        self._next()
        self._look()

    def begin(self, start: Start, now: float) -> bool:
        """Whether an attempt was begun: it waited, its time has come, nobody else finished it."""
        if self.status not in ("waiting", "elsewhere") or now < self._not_before:
            return False
        command = self._next()
        if command is None:
            return False
        try:
            self.run.prepare()
        except InputError as error:
            self.status, self.why = "failed", str(error)
            return False
        self._command, (self._saved, _) = command, self.run.saved()
        self._attempt, self.status = start(command), "running"
        return True

    def stop(self) -> None:
        if self._attempt is not None:
            self._attempt.stop()

    def update(self, now: float) -> None:
        """Take note of how far it is, and of the end of an attempt."""
        end = None if self._attempt is None else self._attempt.end()
        if end is not None:
            self._attempt = None
            self._seen.clear()
            self._judge(end, now)
        watched = self.status in ("running", "elsewhere")
        if end or (watched and now - self._looked_at > LOOK_SECONDS):
            self._looked_at = now
            self._look()
        if self.status == "running" and (not self._seen or self._seen[-1][1] != self.step):
            self._seen.append((now, self.step))

    def _judge(self, end: End, now: float) -> None:
        self.status, self.why = "waiting", ""
        command = self._next()
        if command is None:
            return
        if end.code == Busy.exit_code:
            self.status, self._not_before = "elsewhere", now + BUSY_SECONDS
        elif end.code == InputError.exit_code:
            self.status, self.why = "failed", end.said
        elif end.code or command == self._command:
            self._count_failure(end)
        else:
            self._failures = 0

    def _count_failure(self, end: End) -> None:
        step, _ = self.run.saved()
        self._failures = 0 if step > self._saved else self._failures + 1
        self.why = end.said or f"it ended with code {end.code}"
        if self._failures > RETRIES:
            self.status = "failed"

    def _next(self) -> list[str] | None:
        """What brings it on; None, and it is done, if nothing has to."""
        command = self.run.next_command()
        if command is None:
            self.status = "done"
        return command

    def _look(self) -> None:
        for row in last_rows(RunDirectory(self.run.path).metrics):
            self.step = row["step"]
            if row.get("kind") == "evaluation":
                self.result = row.get("score", row.get("return"))

    @property
    def rate(self) -> float:
        """Steps a second; 0 if it is not known yet."""
        if len(self._seen) < 2:
            return 0.0
        (first_time, first), (last_time, last) = self._seen[0], self._seen[-1]
        return max(0.0, (last - first) / (last_time - first_time))

    @property
    def left(self) -> int:
        return 0 if self.status == "done" else max(0, self.run.steps - self.step)


def carry_out(
    runs: Sequence[Run],
    start: Start,
    slots: Callable[[], int],
    show: Callable[[list[Job]], Any],
    stop: Stop,
) -> list[Job]:
    """Bring all runs to an end, `slots()` at a time; Stopped if someone asks for it."""
    jobs = [Job(run) for run in runs]
    asked = False
    while any(job.status in ACTIVE for job in jobs):
        now = time.monotonic()
        for job in jobs:
            job.update(now)
        running = sum(job.status == "running" for job in jobs)
        if stop.number and not running:
            break
        if stop.number and not asked:
            asked = True
            for job in jobs:
                job.stop()
        free = 0 if stop.number else slots() - running
        for job in jobs:
            if free > 0:
                free -= job.begin(start, now)
        show(jobs)
        time.sleep(POLL_SECONDS)
    show(jobs)
    left = sum(job.status != "done" for job in jobs)
    if stop.number and left:
        after = f"{left} of {len(jobs)} runs are left, and the same command goes on with them."
        raise Stopped(stop.number, after)
    return jobs
