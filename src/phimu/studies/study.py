"""What a study is: every variant of an agent on every task with every seed."""

from dataclasses import dataclass
from typing import Any, Literal

WINDOW = 10_000  # environment steps, or updates, before the end that a score is the mean of

Metric = Literal["return", "score", "total_variation_free"]


@dataclass(frozen=True)
class Variant:
    """One row of a study: an agent, and how it differs from its preset."""

    label: str
    agent: str
    """As `phimu train --agent` names it."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Fields of the agent's settings and what they are set to."""
    published_method: str | None = None
    """What the paper calls it, or a peer's table; None if nobody printed it."""
    preset: str | None = None
    """If another than the study's."""


@dataclass(frozen=True)
class Study:
    """A table, an ablation or a figure: every variant on every task with every seed."""

    name: str
    title: str
    tasks: tuple[str, ...]
    """Gymnasium ids; of logged data the names of D4RL's files, without .hdf5."""
    variants: tuple[Variant, ...]
    preset: str
    """With the paper's hyperparameters; any other of `phimu agents` can be asked for."""
    steps: int = 200_000
    """Environment steps; of logged data, updates of the policy."""
    seeds: int = 4
    metric: Metric = "return"
    """The mean return, or D4RL's score, of the evaluations within WINDOW of the end. The last kind
    is of the maze, from the scores.json that `phimu heatmap RUN` writes; there less is better."""
    options: tuple[tuple[str, bool | float | str], ...] = ()
    """Constructor arguments of the tasks; those of one suite alone with its name before them, as in
    dmc/action_repeat."""
    moments: tuple[int, ...] = ()
    """Steps at which `phimu exploration` looks at a run, before it goes on."""

    published: str | None = None
    """Whose published scores go beside it, if not those of its own name."""

    @property
    def offline(self) -> bool:
        return self.metric == "score"

    def options_of(self, task: str) -> dict[str, bool | float | str]:
        """Constructor arguments of one of its tasks."""
        parts = [(*name.rpartition("/")[::2], value) for name, value in self.options]
        return {name: value for suite, name, value in parts if suite in ("", task.split("/")[0])}
