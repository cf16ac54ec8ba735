"""`phimu theory`: the paper's theory, run on finite MDPs."""

from pathlib import Path

from phimu.cli import Command, unknown
from phimu.cli.arguments import call
from phimu.errors import InputError
from phimu.studies.theory import consistency_reading
from phimu.studies.theory.consistency import consistency as measure
from phimu.studies.theory.report import write
from phimu.training.compilation import cache_compilation

SUBCOMMANDS = {
    "consistency": Command("theory", "consistency", "NCE against maximum likelihood as K grows"),
}

USAGE = """\
phimu theory: the paper's theory, run on finite MDPs where every answer is known (docs/finite.md).

Usage: phimu theory SUBCOMMAND ...

{subcommands}

Each writes a picture, a CSV, a paragraph that reads it, and how it was made, into --out.

`phimu theory SUBCOMMAND --help` explains a subcommand."""


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        lines = [f"  {name:<13}{command.summary}" for name, command in SUBCOMMANDS.items()]
        print(USAGE.format(subcommands="\n".join(lines)))
        return
    name, *rest = arguments
    if name not in SUBCOMMANDS:
        raise InputError(unknown(name, SUBCOMMANDS, "subcommand of theory"))
    cache_compilation()
    SUBCOMMANDS[name].run(rest)


def consistency(arguments: list[str]) -> None:
    call(_consistency, arguments, "phimu theory consistency")


def _consistency(
    seeds: int = 10,
    transitions: int = 1_000,
    negatives: tuple[int, ...] = (1, 8, 64, 512, 4_096),
    out: Path = Path("theory"),
) -> None:
    """Measure how far NCE estimates are from the maximum likelihood estimate as K grows.

    The consistency lemma: the ranking loss gets there with any models, the binary loss if their Z
    is the same for all (s, a). Random MDPs of 6 observations and 3 actions; all estimates are
    maxima of the printed objectives, found in float64. About a minute.

    Args:
        seeds: random MDPs, each with its own data and negatives.
        transitions: how many the estimates are made from.
        negatives: the values of K.
        out: the directory for consistency.png, .csv, .md and .json.
    """
    rows = measure(seeds, transitions, negatives)
    reading = consistency_reading.reading(rows)
    write(out, "consistency", rows, reading, consistency_reading.figure(rows))
    print(reading)
