"""The command line of these scripts: the table and the JSON are those of `phimu bench`."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from phimu.cli.bench import as_table
from phimu.errors import InputError
from phimu.reports.figures import check_suffix
from phimu.runs.files import write_atomically
from phimu.training.threads import limit_threads, threads_in_use
from venvs import Requirements, own_venv

Rows = Sequence[Any]  # of one NamedTuple
Measure = Callable[[Path, int, int], Rows]  # (venv, rounds, steps)


def run_peers(
    about: str,
    part: str,
    venv: str,
    requirements: Requirements,
    measure: Measure,
    arguments: list[str] | None = None,
    **defaults: int,
) -> int:
    """Measure, print and write the rows of `part`; returns the exit code.

    The libraries are in the `venv` of the cache directory, or in the one that --venv names.
    `defaults` are of rounds and steps, if others than usual.
    """
    parser = _parser(about)
    parser.set_defaults(**defaults)
    parser.add_argument(
        "--venv",
        type=Path,
        help="a virtual environment that has the other libraries; nothing is installed then",
    )
    asked = parser.parse_args(arguments)

    def rows() -> Rows:
        where = asked.venv or own_venv(print, venv, requirements)
        return measure(where, asked.rounds, asked.steps)

    return _report(asked, part, rows)


def run(
    about: str,
    part: str,
    measure: Callable[[int, int], Rows],
    draw: Callable[[Path, Any], None] | None = None,
    arguments: list[str] | None = None,
) -> int:
    """The same for phimu alone; rows that can be drawn have --picture."""
    parser = _parser(about)
    if draw is not None:
        parser.add_argument("--picture", type=Path, help="draw the rows into this PNG or SVG")
    asked = parser.parse_args(arguments)

    def rows() -> Rows:
        if draw is None or asked.picture is None:
            return measure(asked.rounds, asked.steps)
        check_suffix(asked.picture)  # before the work
        found = measure(asked.rounds, asked.steps)
        draw(asked.picture, found)
        return found

    return _report(asked, part, rows)


def _parser(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="how often each is timed")
    parser.add_argument("--steps", type=int, default=1_000, help="steps or updates in a round")
    parser.add_argument("--json", type=Path, help="also write the numbers into this file")
    return parser


def _report(asked: argparse.Namespace, part: str, measured: Callable[[], Rows]) -> int:
    limit_threads(None)  # OMP_NUM_THREADS then holds for both sides of a comparison
    try:
        if min(asked.rounds, asked.steps) < 1:
            raise InputError(
                f"rounds is {asked.rounds} and steps is {asked.steps}: give at least 1 of each."
            )
        rows = measured()
        Console(width=200).print(as_table(list(rows)), "")
        if asked.json is not None:
            found = {"threads": threads_in_use(), part: [row._asdict() for row in rows]}
            write_atomically(asked.json, json.dumps(found, indent=2).encode() + b"\n")
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0
