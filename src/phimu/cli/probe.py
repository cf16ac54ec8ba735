"""`phimu probe RUN`: what is linear in a run's phi."""

import json
from pathlib import Path
from typing import Annotated

import tyro

from phimu.cli.arguments import call
from phimu.errors import InputError
from phimu.evaluation.probes import probe
from phimu.session import load_run
from phimu.training.online import OnlineRun


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu probe")


def _run(run: Annotated[Path, tyro.conf.Positional], rows: int = 30_000) -> None:
    """Say how much of reward, action, state and its change is linear in a run's phi.

    Prints one line of JSON: shares of variance on held-out transitions of the replay buffer (s in
    units of its own deviation), how much of phi's distance another action makes, and how many
    principal directions hold 99 % of phi's variance.

    Args:
        run: a run directory of an agent that has a phi.
        rows: use the last so many transitions.
    """
    config, loaded = load_run(run)
    if not isinstance(loaded, OnlineRun) or not hasattr(loaded.agent, "phi"):
        raise InputError(f"{run} has no phi and replay buffer: name an online run of CTRL.")
    learner = loaded.learner
    found = probe(lambda s, a: learner.query("phi", s, a), loaded.replay.latest(rows))
    facts = {"task": config.task, "agent": config.agent, "step": loaded.step}
    print(json.dumps(facts | {name: round(x, 4) for name, x in found._asdict().items()}))
