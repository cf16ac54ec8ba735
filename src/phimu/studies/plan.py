"""A study as runs: each is an order and the directory that it is carried out in.

What is finished and what is not is read from the run directories alone, so whoever carries a study
out can be killed and loses nothing.
"""

import contextlib
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phimu.agents import AGENTS, preset
from phimu.agents.schedule import Preset
from phimu.data.sets.opening import is_source, open_set
from phimu.environments.task import open_task, suite_of
from phimu.errors import Busy, InputError
from phimu.runs import checkpoint
from phimu.runs.config import Dataset, RunConfig
from phimu.runs.directory import RunDirectory, open_run, sessions
from phimu.runs.lock import locked
from phimu.runs.provenance import command_line
from phimu.session import Order, data_of
from phimu.settings import names, override, read
from phimu.studies.study import Study, Variant
from phimu.studies.tables import STUDIES, TASK_TITLES


@dataclass(frozen=True)
class Run:
    """One variant on one task with one seed."""

    number: int
    """From 1 on, the same whatever is finished already."""
    task: str
    """As the study names it."""
    label: str
    """The variant's."""
    order: Order
    path: Path
    heat_map: bool = False
    """Whether `phimu heatmap` scores it in the end."""
    moments: tuple[int, ...] = ()
    """Steps at which `phimu exploration` looks at it."""

    @property
    def config(self) -> RunConfig:
        return self.order.config

    @property
    def steps(self) -> int:
        return self.order.last_step

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def name(self) -> str:
        return f"{TASK_TITLES.get(self.task, self.task)}  {self.label}  seed {self.seed}"

    def saved(self) -> tuple[int, dict[str, Any]]:
        return checkpoint.glance(RunDirectory(self.path).checkpoints)

    def prepare(self) -> None:
        """Make its directory, all that a worker is told; or add where its data is now."""
        order, facts = self.order, self.order.facts()
        with contextlib.suppress(Busy), locked(self.path, lambda _: None):
            if not sessions(self.path) or data_of(self.path) != facts.get("data"):
                config = order.config.to_json()
                open_run(self.path, config, command_line(), facts, order.about)

    def next_command(self) -> list[str] | None:
        """The arguments of `phimu` that bring it on; None if it is finished."""
        step, facts = self.saved()
        looked_at = _looked_at(self.path) if self.moments else set()
        for moment in (*self.moments, self.steps):
            if moment > self.steps:
                continue
            if step < moment or (step == moment and facts.get("evaluation_due")):
                steps = str(self.order.steps - (self.steps - moment))
                return ["resume", str(self.path), "--steps", steps, "--threads", "1", "--quiet"]
            if step == moment and moment in self.moments and moment not in looked_at:
                return ["exploration", str(self.path)]
        if self.heat_map and _scored_step(self.path) < self.steps:
            return ["heatmap", str(self.path)]
        return None


