"""`phimu data penalty RUN --data SOURCE`: where a CTRL-LCB run is careful."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from phimu.cli.arguments import call
from phimu.cli.evaluate import run_on_data
from phimu.data.sets.opening import open_set
from phimu.errors import InputError
from phimu.reports.figures import check_suffix
from phimu.reports.penalty import penalties, penalty_figure, table


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu data penalty")


def _run(
    run: Annotated[Path, tyro.conf.Positional],
    data: str,
    other: tuple[str, ...] = (),
    picture: Path | None = None,
    seed: int = 0,
) -> None:
    """Say how large the elliptical penalty of a run is on its data, and away from it.

    Prints mean, median and 95 % quantile of the penalty on the data's pairs of state and action, on
    its states with the policy's and with random actions, on the pairs of other datasets,
    and on random states far off; and the ratio of each mean to that of the data.

    Args:
        run: a run directory of ctrl-lcb.
        data: what it was trained on: d4rl:FILE, minari:ID or an .npz.
        other: further datasets of the same task, such as another policy's.
        picture: also draw the distributions into this PNG or SVG.
        seed: of random actions and states.
    """
    if picture is not None:
        check_suffix(picture)  # before the work
    logged = open_set(data)
    config, loaded = run_on_data(run, logged)
    others = {}
    for source in other:
        others[source] = open_set(source)
        if others[source].spec != logged.spec:
            raise InputError(
                f"{source} has other sizes than {data}: name a dataset of the same task."
            )
    found = penalties(loaded, logged, others, seed)
    shown = Table("pairs", "mean", "median", "95 %", "x the data's", box=None, pad_edge=False)
    for pairs, *numbers in table(found):
        shown.add_row(pairs, *(f"{number:.3g}" for number in numbers))
    Console(width=200).print(shown)
    if picture is not None:
        penalty_figure(picture, found, f"{config.task}, step {loaded.step:,}")
        print(picture)
