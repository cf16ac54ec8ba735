"""Carries a sweep out: draws trials, starts their runs, gives up the poor ones.

Before a trial begins, its settings are on the disk; and how it ended, once it has. So whoever is
killed loses nothing: the next one takes up the trials that are neither done nor given up, which
resume from the checkpoints of their runs.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

from phimu.errors import Busy, InputError, Stopped
from phimu.runs.directory import RunDirectory
from phimu.runs.following import MetricRows
from phimu.runs.lock import locked
from phimu.runs.stopping import Stop
from phimu.studies.runner import POLL_SECONDS, Job, Start
from phimu.studies.search import prunable, suggest
from phimu.studies.sweep import Record, Runs, Trial

ATTEMPTS = 1_000  # draws for a trial that there was none like before


class Sweeper:
    """One driver of a sweep."""

    def __init__(self, record: Record, runs: Runs, count: int):
        most = record.sweep.combinations()
        if count > most:
            raise InputError(f"trials is {count}, but there are only {most:g} different ones.")
        self.record, self._runs, self._count = record, runs, count
        self._jobs: dict[int, Job] = {}
        self._logs: dict[int, MetricRows] = {}

    @property
    def jobs(self) -> list[Job]:
        return list(self._jobs.values())

    def carry_out(
        self,
        start: Start,
        slots: Callable[[], int],
        show: Callable[[list[Job]], Any],
        stop: Stop,
    ) -> None:
        """Bring all trials to an end, `slots()` at a time; Stopped if someone asks for it."""
        driver = self.record.path / "driver"  # whose lock says that someone is at it
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(driver, lambda _: None))
            except Busy as error:
                raise Busy(f"Another phimu sweep is at work in {self.record.path}.") from error
            for trial in self.record.trials:
                if trial.state in ("running", "failed"):
                    trial.state, trial.why = "running", ""
                    self._take_up(trial)
            asked = False
            while self._active() or (self._missing() and not stop.number):
                now = time.monotonic()
                for number in list(self._jobs):
                    self._update(number, now)
                running = sum(job.status == "running" for job in self.jobs)
                if stop.number and not running:
                    break
                if stop.number and not asked:
                    asked = True
                    for job in self.jobs:
                        job.stop()
                if not stop.number:
                    self._begin(start, slots() - running, now)
                show(self.jobs)
                time.sleep(POLL_SECONDS)
            show(self.jobs)
        if stop.number and (self._active() or self._missing()):
            raise Stopped(stop.number, "re-run to go on with the trials that are left.")

    def _missing(self) -> int:
        return self._count - len(self.record.trials)

    def _active(self) -> bool:
        """Whether a trial is not at its end, or a process still at work."""
        return bool(self._left()) or any(job.status == "running" for job in self.jobs)

    def _left(self) -> list[Job]:
        """Of the trials that are neither done nor given up."""
        trials = self.record.trials
        return [job for number, job in self._jobs.items() if trials[number].state == "running"]

    def _begin(self, start: Start, free: int, now: float) -> None:
        """Trials that wait, then new ones."""
        for job in self._left():
            if free > 0:
                free -= job.begin(start, now)
        waiting = any(job.status in ("waiting", "elsewhere") for job in self._left())
        while free > 0 and self._missing() > 0 and not waiting:
            free -= self._take_up(self._draw()).begin(start, now)

    def _draw(self) -> Trial:
        """Another trial, on the disk before anything of it is."""
        trials = self.record.trials
        used = {trial.run for trial in trials}
        for attempt in range(ATTEMPTS):
            settings = suggest(self.record.sweep, trials, attempt)
            path = str(self._runs.run(settings).path.relative_to(self.record.path))
            if path not in used:
                trials.append(Trial(len(trials), settings, run=path))
                self.record.write()
                return trials[-1]
        raise InputError(
            f"{ATTEMPTS} draws gave no trial that there was none like before: give fewer trials."
        )

    def _take_up(self, trial: Trial) -> Job:
        run = self._runs.run(trial.settings, trial.number)
        self._logs[trial.number] = MetricRows(RunDirectory(run.path).metrics)
        job = self._jobs[trial.number] = Job(run)
        return job

    def _update(self, number: int, now: float) -> None:
        job, trial = self._jobs[number], self.record.trials[number]
        job.update(now)
        if trial.state == "pruned" and job.status != "running":
            job.status, job.why = "done", "pruned"  # its process has saved and left
        if trial.state != "running":
            return
        if self._poor(trial):
            trial.state = "pruned"
            job.stop()
        elif job.status == "done" and job.run.next_command() is None:
            trial.state = "done"
        elif job.status == "failed":
            trial.state, trial.why = "failed", job.why
        if trial.state != "running":
            self.record.write()

    def _poor(self, trial: Trial) -> bool:
        """Compare it at each evaluation that is new, in order; it ends at the first that is poor.

        With one worker this does not depend on when anyone looked: what it is compared with had
        ended before it began.
        """
        seen = trial.evaluations[-1][0] if trial.evaluations else 0
        for row in self._logs[trial.number].read():
            # On logged data updates of the policy, without those of the phases before.
            step = int(row.get("updates", row["step"]))
            if row.get("kind") != "evaluation" or step <= seen:
                continue
            trial.evaluations.append((step, float(row.get("score", row["return"]))))
            last = step >= self.record.sweep.steps
            if not last and prunable(self.record.sweep, self.record.trials, trial.number):
                return True
        return False
