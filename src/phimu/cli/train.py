"""`phimu train TASK --agent ... --preset ... --steps N` with any setting as a flag."""

import dataclasses
import json
import sys
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
from phimu.data.opening import is_source, open_set
from phimu.errors import InputError
from phimu.training.run_config import Dataset, RunConfig
from phimu.training.run_directory import RunDirectory
from phimu.training.session import Output, train, train_offline

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
    # What is trained on, the agent and the preset decide which settings there are, and their
    # defaults.
    offline = bool(arguments) and is_source(arguments[0])
    agent = peek(arguments, "--agent", "ctrl-lcb" if offline else "ctrl-ucb-m")
    chosen = peek(arguments, "--preset", "small")
    if offline:
        directory = _train_offline(parse_offline(arguments, agent, chosen), agent)
    else:
        directory = _train(parse(arguments, agent, chosen), agent)
    print(directory.path)


def _train(request: Any, agent: str) -> RunDirectory:
    config = RunConfig(
        task=request.task,
        agent=agent,
        settings=request.settings,
        schedule=request.schedule,
        seed=request.seed,
        task_options=task_options(request.option),
    )
    return train(config, request.steps, request.output, request.devices)


def _train_offline(request: Any, agent: str) -> RunDirectory:
    data = open_set(request.data, request.sha256, task=request.task)
    config = RunConfig(
        task=data.name,
        agent=agent,
        settings=request.settings,
        schedule=request.schedule,
        seed=request.seed,
        task_options=task_options(request.option),
        dataset=Dataset.of(data, None if data.task == NONE else data.task),
    )
    directory = train_offline(config, data, request.steps, request.output)
    if config.evaluation_task is None and not request.output.quiet:
        where = f"phimu evaluate {directory.path} --data {request.data}"
        print(f"No environment to run the policy in; an estimate: {where}", file=sys.stderr)
    return directory


def parse(arguments: list[str], agent: str, chosen: str) -> Any:
    """The request as a dataclass whose settings are the agent's, with the preset as default."""
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


def parse_offline(arguments: list[str], agent: str, chosen: str) -> Any:
    """The same for a set of transitions."""
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
