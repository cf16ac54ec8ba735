"""`phimu demo`: train CTRL-UCB in the four-room maze and show what it learned."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from phimu.agents import preset
from phimu.cli.arguments import THREADS, call
from phimu.cli.pictures import report
from phimu.runs.config import RunConfig
from phimu.session import Order, Output, train
from phimu.settings import override


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu demo")


def _run(
    ratio: Literal["linear", "exponential"] = "linear",
    loss: Literal["ranking", "binary"] = "ranking",
    bonus_scale: float | None = None,
    steps: int = 300_000,
    seed: int = 0,
    episodes: int = 100,
    runs: Path = Path("runs"),
    threads: Annotated[int | None, tyro.conf.arg(help=THREADS)] = None,
) -> None:
    """Learn the four-room maze with CTRL-UCB and draw the paper's Figure 1.

    Args:
        ratio: <phi, mu> itself, a true linear MDP, planned on with a linear critic (CTRL-UCBL), or
            exp(<phi, mu> / temperature), in whose phi Q is not linear (CTRL-UCBM).
        loss: which noise contrastive loss.
        bonus_scale: of the exploration bonus; the preset's if not given.
        steps: environment steps.
        seed: of everything random.
        episodes: evaluation episodes for the success rate.
        runs: where run directories go.
    """
    del threads  # they were set before anything was imported
    changes = {"loss": loss} | ({} if bonus_scale is None else {"bonus_scale": bonus_scale})
    agent, name = {
        "linear": ("ctrl-ucb-l", "maze"),
        "exponential": ("ctrl-ucb-m", "maze-exponential"),
    }[ratio]
    settings, schedule = override(preset(agent, name), changes)
    # Episodes start anywhere, so that the data covers the whole map; the success rate that is
    # reported is from the maze's own start.
    options = {"random_start": True}
    config = RunConfig("phimu/FourRooms-v0", agent, settings, schedule, seed, options)
    order = Order(config, steps, about={"preset": name})
    directory = train(order, Output(runs=runs))
    report(directory, episodes)
