"""What there is to train on: sizes of every task, and what others scored, from `tasks.csv`.

Scores are mean and standard deviation of the return after 200K steps. Of `mbbl/` tasks, `random`
and `sac` are MBBL's own table; where the paper misprints it (SAC on S-Humanoid-ET), it is right
here. Of `dmc/` tasks, `random` is ours and `sac` the paper's, with three layers. CTRL is the paper.
"""

import csv
from importlib.resources import files
from typing import NamedTuple

SCORED = {"random": "random", "sac": "SAC", "ctrl_ucb_l": "CTRL-UCBL", "ctrl_ucb_m": "CTRL-UCBM"}


class Score(NamedTuple):
    mean: float
    std: float


class Entry(NamedTuple):
    task: str  # Gymnasium id
    observation_dim: int
    action_dim: int
    horizon: int  # decisions in an episode that nothing ends earlier
    seconds: float  # of simulated time in a decision
    scores: dict[str, Score]  # by the keys of SCORED; of the paper's tasks only


def catalogue() -> list[Entry]:
    """Every task but the probes, in the order of registration."""
    text = (files("phimu.environments") / "tasks.csv").read_text()
    return [_entry(row) for row in csv.DictReader(text.splitlines())]


def _entry(row: dict[str, str]) -> Entry:
    scored = [name for name in SCORED if row[name]]
    scores = {name: Score(float(row[name]), float(row[f"{name}_std"])) for name in scored}
    state, action, horizon = (int(row[k]) for k in ("observation_dim", "action_dim", "horizon"))
    return Entry(row["task"], state, action, horizon, float(row["seconds"]), scores)
