"""The picture of a sweep: what each trial scored as it went on, and against each setting."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phimu.reports.figures import GREY, LINE_COLOURS, save, with_grid
from phimu.studies.sweep import Record, Trial
from phimu.studies.varied import Varied

BEST, DONE, PRUNED = LINE_COLOURS[1], LINE_COLOURS[0], "#b8bcc2"


def sweep_figure(path: Path, record: Record) -> None:
    sweep, best = record.sweep, record.best()
    shown = [trial for trial in record.trials if trial.evaluations]
    panels = 1 + len(sweep.varied)
    figure = Figure(figsize=(3.4 * panels + 0.6, 3.6), layout="constrained")
    curves, *scatters = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
    for trial in shown:
        steps, values = zip(*trial.evaluations, strict=True)
        front = 3 if trial is best else 2 if trial.state == "done" else 1
        width = 2.2 if trial is best else 1.2
        curves.plot(steps, values, "o-", ms=3, lw=width, color=_colour(trial, best), zorder=front)
    curves.set(xlabel="updates of the policy" if ":" in sweep.task else "environment steps")
    curves.set_ylabel("evaluation")
    for axes, varied in zip(scatters, sweep.varied, strict=True):
        _scatter(axes, varied, shown, best)
    for axes in figure.axes:
        with_grid(axes)
        axes.tick_params(labelsize=9)
    states = [trial.state for trial in record.trials]
    counts = f"{len(states)} trials: {states.count('done')} done, {states.count('pruned')} pruned"
    figure.suptitle(f"{sweep.task}, {sweep.agent}", fontsize=12, weight="bold", x=0.01, ha="left")
    caption = f"{counts}. Orange: the best; blue: done; grey: pruned, at its last evaluation."
    figure.supxlabel(caption, fontsize=9, color=GREY)
    save(figure, path)


def _scatter(axes: Axes, varied: Varied, trials: list[Trial], best: Trial | None) -> None:
    places: Any = [varied.value(trial.settings[varied.name]) for trial in trials]
    if varied.choices:
        places = [varied.choices.index(place) for place in places]
        axes.set_xticks(range(len(varied.choices)), varied.choices)
        axes.set_xlim(-0.5, len(varied.choices) - 0.5)
    elif varied.log:
        axes.set_xscale("log")
    for place, trial in zip(places, trials, strict=True):
        size, front = (60, 3) if trial is best else (26, 2)
        axes.scatter(place, trial.score or 0.0, s=size, color=_colour(trial, best), zorder=front)
    axes.set_xlabel(varied.name)


def _colour(trial: Trial, best: Trial | None) -> str:
    return BEST if trial is best else DONE if trial.state == "done" else PRUNED
