"""A queue of studies as a page of Markdown: what is running, done and left, and for how long."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from phimu.runs.progress import duration, number
from phimu.studies.cost import Bench, estimate, shared_out
from phimu.studies.runner import Job


def queue_page(studies: Mapping[str, Sequence[Job]], bench: Bench | None, workers: int) -> str:
    """Of each study, by its arguments, its runs; without a bench no times are told."""
    seconds = {
        text: [_seconds(job, bench) for job in jobs if job.status != "failed"]
        for text, jobs in studies.items()
    }
    rows = [
        [
            f"`{text}`",
            f"{_count(jobs, 'done')} of {len(jobs)}",
            _time(seconds[text], workers, bench),
        ]
        for text, jobs in studies.items()
    ]
    everything = [each for of_one in seconds.values() for each in of_one]
    rows.append(["all", "", _time(everything, workers, bench)])
    jobs = [job for each in studies.values() for job in each]
    now = [_running(job) for job in jobs if job.status == "running"]
    failed = [[job.run.name, job.why] for job in jobs if job.status == "failed"]
    parts = [
        "# Queue",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {workers} at a time.",
        _table(("study", "done", "time left"), rows),
    ]
    if now:
        parts += ["## Running", _table(("run", "step", "steps/s", "last evaluation"), now)]
    if failed:
        parts += ["## Failed", _table(("run", "why"), failed)]
    return "\n\n".join(parts) + "\n"


def _count(jobs: Sequence[Job], status: str) -> int:
    return sum(job.status == status for job in jobs)


def _seconds(job: Job, bench: Bench | None) -> float:
    """What it still takes: by its own speed, or as long as that is not known by the bench's."""
    if job.status == "done":
        return 0.0
    if job.rate:
        return job.left / job.rate
    return 0.0 if bench is None else estimate(job.run, bench).seconds


def _time(seconds: Sequence[float], workers: int, bench: Bench | None) -> str:
    return "" if bench is None else duration(shared_out(seconds, workers))


def _running(job: Job) -> list[str]:
    rate = number(job.rate) if job.rate else ""
    result = "" if job.result is None else number(job.result)
    return [job.run.name, f"{job.step:,} of {job.run.steps:,}", rate, result]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(x.replace("|", "\\|") for x in row) + " |" for row in lines)
