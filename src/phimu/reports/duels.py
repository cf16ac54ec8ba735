"""CTRL against the baseline that it has to beat, on equal terms: who is ahead, and how surely."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np

from phimu.reports import statistics
from phimu.reports.comparison import order
from phimu.reports.markdown import grid, plain
from phimu.reports.numbers import brief, thousands
from phimu.reports.published import published
from phimu.reports.rows import Changes, Result
from phimu.reports.statistics import Estimate, bootstrap, difference_of_means
from phimu.studies.study import WINDOW
from phimu.studies.tables import STUDIES, TASK_TITLES

PAIRS = (("ctrl-ucb-m", "sac"), ("ctrl-lcb", "td3-bc"))
ENOUGH = 3  # seeds of each side; of fewer a difference is no more than a lead
Verdict = Literal["ahead", "behind", "level", "too few seeds"]


class Duel(NamedTuple):
    """Two agents on a task with the same preset, the same changes of it and as many steps."""

    task: str
    title: str
    agents: tuple[str, str]  # the method, its rival
    preset: str
    changes: Changes
    steps: int
    scores: tuple[np.ndarray, np.ndarray]  # [seeds] of each
    difference: Estimate  # of the means, with its interval
    paper: tuple[float, float] | None  # what the paper has for the two

    @property
    def terms(self) -> str:
        """Such as `explore, action_repeat=2`."""
        return ", ".join([self.preset, *(f"{name}={value}" for name, value in self.changes)])

    @property
    def verdict(self) -> Verdict:
        if min(map(len, self.scores)) < ENOUGH:
            return "too few seeds"
        if self.difference.low <= 0 <= self.difference.high:
            return "level"
        return "ahead" if self.difference.value > 0 else "behind"


def duels(results: Iterable[Result]) -> list[Duel]:
    """Of all pairs of agents and all terms, in the order of the paper's tasks."""
    groups: dict[tuple[str, str, Changes, str], list[Result]] = {}
    for run in sorted(results, key=order):
        if run.score is not None:
            groups.setdefault((run.task, run.preset, run.changes, run.agent), []).append(run)
    found = []
    for method, rival in PAIRS:
        for task, preset, changes, agent in groups:
            theirs = groups.get((task, preset, changes, rival), [])
            if agent == method and theirs:
                ours = groups[task, preset, changes, method]
                # Not the paper's title where that names a version of D4RL: data may be regenerated.
                title = task if ours[0].offline else TASK_TITLES.get(task, task)
                named = task, title, (method, rival), preset, changes
                found.append(_duel(named, ours, theirs))
    return found


def _duel(
    named: tuple[str, str, tuple[str, str], str, Changes],
    ours: Sequence[Result],
    theirs: Sequence[Result],
) -> Duel:
    """At the latest step that both sides have reached, with the seeds that got there."""
    steps = min(max(int(run.steps[-1]) for run in side) for side in (ours, theirs))
    one, other = (
        np.array([score_at(run, steps) for run in side if run.steps[-1] >= steps])
        for side in (ours, theirs)
    )
    difference = difference_of_means(one, other)
    return Duel(*named, steps, (one, other), difference, _papers(named[0], named[2]))


def score_at(run: Result, steps: int) -> float:
    """The mean of the evaluations within WINDOW of this step."""
    return float(run.values[(run.steps > steps - WINDOW) & (run.steps <= steps)].mean())


def _papers(task: str, agents: tuple[str, str]) -> tuple[float, float] | None:
    methods = {
        (study.name, variant.published_method): variant.agent
        for study in STUDIES.values()
        for variant in study.variants
        if study.name.startswith("table") and not variant.settings
    }
    means = {
        methods[row.table, row.method]: row.mean
        for row in published()
        if row.of_paper and row.task == task and (row.table, row.method) in methods
    }
    return (means[agents[0]], means[agents[1]]) if means.keys() >= {*agents} else None


def sentences(found: Sequence[Duel]) -> list[str]:
    """One for each pair of agents and preset, from the most tasks to the fewest."""
    together: dict[tuple[tuple[str, str], str], list[Duel]] = {}
    for duel in found:
        together.setdefault((duel.agents, duel.preset), []).append(duel)
    return [_sentence(each) for each in sorted(together.values(), key=lambda each: -len(each))]


def _sentence(found: Sequence[Duel]) -> str:
    method, rival = found[0].agents
    by_verdict = {
        verdict: [duel.title for duel in each]
        for verdict, each in groupby(
            sorted(found, key=lambda duel: duel.verdict), key=lambda duel: duel.verdict
        )
    }
    leads: dict[str, list[str]] = {"ahead": [], "behind": []}
    for duel in found:
        if duel.verdict == "too few seeds":
            leads["ahead" if duel.difference.value > 0 else "behind"].append(duel.title)
    parts = [
        f"{word} on {len(by_verdict[verdict])} ({', '.join(by_verdict[verdict])})"
        for verdict, word in (("ahead", "ahead"), ("behind", "behind"), ("level", "level"))
        if verdict in by_verdict
    ]
    few = [f"{word} on {', '.join(titles)}" for word, titles in leads.items() if titles]
    if few:
        parts.append(
            f"with fewer than {ENOUGH} seeds of each, so a lead at most, {' and '.join(few)}"
        )
    chance = bootstrap(
        statistics.probability_of_improvement,
        [duel.scores[0] for duel in found],
        [duel.scores[1] for duel in found],
    )
    tasks = f"{len(found)} task{'s' if len(found) > 1 else ''}"
    return (
        f"{method} against {rival}, preset {found[0].preset}, {tasks}: {'; '.join(parts)}. "
        f"A run of {method} is above one of {rival} with probability {chance.value:.2f} "
        f"[{chance.low:.2f}, {chance.high:.2f}]."
    )


def duel_grid(found: Sequence[Duel]) -> str:
    """As a Markdown table."""
    rows = [
        [
            plain(duel.title),
            plain(f"{' / '.join(duel.agents)}, {duel.terms}"),
            thousands(duel.steps),
            *(f"{brief(side.mean())} ({len(side)})" for side in duel.scores),
            interval(duel),
            duel.verdict,
            " / ".join(map(brief, duel.paper)) if duel.paper else "",
        ]
        for duel in found
    ]
    heads = ["task", "agents, preset", "steps", "ours", "rival", "difference", "says", "the paper"]
    return grid(heads, rows)


def interval(duel: Duel) -> str:
    """The difference, and its interval where there are seeds to take it from."""
    return with_interval(duel.difference, *duel.scores)


def with_interval(found: Estimate, *sides: np.ndarray) -> str:
    """An estimate, and its interval where each side [seeds] has two or more."""
    value, low, high = (brief(float(each)) for each in found)
    return value if min(map(len, sides)) < 2 else f"{value} [{low}, {high}]"
