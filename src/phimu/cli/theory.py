"""`phimu theory`: the paper's theory, run on finite MDPs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from phimu.cli import Command, dispatch
from phimu.cli.arguments import call
from phimu.finite.experiments.consistency import consistency as measure_consistency
from phimu.finite.experiments.offline import offline as measure_offline
from phimu.finite.experiments.online import online as measure_online
from phimu.finite.experiments.scaling import scaling as measure_scaling
from phimu.reports.theory import figures, tables
from phimu.reports.theory.report import write
from phimu.training.compilation import cache_compilation

SUBCOMMANDS = {
    "consistency": Command("theory", "consistency", "NCE against maximum likelihood as K grows"),
    "online": Command("theory", "online", "Algorithm 1 and its rivals on a combination lock"),
    "offline": Command("theory", "offline", "Algorithm 2 against the size and coverage of data"),
    "scaling": Command(
        "theory", "scaling", "samples against d, A, 1 / (1 - discount), 1 / epsilon"
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


def _call(function: Callable[..., None], arguments: list[str]) -> None:
    cache_compilation()
    call(function, arguments, f"phimu theory {function.__name__.removeprefix('_')}")


def _leave(out: Path, name: str, rows: Sequence[Any]) -> None:
    """What a subcommand found, in files, and its tables on the terminal."""
    found = getattr(tables, name)(rows)
    write(out, name, rows, found, getattr(figures, name)(rows))
    print(found, end="")


def consistency(arguments: list[str]) -> None:
    _call(_consistency, arguments)


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
    _leave(out, "consistency", measure_consistency(seeds, transitions, negatives))


def online(arguments: list[str]) -> None:
    _call(_online, arguments)


def _online(
    seeds: int = 10,
    samples: int = 30_000,
    horizon: int = 10,
    actions: int = 10,
    batch: int = 100,
    out: Path = Path("theory"),
) -> None:
    """Explore combination locks with CTRL-UCB as printed, Rep-UCB, LSVI-UCB, FLAMBE and less.

    Suboptimality and regret against samples, and how many samples each needs to be within 0.1 of
    the value range. Two minutes or three.

    Args:
        seeds: locks, each with a code of its own.
        samples: how many CTRL-UCB gets; uniform and epsilon-greedy get five times as many.
        horizon: levels of a lock.
        actions: of which one opens a level.
        batch: samples between two plans.
        out: the directory for online.png, .csv, .md and .json.
    """
    _leave(out, "online", measure_online(seeds, samples, horizon, actions, batch))


def offline(arguments: list[str]) -> None:
    _call(_offline, arguments)


def _offline(
    seeds: int = 10,
    samples: tuple[int, ...] = (64, 256, 1_024, 4_096, 16_384),
    coverage_samples: int = 1_024,
    out: Path = Path("theory"),
) -> None:
    """Plan from logged data with CTRL-LCB as printed, without its penalty, and by cloning.

    Suboptimality against the size of the data and against C*, in the worst case over a family of
    MDPs, and where an action that the optimal policy needs is missing. About a minute.

    Args:
        seeds: each stands for eight MDPs and datasets of every kind.
        samples: the sizes of the data, with all actions equally often.
        coverage_samples: the size of the data where C* is varied or an action is missing.
        out: the directory for offline.png, .csv, .md and .json.
    """
    _leave(out, "offline", measure_offline(seeds, samples, coverage_samples))


def scaling(arguments: list[str]) -> None:
    _call(_scaling, arguments)


def _scaling(
    seeds: int = 10, samples: int = 20_000, batch: int = 50, out: Path = Path("theory")
) -> None:
    """Count the samples CTRL-UCB needs as d, A, 1 / (1 - discount) and 1 / epsilon grow.

    The fitted powers stand beside the exponents of the theorem, which are upper bounds. Two minutes
    or three.

    Args:
        seeds: MDPs of every size.
        samples: at most.
        batch: samples between two plans.
        out: the directory for scaling.png, .csv, .md and .json.
    """
    _leave(out, "scaling", measure_scaling(seeds, samples, batch))
