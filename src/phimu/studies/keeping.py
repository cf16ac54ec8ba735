"""What is worth keeping of a finished run: its small text, under the names of its study.

Checkpoints, replay and videos stay in the run directory.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from phimu.runs.directory import CONFIG, MANIFEST
from phimu.runs.files import read_json, write_atomically
from phimu.studies.plan import Run
from phimu.studies.runner import Job
from phimu.studies.tables import TASK_TITLES

TEXTS = (CONFIG, "metrics.jsonl", "scores.json", "exploration.json")


def keep(run: Run, study: str, results: Path) -> Path:
    """Copy it to `results/study/task/variant/seed-n`, over what was kept of it when it was shorter.

    The manifest comes last: what has one is whole.
    """
    task = TASK_TITLES.get(run.task, run.task)
    target = results.joinpath(*map(_name, (study, task, run.label)), f"seed-{run.seed}")
    target.mkdir(parents=True, exist_ok=True)
    for name in TEXTS:
        if (run.path / name).is_file():
            write_atomically(target / name, (run.path / name).read_bytes())
    manifest = _without_places(read_json(run.path / MANIFEST))
    write_atomically(target / MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")
    return target


def keeper(study: str, results: Path) -> Callable[[list[Job]], None]:
    """A function that keeps each job once, when it is done."""
    kept: set[int] = set()

    def look(jobs: list[Job]) -> None:
        for job in jobs:
            if job.status == "done" and job.run.number not in kept:
                kept.add(job.run.number)
                keep(job.run, study, results)

    return look


def _name(text: str) -> str:
    """As one directory: "sac, targets held" is sac-targets-held."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "unnamed"


def _without_places(value: Any) -> Any:
    """Of absolute paths the last name: where this machine has its runs is nobody's concern."""
    if isinstance(value, dict):
        return {key: _without_places(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_places(each) for each in value]
    if isinstance(value, str) and (scheme := re.match(r"(?:d4rl:)?(?=/)", value)):
        return scheme[0] + PurePath(value[scheme.end() :]).name
    return value