def _scored_step(path: Path) -> int:
    try:
        return int(json.loads((path / "scores.json").read_bytes())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _looked_at(path: Path) -> set[int]:
    """The moments that `phimu exploration` has written down."""
    try:
        moments = json.loads((path / "exploration.json").read_bytes())["moments"]
        return {int(moment["step"]) for moment in moments}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise InputError(f"There is no study {name!r}: choose one of {', '.join(STUDIES)}.")
    return STUDIES[name]


def narrow(study: Study, tasks: Sequence[str], agents: Sequence[str]) -> Study:
    """The study on these tasks, by id or the paper's name, and of these agents, new ones too."""
    titles = {TASK_TITLES.get(task, task): task for task in study.tasks}
    chosen = tuple(dict.fromkeys(titles.get(task, task) for task in tasks))
    variants = list(study.variants)
    if agents:
        variants = [variant for variant in variants if variant.agent in agents]
        there = {variant.agent for variant in variants}
        variants += [Variant(agent, agent) for agent in dict.fromkeys(agents) if agent not in there]
    return replace(study, tasks=chosen or study.tasks, variants=tuple(variants))


def under(study: Study, name: str) -> Study:
    """The study under another preset.

    A variant keeps its own, unless that stood in for the study's, which its agent does not have.
    """

    def lacks(variant: Variant) -> bool:
        known = AGENTS.get(variant.agent)  # where there is no such agent, that is said later
        return known is not None and study.preset not in known.presets(study.offline)

    variants = tuple(replace(each, preset=None) if lacks(each) else each for each in study.variants)
    return replace(study, preset=name, variants=variants)


def expand(
    study: Study, settings: Mapping[str, str], data: Path, runs: Path, only: Sequence[int] = ()
) -> list[Run]:
    """Its runs: all, or those with the numbers in `only`.

    Those of the first seed come first, so that half a study is a whole table. `settings` are of
    every run whose agent has them; `data` is where the files of datasets are.
    """
    _refuse_unknown(study, settings)
    pairs = [(task, variant) for task in study.tasks for variant in study.variants]
    numbers = _numbers(study, len(pairs), only)
    opened = functools.lru_cache(maxsize=1)(open_set)  # several in a row want the same dataset
    found = {
        pair: _first(study, *pairs[pair], settings, data, opened)
        for pair in sorted({(number - 1) % len(pairs) for number in numbers})
    }
    planned = []
    for number in numbers:
        seed, pair = divmod(number - 1, len(pairs))
        (task, variant), (order, suite) = pairs[pair], found[pair]
        order = replace(order, config=replace(order.config, seed=seed))
        path = order.config.path(runs, suite)
        heat_map = study.metric == "total_variation_free"
        planned.append(Run(number, task, variant.label, order, path, heat_map, study.moments))
    _refuse_twins(planned)
    return planned


def _first(
    study: Study, task: str, variant: Variant, settings: Mapping[str, str], data: Path, opened: Any
) -> tuple[Order, str]:
    """What is to be run with the first seed, and its suite."""
    chosen = _settings(study, variant, settings)
    name = variant.preset or study.preset
    about = {"preset": name, "study": study.name, "variant": variant.label}
    options = study.options_of(task)
    if study.offline:
        source = task if is_source(task) else f"d4rl:{data / task}.hdf5"
        logged = opened(source)
        dataset = Dataset.of(logged, logged.task)
        config = RunConfig(logged.name, variant.agent, *chosen, 0, options, dataset)
        return Order(config, study.steps, source, about), logged.layout
    config = RunConfig(task, variant.agent, *chosen, 0, options)
    return Order(config, study.steps, about=about), suite_of(task)


def try_tasks(planned: Sequence[Run]) -> None:
    """Open the environments that runs are left in: what is missing is said before they begin."""
    left = (run for run in planned if run.config.dataset is None and run.next_command())
    configs = [run.config for run in left]
    for task, options in {config.task: config.task_options for config in configs}.items():
        open_task(task, **options).close()


def _numbers(study: Study, pairs: int, only: Sequence[int]) -> Sequence[int]:
    if min(study.seeds, study.steps) < 1:
        raise InputError(
            f"seeds is {study.seeds} and steps is {study.steps}: give at least 1 of each."
        )
    last = pairs * study.seeds
    for number in only:
        if not 1 <= number <= last:
            raise InputError(f"only is {number}: give numbers from 1 to {last}.")
    return sorted(set(only)) or range(1, last + 1)


def _settings(study: Study, variant: Variant, settings: Mapping[str, str]) -> Preset:
    """The variant's under its preset, with those of `settings` that its agent has."""
    parts = preset(variant.agent, variant.preset or study.preset, study.offline)
    return read(override(parts, dict(variant.settings)), settings)


def _refuse_unknown(study: Study, settings: Mapping[str, str]) -> None:
    varied = {name for variant in study.variants for name, _ in variant.settings}
    for name in settings:
        if name in varied:
            raise InputError(f"{name} cannot be set, for it is what {study.name} varies.")
    known = {
        name for variant in study.variants for name in names(_settings(study, variant, settings))
    }
    for name in settings:
        if name not in known:
            agents = " or ".join(dict.fromkeys(variant.agent for variant in study.variants))
            raise InputError(f"There is no setting {name!r} of {agents}: see phimu train --help.")


def _refuse_twins(planned: list[Run]) -> None:
    first: dict[Path, Run] = {}
    for run in planned:
        other = first.setdefault(run.path, run)
        if other is not run:
            raise InputError(f"{run.label!r} and {other.label!r} are the same run: leave one out.")
