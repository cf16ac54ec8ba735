"""One page that shows what was run beside what was published; it needs no network and no server."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from phimu.reports.comparison import order, tables
from phimu.reports.numbers import hours
from phimu.reports.page.compared import others, study_section
from phimu.reports.page.markup import Html, join, tag
from phimu.reports.page.runs import each_run, machines, maze, title, what_was_run
from phimu.reports.page.series import drawn
from phimu.reports.rows import Result


def page(results: Sequence[Result], out: Path) -> str:
    """The report of these runs as HTML; `out` is where it will be."""
    results = sorted(results, key=order)
    found = tables(results)
    anchors = {run: f"run-{index}" for index, run in enumerate(results, 1)}
    studies = [study_section(each, anchors) for each in found]
    parts: dict[str, Any] = {
        "summary": _summary(results),
        "filters": _filters(results),
        "machines": machines(results),
        "runs": what_was_run(results, anchors),
        "tables": studies[:3],
        "maze": maze(results, anchors),
        "ablations": studies[3:],
        "gymnasium": others("gymnasium", "return", results),
        "d4rl_v2": others("d4rl-v2", "score", results),
        "each_run": each_run(results, anchors, out),
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
