"""`phimu tasks` and `phimu agents`: what there is to train on, and what can be trained."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from phimu.cli.arguments import command, plain_table
from phimu.environments.catalogue import SCORED, catalogue
from phimu.errors import InputError

SOURCES = """\
Scores are mean ± standard deviation of the return after 200K steps. random and SAC on mbbl/ are
MBBL's own; SAC (three layers) on dmc/ and both CTRL columns are the CTRL paper's; random on dmc/ is
ours, over 20 episodes. Any other Gymnasium id with continuous actions can be trained on as well."""


@command("phimu tasks")
def tasks(part: Annotated[str, tyro.conf.Positional] = "", picture: Path | None = None) -> None:
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
    right, rows = ("obs", "act", "horizon", "dt", *SCORED.values()), []
    for task, observation_dim, action_dim, horizon, seconds, scores in entries:
        known = [scores.get(name) for name in SCORED]
        cells = ["" if s is None else f"{s.mean:,.1f} ± {s.std:,.1f}" for s in known]
        sizes = (observation_dim, action_dim, horizon)
        rows.append([task, *map(str, sizes), f"{seconds:g}", *cells])
    Console(width=200).print(plain_table(["task"], rows, right))
    print(f"\n{SOURCES}")


@command("phimu agents")
def agents() -> None:
    """List the agents and presets of `phimu train`."""
    from phimu.agents import AGENTS, PRESETS

    rows = []
    for name, entry in AGENTS.items():
        sources = {"environments": entry.presets(False), "logged data": entry.presets(True)}
        for source, found in sources.items():
            if found:
                rows.append([name, source, entry.summary, ", ".join(found)])
    known = plain_table(["agent", "learns from", "what it is", "presets"], rows)
    Console().print(known, "", plain_table(["preset", "what it is"], PRESETS.items()))
