"""`phimu bench`: how fast things are here, as ratios within one run."""

import json
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from phimu.cli.arguments import command, plain_table
from phimu.errors import at_least
from phimu.runs.files import write_atomically
from phimu.speed import loop, offline, updates, vector
from phimu.studies import cost
from phimu.training.threads import threads_in_use


@command("phimu bench", tyro.conf.FlagCreatePairsOff)
def main(
    envs: bool = False,
    rounds: int = 9,
    steps: int = 1_000,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Measure updates and the whole training loop; studies estimate their time by the last result.

    Updates are compared with the machine's own matrix products, the loop on HalfCheetah-v5 with its
    updates. Speeds depend on who else uses the machine; ratios, taken in turns within one run,
    hardly. Each part is printed when it is done, which takes minutes.

    Args:
        envs: only 1, 4 and 16 environments side by side on Hopper-v5, collecting and training.
        rounds: how often each thing is timed; the quickest round counts.
        steps: environment steps in a round.
        json_file: also write the numbers into this file.
    """
    at_least(1, rounds=rounds, steps=steps)
    found: dict[str, Any] = {"threads": threads_in_use()}
    for part in ("envs",) if envs else ("updates", "loop"):
        rows = _measure(part, rounds, steps)
        Console(width=200).print(as_table(rows), "")
        found[part] = [row._asdict() for row in rows]
        if json_file is not None:
            write_atomically(json_file, json.dumps(found, indent=2).encode() + b"\n")
    if not envs:
        cost.record(found)


def _measure(part: str, rounds: int, steps: int) -> list[Any]:
    if part == "envs":
        return vector.vector_speeds(rounds, steps)
    if part == "loop":
        return [loop.loop_speed(name, rounds, steps) for name in loop.CASES]
    online = [updates.update_speed(name, rounds) for name in updates.CASES]
    return online + [offline.planner_speed(name, rounds) for name in offline.PLANNERS]


def as_table(rows: list[Any]) -> Table:
    """Rows of one NamedTuple, a column per field."""
    titles = [name.replace("_", " ") for name in rows[0]._fields]
    return plain_table(titles, (map(_cell, row) for row in rows))


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return "  ".join(_cell(each) for each in value)
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
