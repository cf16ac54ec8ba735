"""`phimu train TASK --agent ... --preset ... --steps N` with any setting as a flag."""

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import tyro

from phimu.agents.offline_presets import (
    OFFLINE_DESCRIPTIONS,
    OFFLINE_PRESET_DESCRIPTIONS,
    offline_preset,
)
from phimu.agents.presets import DESCRIPTIONS, PRESET_DESCRIPTIONS, preset
from phimu.cli import peek
from phimu.cli.arguments import THREADS
from phimu.cli.arguments import parse as read
from phimu.data.logged import OfflineSet
from phimu.data.sets.opening import is_source, open_set
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.runs.config import Dataset, RunConfig
from phimu.runs.directory import RunDirectory
from phimu.session import Output, train, train_offline
from phimu.training.offline import preparation

DEVICES = (
    "how many share each batch: GPUs, or else virtual devices on the CPU; batch_size and negatives "
    "must be multiples of it. Another number rounds otherwise"
)
OPTION = "constructor arguments of the task, as --option noise=0.5 reward=dense"
TASK = tyro.conf.arg(metavar="TASK", help="a Gymnasium id, such as Pendulum-v1")
DATA = tyro.conf.arg(
    metavar="DATA", help="d4rl:FILE, minari:ID or minari:DIRECTORY, or a file of arrays (.npz)"
)
NONE = "none"
POLICY_STEPS = "updates of the policy to train to; those of the phases before it come on top"
EVALUATION_TASK = (
    "the Gymnasium id to evaluate the policy in; by default the one that the data names, and "
    f"{NONE} for no evaluation but estimates from the data"
)


def main(arguments: list[str]) -> None:
    if is_offline(arguments):
        directory = _train_offline(parse_offline(arguments))
    else:
        request = parse(arguments)
        config = config_of(request)
        directory = train(config, request.steps, request.output, request.devices)
    print(directory.path)


def is_offline(arguments: list[str]) -> bool:
    return bool(arguments) and is_source(arguments[0])


def resolve(
    arguments: list[str], opened: Callable[..., OfflineSet] = open_set
) -> tuple[RunConfig, str, int]:
    """What a command line asks for: the run, its suite, and the step that it ends at."""
    if is_offline(arguments):
        request = parse_offline(arguments)
        data = opened(request.data, request.sha256, task=request.task)
        return config_of(request, data), data.layout, preparation(request.settings) + request.steps
    request = parse(arguments)
    config = config_of(request)
    task = open_task(config.task, **config.task_options)
    task.close()
    return config, task.suite, request.steps


def config_of(request: Any, data: OfflineSet | None = None) -> RunConfig:
    dataset = None
    if data is not None:
        dataset = Dataset.of(data, None if data.task == NONE else data.task)
    return RunConfig(
        task=request.task if data is None else data.name,
        agent=request.agent,
        settings=request.settings,
        schedule=request.schedule,
        seed=request.seed,
        task_options=task_options(request.option),
        dataset=dataset,
    )


def _train_offline(request: Any) -> RunDirectory:
    data = open_set(request.data, request.sha256, task=request.task)
    config = config_of(request, data)
    directory = train_offline(config, data, request.steps, request.output)
    if config.evaluation_task is None and not request.output.quiet:
        where = f"phimu evaluate {directory.path} --data {request.data}"
        print(f"No environment to run the policy in; an estimate: {where}", file=sys.stderr)
    return directory


def parse(arguments: list[str]) -> Any:
    """The request as a dataclass; which settings there are is up to the agent and the preset."""
    agent, chosen = peek(arguments, "--agent", "ctrl-ucb-m"), peek(arguments, "--preset", "small")
    settings, schedule = preset(agent, chosen)
    own = [
        ("task", Annotated[str, tyro.conf.Positional, TASK]),
        ("agent", Annotated[str, _help(_list(DESCRIPTIONS))], agent),
        ("preset", Annotated[str, _help(_list(PRESET_DESCRIPTIONS))], chosen),
        ("steps", Annotated[int, _help("environment steps to train to")], 20_000),
        ("devices", Annotated[int, _help(DEVICES)], 1),
    ]
    about = (
        "Train an agent. The run directory is named after the configuration, and running the "
        "same command again resumes it. Defaults below are those of the preset. In place of TASK, "
        "d4rl:FILE, minari:ID or a file of arrays trains on logged data: `phimu train d4rl:FILE "
        "--help` lists what there is then."
    )
    return _read(arguments, own, settings, schedule, about)


def parse_offline(arguments: list[str]) -> Any:
    """The same for a set of transitions."""
    agent, chosen = peek(arguments, "--agent", "ctrl-lcb"), peek(arguments, "--preset", "small")
    settings, schedule = offline_preset(agent, chosen)
    own = [
        ("data", Annotated[str, tyro.conf.Positional, DATA]),
        ("agent", Annotated[str, _help(_list(OFFLINE_DESCRIPTIONS))], agent),
        ("preset", Annotated[str, _help(_list(OFFLINE_PRESET_DESCRIPTIONS))], chosen),
        ("steps", Annotated[int, _help(POLICY_STEPS)], 200_000),
        ("task", Annotated[str | None, _help(EVALUATION_TASK)], None),
        ("sha256", Annotated[str | None, _help("what the file's must be")], None),
    ]
    about = (
        "Train an agent on logged data. The run directory is named after the configuration and "
        "the content of the set, and running the same command again resumes it. Defaults below "
        "are those of the preset."
    )
    return _read(arguments, own, settings, schedule, about)


def _read(arguments: list[str], own: list[Any], settings: Any, schedule: Any, about: str) -> Any:
    request = dataclasses.make_dataclass(
        "Train",
        [
            *own,
            ("seed", Annotated[int, _help("of everything random")], 0),
            ("option", Annotated[tuple[str, ...], _help(OPTION)], ()),
            ("threads", Annotated[int | None, _help(THREADS)], None),
            ("output", Output, Output()),
            ("settings", type(settings), settings),
            ("schedule", type(schedule), schedule),
        ],
        frozen=True,
    )
    return read(
        tyro.conf.configure(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)(request),
        arguments,
        prog="phimu train",
        description=about,
    )


def _list(descriptions: dict[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in descriptions.items())


def _help(text: str) -> Any:
    return tyro.conf.arg(help=text)


def task_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`noise=0.5 reward=dense` as {"noise": 0.5, "reward": "dense"}."""
    options = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"option is {pair!r}: write it as name=value.")
        try:
            options[name] = json.loads(text)
        except json.JSONDecodeError:
            options[name] = text
    return options
