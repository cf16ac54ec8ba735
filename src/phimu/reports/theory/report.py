"""What every `phimu theory` command leaves behind."""

import csv
import io
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from phimu.reports.figures import save
from phimu.runs.files import write_atomically
from phimu.runs.provenance import command_line, session_facts


def write(out: Path, name: str, rows: Sequence[Any], reading: str, figure: Figure) -> None:
    """NAME.png, NAME.csv with the rows (of one NamedTuple), NAME.md with what they say.

    NAME.json has the command, the versions and the code revision.
    """
    out.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    lines = csv.writer(table, lineterminator="\n")
    lines.writerow(rows[0]._fields)
    lines.writerows([_plain(value) for value in row] for row in rows)
    facts = session_facts(command_line())
    save(figure, out / f"{name}.png")
    write_atomically(out / f"{name}.csv", table.getvalue().encode())
    write_atomically(out / f"{name}.md", textwrap.fill(reading, 100).encode() + b"\n")
    write_atomically(out / f"{name}.json", json.dumps(facts, indent=2).encode() + b"\n")


def _plain(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
