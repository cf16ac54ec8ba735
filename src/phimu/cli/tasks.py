"""`phimu tasks`: what there is to train on, as a table or as a sheet of pictures."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from phimu.cli.arguments import call
from phimu.environments.catalogue import SCORED, Entry, catalogue
from phimu.errors import InputError

SOURCES = """\
Scores are mean ± standard deviation of the return after 200K steps. random and SAC on mbbl/ are
MBBL's own; SAC (three layers) on dmc/ and both CTRL columns are the CTRL paper's; random on dmc/ is
ours, over 20 episodes. Any other Gymnasium id with continuous actions can be trained on as well."""


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu tasks")


def _run(
    part: Annotated[str, tyro.conf.Positional] = "",
    picture: Path | None = None,
) -> None:
    """List the tasks: sizes, decisions in an episode, seconds in a decision, published scores.

    Args:
        part: show only ids with this in them, such as mbbl or walker.
        picture: instead, draw a frame of each into this PNG or SVG; needs no GPU and no screen.
    """
    entries = [entry for entry in catalogue() if part.lower() in entry.task.lower()]
    if not entries:
        raise InputError(f"No task has {part!r} in its id: `phimu tasks` lists them all.")
    if picture is not None:
        from phimu.reports.figures import contact_sheet

        contact_sheet([entry.task for entry in entries], picture)
        print(picture)
        return
    # Wider than most windows: a table that overflows can still be read, one that is cut cannot.
    Console(width=200).print(_table(entries))
    print(f"\n{SOURCES}")


def _table(entries: list[Entry]) -> Table:
    table = Table("task", box=None, pad_edge=False)
    for title in ("obs", "act", "horizon", "dt", *SCORED.values()):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in entries:
        scores = (entry.scores.get(name) for name in SCORED)
        table.add_row(
            entry.task,
            *(str(n) for n in (entry.observation_dim, entry.action_dim, entry.horizon)),
            f"{entry.seconds:g}",
            *("" if s is None else f"{s.mean:,.1f} ± {s.std:,.1f}" for s in scores),
        )
    return table
