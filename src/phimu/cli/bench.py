"""`phimu bench`: how fast things are here, as ratios within one run."""

import json
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from phimu.studies.bench import ROUNDS, STEPS, environment_speeds
from phimu.training.run_directory import write_atomically


def main(arguments: list[str]) -> None:
    tyro.cli(_run, args=arguments, prog="phimu bench")


def _run(
    rounds: int = ROUNDS,
    steps: int = STEPS,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Measure steps a second of every MBBL task against the bare Gymnasium body below it.

    The two take turns within one process, and the ratio is the median over their rounds: on a
    shared machine it is steadier than the speeds themselves.

    Args:
        rounds: how often the two take turns.
        steps: environment steps in a turn.
        json_file: also write the numbers into this file.
    """
    speeds = environment_speeds(rounds=rounds, steps=steps)
    table = Table("task", "steps/s", "bare body", "steps/s", "ratio", box=None, pad_edge=False)
    for row in speeds:
        own, bare = (f"{x:,.0f}" for x in (row.steps_per_second, row.bare_steps_per_second))
        table.add_row(row.task, own, row.bare, bare, f"{row.ratio:.2f}")
    Console(width=200).print(table)
    if json_file is not None:
        content = {"environments": [row._asdict() for row in speeds]}
        write_atomically(json_file, json.dumps(content, indent=2).encode() + b"\n")
