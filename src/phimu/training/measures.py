"""What is told of a run while it goes on: which numbers, and when."""

from collections.abc import Mapping
from typing import Any

# What the progress line shows of the metrics, if the agent has them.
SHOWN = ("return", "nce_loss", "nce_accuracy", "bonus", "penalty", "behaviour_loss", "td_loss")


def measured(run: Any) -> dict[str, float]:
    """The numbers of a row of the log; NotFinite if one is not."""
    run.check()
    return {name: float(value) for name, value in run.metrics.items()} | run.facts()


def shown(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What the progress line shows of them: those of SHOWN, or else every loss."""
    chosen = {name: metrics[name] for name in SHOWN if name in metrics}
    if not any(name.endswith("_loss") for name in chosen):
        chosen |= {name: value for name, value in metrics.items() if name.endswith("_loss")}
    return chosen


def falls_on(clock: int, every: int, stride: int) -> bool:
    """Whether the clock, which goes in strides, has just reached or passed a multiple."""
    return clock % every < stride
