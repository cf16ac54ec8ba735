"""`phimu bench`: how fast things are here, as ratios within one run."""

import json
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from phimu.cli.arguments import call
from phimu.errors import InputError
from phimu.runs.files import write_atomically
from phimu.speed import environments, loop, offline, updates
from phimu.studies import cost
from phimu.training.threads import threads_in_use

PLAIN = ["updates", "loop", "environments"]  # without a flag


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu bench", [tyro.conf.FlagCreatePairsOff])


def _run(
    environments_only: Annotated[bool, tyro.conf.arg(name="environments")] = False,
    offline_only: Annotated[bool, tyro.conf.arg(name="offline")] = False,
    rounds: int = 9,
    steps: int = 1_000,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Measure updates, the whole training loop and tasks; or only the parts that are named.

    Updates are compared with the machine's own matrix products, the loop on HalfCheetah-v5 with its
    updates, tasks with the bare bodies below them. Speeds depend on who else uses the machine;
    ratios, taken in turns within one run, hardly. Each part is printed when it is done; the updates
    take minutes, so does the loop.

    Args:
        environments_only: tasks against bare bodies, in a minute.
        offline_only: updates on logged data: CTRL-LCB's planner with phi of the whole set computed
            once against phi computed for each batch; on one thread. A round takes about two
            minutes.
        rounds: how often each thing is timed; the quickest round counts, of tasks the median ratio.
        steps: environment steps in a round; with --offline, updates.
        json_file: also write the numbers into this file.
    """
    if min(rounds, steps) < 1:
        raise InputError(f"rounds is {rounds} and steps is {steps}: give at least 1 of each.")
    flags = {
        "environments": environments_only,
        "offline": offline_only,
    }
    plain: dict[str, Any] = {"threads": threads_in_use()}
    for part in [name for name, asked in flags.items() if asked] or PLAIN:
        found = _measure(part, rounds, steps)
        Console(width=200).print(as_table(found), "")
        plain[part] = [row._asdict() for row in found]
        if json_file is not None:
            write_atomically(json_file, json.dumps(plain, indent=2).encode() + b"\n")
    if set(PLAIN) <= plain.keys():
        cost.record(plain)


def _measure(part: str, rounds: int, steps: int) -> list[Any]:
    if part == "updates":
        online = [updates.update_speed(name, rounds) for name in updates.CASES]
        return online + [offline.planner_speed(name, rounds) for name in offline.PLANNERS]
    if part == "loop":
        return [loop.loop_speed(name, rounds, steps) for name in loop.CASES]
    if part == "environments":
        return environments.environment_speeds(rounds, steps)
    return offline.offline_speeds(rounds, steps)


def as_table(rows: list[Any]) -> Table:
    """Rows of one NamedTuple, a column per field."""
    table = Table(box=None, pad_edge=False)
    for name in rows[0]._fields:
        table.add_column(name.replace("_", " "))
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return "  ".join(_cell(each) for each in value)
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
