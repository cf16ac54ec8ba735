"""`phimu gap`: CTRL-LCB with and without its penalty, where one doorway is not in the data."""

import json
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from phimu.cli.arguments import THREADS, command, plain_table
from phimu.collection.maze_gap import follow, gap_set
from phimu.data.logged import LoggedDataset
from phimu.errors import at_least
from phimu.reports.figures import check_suffix
from phimu.reports.gap import PENALTY, UPDATES, gap_figure, penalty_grid, settings
from phimu.runs.config import Dataset, RunConfig
from phimu.runs.files import write_atomically
from phimu.session import Order, Output, load_run, train

TITLES = ("seed", "bonus_scale", "reached the goal", "went into the gap")


@command("phimu gap")
def main(
    seeds: int = 1,
    first_seed: int = 0,
    bonus_scale: float = PENALTY,
    steps: int = UPDATES,
    episodes: int = 50,
    runs: Path = Path("runs"),
    picture: Path = Path("gap.png"),
    quiet: bool = False,
    threads: Annotated[int | None, tyro.conf.arg(help=THREADS)] = None,
) -> None:
    """Plan from logged data of the four-room maze that never passes one doorway.

    Nobody can know whether that doorway is open. Without a penalty the plan goes there, with it
    the plan takes the way that was logged. Re-running the command resumes its runs. Writes the
    picture of the first seed, and all numbers beside it as JSON.

    Args:
        seeds: how many, of data, networks and episodes.
        first_seed: the smallest of them.
        bonus_scale: of the penalty, beside 0.
        steps: updates of the policy.
        episodes: in which each policy is followed.
        runs: where run directories go.
        picture: a PNG or SVG with the ways of both policies.
        quiet: print nothing while training.
    """
    del threads  # they were set before anything was imported
    at_least(1, seeds=seeds, steps=steps, episodes=episodes)
    check_suffix(picture)
    rows = []
    for seed in range(first_seed, first_seed + seeds):
        data, plans = gap_set(seed=seed), {}
        for scale in dict.fromkeys((0.0, bonus_scale)):
            run = _trained(scale, seed, steps, data, Output(runs, quiet=quiet))
            plans[f"bonus_scale {scale:g}"] = found = follow(run.policy(), episodes, seed)
            rows.append((seed, scale, found.reached, found.in_gap))
        if seed == first_seed:
            gap_figure(picture, plans, penalty_grid(run))
    text = json.dumps([dict(zip(TITLES, row, strict=True)) for row in rows], indent=2)
    write_atomically(picture.with_suffix(".json"), f"{text}\n".encode())
    cells = [[str(seed), f"{scale:g}", f"{a:.0%}", f"{b:.0%}"] for seed, scale, a, b in rows]
    Console().print(plain_table(TITLES[:1], cells, TITLES[1:]))
    print(f"picture  {picture}")


def _trained(scale: float, seed: int, steps: int, data: LoggedDataset, output: Output) -> Any:
    """A run with this penalty, at its end."""
    own = RunConfig(data.name, "ctrl-lcb", *settings(scale), seed, {}, Dataset.of(data, None))
    directory = train(Order(own, steps, about={"preset": "small"}), output, data)
    _, run = load_run(directory.path, data)
    return run
