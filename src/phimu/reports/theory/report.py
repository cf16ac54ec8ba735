"""What every `phimu theory` command leaves behind."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from phimu.reports.figures import save
from phimu.runs.files import write_atomically
from phimu.runs.provenance import command_line, session_facts


def write(out: Path, name: str, rows: Sequence[Any], tables: str, figure: Figure) -> None:
    """NAME.png, NAME.csv with the rows (of one NamedTuple), NAME.md with the tables made of them.

    NAME.json has the command, the versions and the code revision.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(rows[0]._fields)
    lines.writerows([f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows)
    facts = json.dumps(session_facts(command_line()), indent=2) + "\n"
    save(figure, out / f"{name}.png")
    for suffix, content in (("csv", text.getvalue()), ("md", tables), ("json", facts)):
        write_atomically(out / f"{name}.{suffix}", content.encode())
