"""`phimu train TASK --agent ... --preset ... --steps N` with any setting as a flag."""

import dataclasses
import json
from typing import Annotated, Any

import tyro

from phimu.agents.presets import DESCRIPTIONS, PRESET_DESCRIPTIONS, preset
from phimu.cli import peek
from phimu.cli.arguments import THREADS
from phimu.cli.arguments import parse as read
from phimu.errors import InputError
from phimu.training.session import Output, RunConfig, train

DEVICES = (
    "how many share each batch: GPUs, or else virtual devices on the CPU; batch_size and negatives "
    "must be multiples of it. Another number rounds otherwise"
)
OPTION = "constructor arguments of the task, as --option noise=0.5 reward=dense"
TASK = tyro.conf.arg(metavar="TASK", help="a Gymnasium id, such as Pendulum-v1")


def main(arguments: list[str]) -> None:
    # The agent and the preset decide which settings there are and what their defaults are.
    agent = peek(arguments, "--agent", "ctrl-ucb-m")
    chosen = peek(arguments, "--preset", "small")
    request = parse(arguments, agent, chosen)
    config = RunConfig(
        task=request.task,
        agent=agent,
        settings=request.settings,
        schedule=request.schedule,
        seed=request.seed,
        task_options=task_options(request.option),
    )
    directory = train(config, request.steps, request.output, request.devices)
    print(directory.path)


def parse(arguments: list[str], agent: str, chosen: str) -> Any:
    """The request as a dataclass whose settings are the agent's, with the preset as default."""
    settings, schedule = preset(agent, chosen)
    request = dataclasses.make_dataclass(
        "Train",
        [
            ("task", Annotated[str, tyro.conf.Positional, TASK]),
            ("agent", Annotated[str, _help(_list(DESCRIPTIONS))], agent),
            ("preset", Annotated[str, _help(_list(PRESET_DESCRIPTIONS))], chosen),
            ("steps", Annotated[int, _help("environment steps to train to")], 20_000),
            ("seed", Annotated[int, _help("of everything random")], 0),
            ("option", Annotated[tuple[str, ...], _help(OPTION)], ()),
            ("devices", Annotated[int, _help(DEVICES)], 1),
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
        description=(
            "Train an agent. The run directory is named after the configuration, and running the "
            "same command again resumes it. Defaults below are those of the preset."
        ),
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
