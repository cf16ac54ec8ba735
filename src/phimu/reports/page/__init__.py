"""One page that shows what was run beside what was published; it needs no network and no server."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from phimu.reports.comparison import Table, order, tables
from phimu.reports.duels import Duel, duels
from phimu.reports.numbers import hours
from phimu.reports.page.compared import others, study_section
from phimu.reports.page.markup import Html, join, tag
from phimu.reports.page.runs import Anchors, each_run, machines, maze, title, what_was_run
from phimu.reports.page.series import drawn
from phimu.reports.page.verdicts import said
from phimu.reports.rows import Result

NONE_BESIDE = "None of these runs is in one of the paper's tables."


def page(results: Sequence[Result], out: Path) -> str:
    """The report of these runs as HTML; `out` is where it will be."""
    results = sorted(results, key=order)
    found, met = tables(results), duels(results)
    anchors = {run: f"run-{index}" for index, run in enumerate(results, 1)}
    sections = _sections(results, found, anchors)
    ran = [section for section in sections if section.ran]
    not_run = [section for section in sections if not section.ran]
    parts: dict[str, Any] = {
        "summary": _summary(results),
        "nav": _links(met, ran, bool(not_run)),
        "filters": _filters(results),
        "said": said(met),
        "machines": machines(results),
        "runs": what_was_run(results, anchors),
        "beside": [section.html for section in ran] or tag("p", NONE_BESIDE, class_="none"),
        "each_run": each_run(results, anchors, out),
        "rest": _folded(not_run),
    }
    script = _template("report.js")
    return Template(_template("report.html")).substitute(
        # Nothing but this script runs, and nothing is fetched, whatever the runs' files hold.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=_template("report.css"),
        script=script,
        # JSON that cannot end the element that it stands in.
        data=json.dumps(
            drawn(results, found, anchors), separators=(",", ":"), allow_nan=False
        ).replace("<", "\\u003c"),
        **{name: join(part) for name, part in parts.items()},
    )


class Section(NamedTuple):
    """Runs beside what was published."""

    anchor: str
    title: str
    html: Html
    ran: bool  # anything in it


def _sections(results: Sequence[Result], found: Sequence[Table], anchors: Anchors) -> list[Section]:
    studies = [
        Section(
            each.study.name,
            each.study.title.split(":")[0] if each.study.name[:5] == "table" else each.study.title,
            study_section(each, anchors),
            any(cell.runs for row in each.rows for cell in row.cells.values()),
        )
        for each in found
    ]
    in_maze = Section("maze", "Maze", maze(results, anchors), any(run.maze for run in results))
    elsewhere = [
        Section(name, "Gymnasium" if name == "gymnasium" else "D4RL v2", *others(name, results))
        for name in ("gymnasium", "d4rl-v2")
    ]
    return [*studies[:3], in_maze, *studies[3:], *elsewhere]


def _links(met: Sequence[Duel], ran: Sequence[Section], more: bool) -> list[Html]:
    own = [("said", "What the runs say")] if met else []
    own += [("runs", "What was run"), ("curves", "Curves")]
    own += [(section.anchor, section.title) for section in ran]
    own += [("each-run", "Each run"), *([("not-run", "Not run")] if more else [])]
    return [tag("a", title, href=f"#{anchor}") for anchor, title in own]


def _folded(not_run: Sequence[Section]) -> Html | None:
    if not not_run:
        return None
    titles = ", ".join(section.title for section in not_run)
    about = tag("summary", f"What was published, and nothing of it run here: {titles}")
    return tag("details", about, [section.html for section in not_run], id="not-run")


def _template(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _summary(results: Sequence[Result]) -> str:
    """`16 runs of 4 agents on 3 tasks; hours: 12.5.`"""
    agents, tasks = ({getattr(run, name) for run in results} for name in ("agent", "task"))
    time = hours([run.hours for run in results])
    unfinished = sum(not run.finished for run in results)
    parts = [f"{len(results)} runs of {len(agents)} agents on {len(tasks)} tasks", f"hours: {time}"]
    return "; ".join(parts + ([f"{unfinished} not finished"] if unfinished else [])) + "."


def _filters(results: Sequence[Result]) -> list[Html]:
    kinds = {
        "task": {run.task: title(run.task) for run in results},
        "agent": {name: name for name in sorted({run.agent for run in results})},
    }
    fields = []
    for kind, values in kinds.items():
        boxes = [
            tag("label", tag("input", type="checkbox", name=kind, value=value), tag("span", text))
            for value, text in values.items()
        ]
        fields.append(tag("fieldset", tag("legend", kind), boxes))
    return fields
