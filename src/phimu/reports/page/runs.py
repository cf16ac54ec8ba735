"""What was run, and a section for each run."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from phimu.reports.comparison import ours
from phimu.reports.numbers import hours, maze_score, number, score, span, thousands
from phimu.reports.page.markup import Html, heads, scrolled, tag
from phimu.reports.rows import Result, configurations
from phimu.runs.directory import RunDirectory
from phimu.studies.tables import TASK_TITLES

INLINE = 2_000_000  # bytes; a larger film stays a file beside the page


def title(task: str) -> str:
    return TASK_TITLES.get(task, task)


def what_was_run(results: Sequence[Result], anchors: dict[str, str]) -> Html:
    numbers = ("steps", "score", "hours")
    names = ("task", "agent", "settings", "seeds", *numbers, "phimu")
    return tag(
        "section",
        tag("h2", "What was run"),
        tag("p", f"{_machines(results)} Commands are of the first seed.", class_="lead"),
        scrolled(
            heads(names, numbers),
            [_configuration(group, anchors) for group in configurations(results)],
            class_="ran",
        ),
        id="runs",
    )


def _machines(results: Sequence[Result]) -> str:
    """Platforms and versions, each once."""
    machines: dict[str, None] = {}
    for result in results:
        first, last = result.sessions[0], result.sessions[-1]
        versions = last.get("versions") or {}
        named = [
            f"{name} {versions[name]}" for name in ("python", "jax", "mujoco") if versions.get(name)
        ]
        cores = f"{first['cpu_count']} cores" if "cpu_count" in first else "cores not recorded"
        machines[
            ", ".join([str(first.get("platform", "platform not recorded")), cores, *named])
        ] = None
    return "On " + "; on ".join(machines) + "."


def _configuration(group: Sequence[Result], anchors: dict[str, str]) -> Html:
    first, done = group[0], [run.done for run in group]
    scored = [run for run in group if run.score is not None]
    links = [
        [" " if index else None, tag("a", f"{run.seed}", href=f"#{anchors[str(run.path)]}")]
        for index, run in enumerate(group)
    ]
    unfinished = sum(not run.finished for run in group)
    late = tag("small", f"{unfinished} unfinished") if unfinished else None
    facts = tag(
        "tr",
        tag("th", title(first.task), scope="row"),
        tag("td", first.agent),
        tag("td", first.label),
        tag("td", links),
        tag("td", span(min(done), max(done)), late, class_="number"),
        tag("td", score(ours(scored)) if scored else _unscored(group), class_="number"),
        tag("td", hours([run.hours for run in group]), class_="number"),
        tag("td", ", ".join(sorted({_revision(run) for run in group}))),
    )
    command = tag("tr", tag("td", tag("code", first.command), colspan=8), class_="command")
    return tag("tbody", facts, command, data_task=first.task, data_agent=first.agent)


def _unscored(group: Sequence[Result]) -> str:
    return "in the maze's table" if any(run.maze for run in group) else "no evaluation yet"


def _revision(run: Result) -> str:
    """`0.1.0 (8d39d91)`, with a plus sign if there were changes that are in no commit."""
    last = run.sessions[-1]
    version = (last.get("versions") or {}).get("phimu") or "?"
    revision = last.get("revision") or {}
    commit = str(revision.get("commit", ""))[:7]
    return f"{version} ({commit}{'+' if revision.get('dirty') else ''})" if commit else str(version)


def run_section(run: Result, anchor: str, page: Path, with_pictures: bool) -> Html:
    """`page` is where the report will be, from which large films are linked."""
    facts: dict[str, Any] = {
        "command": tag("code", run.command),
        "settings": run.label,
        "steps": thousands(run.done) + ("" if run.finished else ", unfinished"),
        "started": run.sessions[0].get("created", "not recorded"),
        "sessions": len(run.sessions),
        "threads": run.sessions[-1].get("threads", "not recorded"),
        "hours": hours([run.hours]),
        "phimu": _revision(run),
        "directory": tag("code", run.path),
    }
    if run.note:
        facts = {"note": run.note, **facts}
    return tag(
        "details",
        tag("summary", tag("b", run_name(run)), tag("span", _value(run), class_="score")),
        tag("dl", [[tag("dt", name), tag("dd", fact)] for name, fact in facts.items()]),
        tag("div", class_="metrics", data_run=anchor),
        [tag("figure", picture) for picture in (pictures(run) if with_pictures else [])],
        _films(run, page),
        id=anchor,
        class_="run",
        data_task=run.task,
        data_agent=run.agent,
    )


def _value(run: Result) -> str:
    if run.maze:
        return f"total variation {maze_score([run], 'total_variation_free')}"
    return "no evaluation yet" if run.score is None else number(run.score)


def run_name(run: Result) -> str:
    return f"{title(run.task)}, {run.agent} ({run.label}), seed {run.seed}"


def pictures(run: Result) -> list[Html]:
    return [
        tag(
            "img",
            src=_inline(file, "image/png"),
            alt=f"{file.stem} of {run_name(run)}",
            loading="lazy",
        )
        for file in _own_files(RunDirectory(run.path).figures, "*.png")
        if file.stat().st_size <= INLINE
    ]


def _films(run: Result, page: Path) -> list[Html]:
    found = []
    for file in _own_files(run.path, "*.mp4"):
        if file.stat().st_size <= INLINE:
            film = tag("video", src=_inline(file, "video/mp4"), controls=True, preload="none")
            found.append(tag("figure", film, tag("figcaption", file.name)))
        else:
            where = Path(os.path.relpath(file.resolve(), page.resolve().parent)).as_posix()
            found.append(tag("p", tag("a", f"film: {file.name}", href=quote(where))))
    return found


def _own_files(directory: Path, pattern: str) -> list[Path]:
    """Without links, which could lead out of the run."""
    return sorted(
        file
        for file in directory.glob(pattern)
        if file.is_file() and not file.is_symlink() and not directory.is_symlink()
    )


def _inline(file: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"
