"""`phimu theory`: the paper's theory, run on finite MDPs."""

import json
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import tyro

from phimu.cli import Command, dispatch
from phimu.cli.arguments import call
from phimu.finite.experiments.consistency import consistency as measure_consistency
from phimu.finite.experiments.offline import offline as measure_offline
from phimu.finite.experiments.online import online as measure_online
from phimu.finite.experiments.scaling import scaling as measure_scaling
from phimu.reports.figures import save
from phimu.reports.markdown import csv_text
from phimu.reports.theory import figures, tables
from phimu.runs.files import cache_compilation, write_atomically
from phimu.runs.provenance import command_line, session_facts
from phimu.studies.known_worlds import representations as measure_representations

SUBCOMMANDS = {
    "consistency": Command("theory", "consistency", "NCE against maximum likelihood as K grows"),
    "online": Command("theory", "online", "Algorithm 1 and its rivals on a combination lock"),
    "offline": Command("theory", "offline", "Algorithm 2 against the size and coverage of data"),
    "scaling": Command(
        "theory", "scaling", "samples against d, A, 1 / (1 - discount), 1 / epsilon"
    ),
    "representations": Command(
        "theory", "representations", "every loss of phi where the transition is known"
    ),
}

USAGE = """\
phimu theory: the paper's theory, run on finite MDPs where every answer is known (docs/finite.md).

Usage: phimu theory SUBCOMMAND ...

{commands}

Each writes a picture, a CSV, tables in Markdown, and how they were made, into --out.

`phimu theory SUBCOMMAND --help` explains a subcommand."""


def main(arguments: list[str]) -> None:
    dispatch(arguments, SUBCOMMANDS, USAGE, "subcommand of theory")


def _run(experiment: Callable[..., list[Any]], arguments: list[str]) -> None:
    """The settings are the arguments of the experiment's function, with --out beside them."""
    name = experiment.__name__

    @wraps(experiment)
    def collect(**given: Any) -> dict[str, Any]:
        return given

    def command(
        settings: Annotated[dict[str, Any], tyro.conf.arg(name="", constructor=collect)],
        out: Annotated[
            Path, tyro.conf.arg(help=f"where to write {name}.png, .csv, .md, .json.")
        ] = Path("theory"),
    ) -> None:
        print(write(out, name, experiment(**settings)), end="")

    command.__doc__ = experiment.__doc__
    cache_compilation()
    call(command, arguments, f"phimu theory {name}")


def write(out: Path, name: str, rows: list[Any]) -> str:
    """The rows, of one NamedTuple, their picture, how they were made, and the tables of them."""
    save(getattr(figures, name)(rows), out / f"{name}.png")
    cells = ([f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows)
    contents = {
        "csv": csv_text(rows[0]._fields, cells),
        "md": getattr(tables, name)(rows),
        "json": json.dumps(session_facts(command_line()), indent=2) + "\n",
    }
    for suffix, content in contents.items():
        write_atomically(out / f"{name}.{suffix}", content.encode())
    return contents["md"]


consistency = partial(_run, measure_consistency)
online = partial(_run, measure_online)
offline = partial(_run, measure_offline)
scaling = partial(_run, measure_scaling)
representations = partial(_run, measure_representations)
