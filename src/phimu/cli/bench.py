"""`phimu bench`: how fast things are here, as ratios within one run."""

import json
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from phimu.studies.speed import environments, updates
from phimu.training.run_directory import write_atomically


def main(arguments: list[str]) -> None:
    tyro.cli(_run, args=arguments, prog="phimu bench")


def _run(
    environments_only: Annotated[bool, tyro.conf.arg(name="environments")] = False,
    rounds: int = 9,
    steps: int = 1_000,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Measure updates against the machine's own matrix products, and tasks against bare bodies.

    Speeds depend on who else uses the machine; ratios, taken in turns within one run, hardly.

    Args:
        environments_only: leave out the updates, which take minutes.
        rounds: how often each thing is timed; of updates the quickest round counts, of tasks the
            median ratio.
        steps: environment steps in a round.
        json_file: also write the numbers into this file.
    """
    found: dict[str, list[Any]] = {}
    if not environments_only:
        found["updates"] = [updates.update_speed(name, rounds) for name in updates.CASES]
    found["environments"] = environments.environment_speeds(rounds, steps)
    console = Console(width=200)
    for rows in found.values():
        console.print(_table(rows), "")
    if json_file is not None:
        plain = {name: [row._asdict() for row in rows] for name, rows in found.items()}
        write_atomically(json_file, json.dumps(plain, indent=2).encode() + b"\n")


def _table(rows: list[Any]) -> Table:
    """Rows of one NamedTuple, a column per field."""
    table = Table(box=None, pad_edge=False)
    for name in rows[0]._fields:
        table.add_column(name.replace("_", " "))
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
