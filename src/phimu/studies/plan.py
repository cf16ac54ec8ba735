"""A study as runs: each is a `phimu train` command line and the directory that it works in.

What is finished and what is not is read from the run directories alone, so whoever carries a study
out can be killed and loses nothing.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phimu.agents.offline_presets import offline_preset
from phimu.agents.presets import names, preset
from phimu.data.sets.opening import is_source
from phimu.errors import InputError
from phimu.runs import checkpoint
from phimu.runs.config import RunConfig
from phimu.runs.directory import RunDirectory
from phimu.studies.tables import STUDIES, TASK_TITLES, Study, Variant

# The run that the arguments of `phimu train` ask for, its suite, and the step that it ends at.
Resolve = Callable[[list[str]], tuple[RunConfig, str, int]]


@dataclass(frozen=True)
class Run:
    """One variant on one task with one seed."""

    number: int
    """From 1 on, the same whatever is finished already."""
    task: str
    """As the study names it."""
    label: str
    """The variant's."""
    config: RunConfig
    path: Path
    steps: int
    """Where its checkpoints end; on logged data the updates before the policy's come on top."""
    arguments: tuple[str, ...]
    """Of `phimu train`."""
    heat_map: bool = False
    """Whether `phimu heatmap` scores it in the end."""

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def name(self) -> str:
        return f"{TASK_TITLES.get(self.task, self.task)}  {self.label}  seed {self.seed}"

    def saved(self) -> tuple[int, dict[str, Any]]:
        """Step and facts of its last checkpoint."""
        return checkpoint.glance(RunDirectory(self.path).checkpoints)

    def next_command(self) -> list[str] | None:
        """The arguments of `phimu` that bring it on; None if it is finished."""
        step, facts = self.saved()
        if step < self.steps or (step == self.steps and facts.get("evaluation_due")):
            return ["train", *self.arguments, "--quiet"]
        if self.heat_map and _scored_step(self.path) < self.steps:
            return ["heatmap", str(self.path)]
        return None


def _scored_step(path: Path) -> int:
    try:
        return int(json.loads((path / "scores.json").read_bytes())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise InputError(f"There is no study {name!r}: choose one of {', '.join(STUDIES)}.")
    return STUDIES[name]


def narrow(study: Study, tasks: Sequence[str], agents: Sequence[str]) -> Study:
    """The study on these tasks and of these agents alone; others than its own are added to it.

    A task of the study may be called what the paper calls it.
    """
    titles = {TASK_TITLES.get(task, task): task for task in study.tasks}
    chosen = tuple(dict.fromkeys(titles.get(task, task) for task in tasks))
    variants = list(study.variants)
    if agents:
        variants = [variant for variant in variants if variant.agent in agents]
        there = {variant.agent for variant in variants}
        variants += [Variant(agent, agent) for agent in dict.fromkeys(agents) if agent not in there]
    return replace(study, tasks=chosen or study.tasks, variants=tuple(variants))


def expand(
    study: Study,
    settings: Mapping[str, str],
    data: Path,
    runs: Path,
    resolve: Resolve,
    only: Sequence[int] = (),
) -> list[Run]:
    """Its runs: all, or those with the numbers in `only`.

    Those of the first seed come first, so that half a study is a whole table. `settings` are of
    every run whose agent has them; `data` is where the files of sets are.
    """
    _refuse_unknown(study, settings)
    pairs = [(task, variant) for task in study.tasks for variant in study.variants]
    numbers = _numbers(study, len(pairs), only)
    found = {}
    for pair in sorted({(number - 1) % len(pairs) for number in numbers}):
        arguments = _arguments(study, *pairs[pair], settings, data, runs)
        found[pair] = arguments, *resolve(arguments)
    planned = []
    for number in numbers:
        seed, pair = divmod(number - 1, len(pairs))
        (task, variant), (arguments, config, suite, steps) = pairs[pair], found[pair]
        config = replace(config, seed=seed)
        planned.append(
            Run(
                number=number,
                task=task,
                label=variant.label,
                config=config,
                path=config.path(runs, suite),
                steps=steps,
                arguments=(*arguments, "--seed", str(seed)),
                heat_map=study.metric == "total_variation_free",
            )
        )
    _refuse_twins(planned)
    return planned


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


def _arguments(
    study: Study,
    task: str,
    variant: Variant,
    settings: Mapping[str, str],
    data: Path,
    runs: Path,
) -> list[str]:
    """Of `phimu train`, all but the seed."""
    if study.offline and not is_source(task):
        task = f"d4rl:{data / task}.hdf5"
    known = _settings(study, variant)
    own = {name: str(value) for name, value in variant.settings}
    given = {name: text for name, text in settings.items() if name in known}
    return [
        *(task, "--agent", variant.agent, "--preset", variant.preset or study.preset),
        *("--steps", str(study.steps), "--threads", "1", "--runs", str(runs)),
        *(word for name, text in (own | given).items() for word in _flag(name, text)),
        *(["--option", *study.options] if study.options else []),
    ]


def _settings(study: Study, variant: Variant) -> list[str]:
    """The names of those that the variant's agent has."""
    of: Callable[..., tuple[Any, Any]] = offline_preset if study.offline else preset
    return names(of(variant.agent, variant.preset or study.preset))


def _flag(name: str, text: str) -> Iterator[str]:
    """`actor_sizes`, `8,8` as --actor-sizes 8 8; true and false as --name and --no-name."""
    flag = name.replace("_", "-")
    if text in ("true", "false"):
        yield f"--{flag}" if text == "true" else f"--no-{flag}"
    else:
        yield from (f"--{flag}", *text.split(","))


def _refuse_unknown(study: Study, settings: Mapping[str, str]) -> None:
    known = {name for variant in study.variants for name in _settings(study, variant)}
    varied = {name for variant in study.variants for name, _ in variant.settings}
    for name in settings:
        if name in varied:
            raise InputError(f"{name} cannot be set, for it is what {study.name} varies.")
        if name not in known:
            agents = " or ".join(dict.fromkeys(variant.agent for variant in study.variants))
            raise InputError(f"There is no setting {name!r} of {agents}: see phimu train --help.")


def _refuse_twins(planned: list[Run]) -> None:
    first: dict[Path, Run] = {}
    for run in planned:
        other = first.setdefault(run.path, run)
        if other is not run:
            raise InputError(f"{run.label!r} and {other.label!r} are the same run: leave one out.")
