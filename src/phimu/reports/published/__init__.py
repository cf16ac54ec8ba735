"""What was published: the paper's scores, and those of successors and modern peers, with sources.

`paper.csv` is the paper's tables and ablations, cell by cell; where it misprints the numbers of
MBBL, which it quotes, the note says what MBBL has. `online.csv` holds others on the same DM Control
tasks (table2) and on Gymnasium's own MuJoCo tasks (gymnasium), which are not those of table1: MBBL
changed observations and rewards. Steps count the simulator's there, whatever the action repeat.
`offline.csv` holds others on the same D4RL sets (table3) and on their later versions (d4rl-v2).
"""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

FILES = ("paper.csv", "online.csv", "offline.csv")
PAPER = "CTRL paper"


class Published(NamedTuple):
    table: str  # a study of phimu.studies.tables, or "gymnasium" or "d4rl-v2"
    task: str  # as phimu names it
    method: str
    metric: str  # "return", D4RL's "score", or "best score": of the best evaluation, not the last
    mean: float
    std: float | None  # as printed; not every source says of what
    seeds: int | None
    steps: int | None  # of the environment
    source: str
    note: str

    @property
    def of_paper(self) -> bool:
        return self.source.startswith(PAPER)


@cache
def published() -> tuple[Published, ...]:
    """Every published score, the paper's first."""
    rows = []
    for name in FILES:
        text = (files(__name__) / name).read_text(encoding="utf-8")
        rows += [_row(row) for row in csv.DictReader(text.splitlines())]
    return tuple(rows)


def _row(row: dict[str, str]) -> Published:
    kinds: dict[str, type] = {"mean": float, "std": float, "seeds": int, "steps": int}
    numbers = {name: kind(row[name]) if row[name] else None for name, kind in kinds.items()}
    return Published(**(row | numbers))  # type: ignore[arg-type]
