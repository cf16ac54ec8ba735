"""`phimu phi RUN`: the learned features as a map."""

from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from phimu.cli.arguments import command
from phimu.errors import InputError, at_least
from phimu.reports.figures import check_suffix
from phimu.reports.phi_map import phi_figure, phi_map
from phimu.runs.config import load_config
from phimu.session import data_of, load_run
from phimu.training.online import OnlineRun


@command("phimu phi")
def main(
    run: Annotated[Path, tyro.conf.Positional],
    out: Path = Path("phi.png"),
    rows: int = 5_000,
    data: str | None = None,
) -> None:
    """Draw phi(s, a) as a map: the two directions in which it varies most (PCA).

    A point is a transition of the replay buffer or dataset, coloured by its value Q(s, a) and, if
    the run has one, by its bonus or penalty.

    Args:
        run: a run directory of an agent that has a phi.
        out: a .png or .svg.
        rows: draw so many transitions: of a replay buffer the last, of a dataset evenly spaced.
        data: where the logged data of the run is now, if it was moved.
    """
    at_least(2, rows=rows)
    check_suffix(out)  # before the work
    logged, dataset = None, load_config(run).dataset
    if dataset is not None:
        source = data or data_of(run)
        if source is None:
            raise InputError(f"{run} does not say where its data is: give --data.")
        logged = dataset.open(source)
    elif data is not None:
        raise InputError(f"{run} was not trained on logged data: leave --data out.")
    config, loaded = load_run(run, logged)
    if isinstance(loaded, OnlineRun):
        latest = loaded.replay.latest(rows)
        pairs = latest.observation, latest.action
    else:
        transitions = logged.transitions  # type: ignore[union-attr]  # it learned from data
        chosen = np.unique(np.linspace(0, len(transitions.reward) - 1, rows).astype(int))
        pairs = transitions.observation[chosen], transitions.action[chosen]
    found = phi_map(loaded, config.agent, *pairs)
    phi_figure(out, found, f"{config.task}, {config.agent}, step {loaded.step:,}")
    print(out)
