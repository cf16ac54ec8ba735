"""What every `phimu theory` command leaves behind."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from phimu.reports.figures import save
from phimu.reports.markdown import csv_text
from phimu.runs.files import write_atomically
from phimu.runs.provenance import command_line, session_facts


def write(out: Path, name: str, rows: Sequence[Any], tables: str, figure: Figure) -> None:
    """NAME.png, NAME.csv with the rows (of one NamedTuple), NAME.md with the tables made of them.

    NAME.json has the command, the versions and the code revision.
    """
    cells = ([f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows)
    facts = json.dumps(session_facts(command_line()), indent=2) + "\n"
    save(figure, out / f"{name}.png")
    contents = {"csv": csv_text(rows[0]._fields, cells), "md": tables, "json": facts}
    for suffix, content in contents.items():
        write_atomically(out / f"{name}.{suffix}", content.encode())
