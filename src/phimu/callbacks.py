"""What is done while a model learns: evaluations, checkpoints, an early end, one's own code.

A callback is a function of a `Moment`, called after every step of the environment; on logged data
after some updates. If it returns False, learning ends there; the model can go on later. An object
may have a method `broken_off` too, called with a moment when an error or an interrupt ends
learning.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phimu.errors import InputError, NotFinite, at_least
from phimu.training.measures import measured
from phimu.training.streams import EVALUATE, stream


@dataclass(frozen=True)
class Moment:
    """What a callback is told."""

    model: Any  # that learns
    before: int  # the step at the last moment

    @property
    def step(self) -> int:
        """Environment steps so far; on logged data updates, of all phases."""
        return self.model.run.step

    @property
    def num_timesteps(self) -> int:
        """What `learn` counts: of updates, those of the policy."""
        return self.model.num_timesteps

    @property
    def metrics(self) -> dict[str, float]:
        """Of the last update, which is waited for; once there are any, `return` is the mean of the
        last ten training episodes and `evaluation` that of the last evaluation."""
        _, evaluations = self.model.history.series("return", "evaluation")
        last = {"evaluation": float(evaluations[-1])} if len(evaluations) else {}
        return measured(self.model.run) | last

    def passed(self, every: int) -> bool:
        """Whether the step has just reached, or on logged data passed, a multiple of `every`."""
        return self.step // every > self.before // every


Callback = Callable[[Moment], Any]


@dataclass
class Evaluate:
    """Runs episodes in mode action; their mean return goes into `history` and `metrics`.

    The episodes are those of `phimu train` at the same seed and step.
    """

    every: int = 5_000
    """Steps."""
    episodes: int = 10
    env: Any = None
    """What `model.evaluate` takes."""
    save_best: str | Path | None = None
    """Where to save the model whenever an evaluation is the best so far."""
    best: float = field(default=-float("inf"), init=False)

    def __post_init__(self) -> None:
        at_least(1, every=self.every, episodes=self.episodes)

    def __call__(self, moment: Moment) -> None:
        model, run = moment.model, moment.model.run
        if run.kind != "train" or not moment.passed(self.every):  # or there is no policy yet
            return
        seed = int(stream(run.seed, EVALUATE, run.step).integers(2**31))
        summary = model.evaluate(self.episodes, seed, self.env)
        model.history.append({"step": run.step, "kind": "evaluation", **summary})
        if summary["return"] > self.best:
            self.best = summary["return"]
            if self.save_best is not None:
                model.save(self.save_best)


@dataclass
class Checkpoint:
    """Saves the model; `load` and `learn` go on from there, to the bit.

    It also does so when learning is broken off, by an error of the environment or by Ctrl-C.
    """

    path: str | Path
    every: int = 10_000
    """Steps."""

    def __post_init__(self) -> None:
        at_least(1, every=self.every)

    def __call__(self, moment: Moment) -> None:
        if moment.passed(self.every):
            moment.model.save(self.path)

    def broken_off(self, moment: Moment) -> None:
        moment.model.save(self.path)


@dataclass
class StopAtReturn:
    """Ends learning once a return is high enough."""

    threshold: float
    of: str = "evaluation"
    """`evaluation` is the last one's, made by an `Evaluate` that stands before this callback;
    `return` the mean of the last ten training episodes; or any other of the metrics."""

    def __call__(self, moment: Moment) -> bool:
        return not moment.metrics.get(self.of, -float("inf")) >= self.threshold


def callbacks_of(given: Callback | Sequence[Callback] | None) -> list[Callback]:
    """One or several, each checked to take a moment."""
    several: Any = given if isinstance(given, list | tuple) else [given] if given else []
    for each in several:
        try:
            inspect.signature(each).bind(None)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"callback is {each!r}: give a function of one argument, the moment "
                "(moment.step, moment.metrics, moment.model), or a list of them."
            ) from error
    return list(several)


def go_on(callbacks: Sequence[Callback], moment: Moment) -> bool:
    """Call each of them; whether none returned False."""
    return all([each(moment) is not False for each in callbacks])


@contextlib.contextmanager
def told_of_a_break(callbacks: Sequence[Callback], model: Any) -> Iterator[None]:
    """In here an error or an interrupt calls `broken_off` of the callbacks that have it."""
    try:
        yield
    except NotFinite:  # there is no good state to do anything with
        raise
    except BaseException:
        for each in callbacks:
            if hasattr(each, "broken_off"):
                each.broken_off(Moment(model, model.run.step))
        raise
