"""One page that shows what was run beside what was published; it needs no network and no server."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from phimu.reports.comparison import Table, order, tables
from phimu.reports.numbers import hours
from phimu.reports.page.compared import APART, apart_section, study_section
from phimu.reports.page.markup import Html, join, section, tag
from phimu.reports.page.runs import Anchors, each_run, maze_section, title, what_was_run
from phimu.reports.page.series import drawn
from phimu.reports.rows import Result


def page(results: Sequence[Result], out: Path) -> str:
    """The report of these runs as HTML; `out` is where it will be."""
    results = sorted(results, key=order)
    found = tables(results)
    anchors = {run: f"run-{index}" for index, run in enumerate(results, 1)}
    script = _template("report.js")
    return Template(_template("report.html")).substitute(
        # Nothing but this script runs, and nothing is fetched, whatever the runs' files hold.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=_template("report.css"),
        script=script,
        data=_json(drawn(results, found, anchors)),
        summary=_summary(results),
        links=_links(found),
        filters=_filters(results),
        body=join(_sections(results, found, anchors, out)),
    )


def _template(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _json(content: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _sections(
    results: Sequence[Result], found: Sequence[Table], anchors: Anchors, out: Path
) -> list[Html]:
    studies = [study_section(table, anchors) for table in found]
    about = "Means over seeds, and in bands their range. Dashed: the paper's final score."
    return [
        what_was_run(results, anchors),
        *studies[:3],
        section("curves", "Learning curves", about, tag("div", id="charts")),
        maze_section(results, anchors),
        *studies[3:],
        *(apart_section(name, results) for name in APART),
        each_run(results, anchors, out),
    ]


def _summary(results: Sequence[Result]) -> str:
    """`16 runs of 4 agents on 3 tasks; hours: 12.5.`"""
    agents, tasks = ({getattr(run, name) for run in results} for name in ("agent", "task"))
    time = hours([run.hours for run in results])
    unfinished = sum(not run.finished for run in results)
    parts = [f"{len(results)} runs of {len(agents)} agents on {len(tasks)} tasks", f"hours: {time}"]
    return "; ".join(parts + ([f"{unfinished} not finished"] if unfinished else [])) + "."


def _links(found: Sequence[Table]) -> Html:
    names = {"runs": "What was run"}
    names |= {table.study.name: table.study.title.partition(":")[0] for table in found[:3]}
    names |= {"curves": "Curves", "maze": "Maze", found[3].study.name: "Ablations"}
    names |= {"gymnasium": "Others", "each-run": "Each run"}
    return join([tag("a", text, href=f"#{name}") for name, text in names.items()])


def _filters(results: Sequence[Result]) -> Html:
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
    return join(fields)
