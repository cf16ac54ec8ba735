"""What was run, the maze's figure, and a section for each run."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from phimu.reports import numbers
from phimu.reports.comparison import ours
from phimu.reports.numbers import MAZE_SCORES, NOT_RUN, hours, maze_score
from phimu.reports.page.markup import Html, join, line, table, tag
from phimu.reports.rows import Result, configurations, maze_groups
from phimu.runs.directory import RunDirectory
from phimu.studies.tables import TASK_TITLES

INLINE = 2_000_000  # bytes; a larger film stays a file beside the page

Anchors = dict[Result, str]  # where in the page each run has its section


def title(task: str) -> str:
    return TASK_TITLES.get(task, task)


def links(runs: Sequence[Result], anchors: Anchors) -> list[Html | str]:
    """To the sections of these runs, by their seeds."""
    found: list[Html | str] = []
    for run in runs:
        found += [tag("a", run.seed, href=f"#{anchors[run]}", title=f"seed {run.seed}"), " "]
    return found[:-1]


def what_was_run(results: Sequence[Result], anchors: Anchors) -> Html:
    heads = [tag("th", name, scope="col") for name in ("task", "agent", "settings", "seeds")]
    right = [tag("th", n, scope="col", class_="number") for n in ("steps", "score", "hours")]
    head = tag("tr", heads, right, tag("th", "phimu", scope="col"))
    groups = [_configuration(group, anchors) for group in configurations(results)]
    return table(head, join(groups), class_="ran")


def machines(results: Sequence[Result]) -> str:
    """Platforms and versions, each once."""
    found: dict[str, None] = {}
    for result in results:
        first, last = result.sessions[0], result.sessions[-1]
        versions = last.get("versions") or {}
        known = [name for name in ("python", "jax", "mujoco") if versions.get(name)]
        cores = f"{first['cpu_count']} cores" if "cpu_count" in first else "cores not recorded"
        where = str(first.get("platform", "platform not recorded"))
        found[", ".join([where, cores, *(f"{name} {versions[name]}" for name in known)])] = None
    return "On " + "; on ".join(found) + "."


def _configuration(group: Sequence[Result], anchors: Anchors) -> Html:
    first, done = group[0], [run.done for run in group]
    scored = [run for run in group if run.score is not None]
    unscored = "in the maze's table" if any(run.maze for run in group) else "no evaluation yet"
    unfinished = sum(not run.finished for run in group)
    late = tag("small", f"{unfinished} unfinished") if unfinished else None
    cells = [
        first.agent,
        first.label,
        links(group, anchors),
        tag("td", numbers.span(min(done), max(done)), late, class_="number"),
        tag("td", numbers.score(ours(scored)) if scored else unscored, class_="number"),
        tag("td", hours([run.hours for run in group]), class_="number"),
        ", ".join(sorted({_revision(run) for run in group})),
    ]
    command = tag("tr", tag("td", tag("code", first.command), colspan=8), class_="command")
    facts = line(title(first.task), cells)
    return tag("tbody", facts, command, data_task=first.task, data_agent=first.agent)


def _revision(run: Result) -> str:
    """`0.1.0 (8d39d91)`, with a plus sign if there were changes that are in no commit."""
    last = run.sessions[-1]
    version = (last.get("versions") or {}).get("phimu") or "?"
    revision = last.get("revision") or {}
    commit = str(revision.get("commit", ""))[:7]
    return f"{version} ({commit}{'+' if revision.get('dirty') else ''})" if commit else str(version)


MAZE = (
    "Total variation between the learned and the true transition (0 is best), how far the learned "
    "one is from integrating to one, and episodes that reached the goal."
)


def maze(results: Sequence[Result], anchors: Anchors) -> Html:
    """Scores of each configuration, and the heat maps of its first seed."""
    rows, figures = [], []
    for group in maze_groups(results):
        first = group[0]
        cells = [*(maze_score(group, name) for name in MAZE_SCORES), len(group)]
        head = [first.agent, tag("small", first.label)]
        rows.append(line(head, cells, data_agent=first.agent, data_task=first.task))
        caption = tag("figcaption", tag("a", _name(first), href=f"#{anchors[first]}"))
        figures += [tag("figure", image, caption) for image in _pictures(first)]
    heads = ["configuration", *MAZE_SCORES.values(), "seeds"]
    return tag(
        "section",
        tag("h2", "Figure 1: the learned transition of the four-room maze"),
        tag("p", MAZE, class_="lead"),
        table(heads, rows) if rows else tag("p", NOT_RUN, class_="none"),
        figures,
        id="maze",
    )


def each_run(results: Sequence[Result], anchors: Anchors, page: Path) -> list[Html]:
    """`page` is where the report will be, from which large films are linked."""
    above = [group[0] for group in maze_groups(results)]  # their pictures are in the maze's section
    return [_run(run, anchors[run], page, run not in above) for run in results]


def _run(run: Result, anchor: str, page: Path, with_pictures: bool) -> Html:
    facts: dict[str, Any] = {
        "note": run.note or None,
        "command": tag("code", run.command),
        "settings": run.label,
        "steps": numbers.thousands(run.done) + ("" if run.finished else ", unfinished"),
        "started": run.sessions[0].get("created", "not recorded"),
        "sessions": len(run.sessions),
        "threads": run.sessions[-1].get("threads", "not recorded"),
        "hours": hours([run.hours]),
        "phimu": _revision(run),
        "directory": tag("code", run.path),
    }
    known = [(name, fact) for name, fact in facts.items() if fact is not None]
    return tag(
        "details",
        tag("summary", tag("b", _name(run)), tag("span", _value(run), class_="score")),
        tag("dl", [[tag("dt", name), tag("dd", fact)] for name, fact in known]),
        tag("div", class_="metrics", data_run=anchor),
        [tag("figure", picture) for picture in (_pictures(run) if with_pictures else [])],
        _films(run, page),
        id=anchor,
        class_="run",
        data_task=run.task,
        data_agent=run.agent,
    )


def _value(run: Result) -> str:
    if run.maze:
        return f"total variation {maze_score([run], 'total_variation_free')}"
    return "no evaluation yet" if run.score is None else numbers.number(run.score)


def _name(run: Result) -> str:
    return f"{title(run.task)}, {run.agent} ({run.label}), seed {run.seed}"


def _pictures(run: Result) -> list[Html]:
    found = []
    for file in _own_files(RunDirectory(run.path).figures, "*.png"):
        if file.stat().st_size <= INLINE:
            about = f"{file.stem} of {_name(run)}"
            found.append(tag("img", src=_inline(file, "image/png"), alt=about, loading="lazy"))
    return found


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
