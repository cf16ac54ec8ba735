"""`phimu train TASK --agent ... --preset ... --steps N` with any setting as a flag; `resume`."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from phimu.agents import PRESETS, learners, preset
from phimu.cli import peek
from phimu.cli.arguments import THREADS, call
from phimu.cli.arguments import parse as read
from phimu.data.logged import LoggedDataset
from phimu.data.sets.opening import is_source, open_set
from phimu.errors import InputError
from phimu.runs.config import Dataset, RunConfig
from phimu.session import Order, Output, order_of, train
from phimu.settings import choices, kind, override, walk

DEVICES = (
    "how many share each batch: GPUs, or else virtual devices on the CPU; batch_size and negatives "
    "must be multiples of it. Another number changes rounding"
)
OPTION = "constructor arguments of the task, as --option noise=0.5 reward=dense"
TASK = tyro.conf.arg(metavar="TASK", help="a Gymnasium id, such as Pendulum-v1")
DATA = tyro.conf.arg(
    metavar="DATA", help="d4rl:FILE, minari:ID or minari:DIRECTORY, or a file of arrays (.npz)"
)
NONE = "none"
STEPS = "environment steps to train to"
POLICY_STEPS = "updates of the policy to train to; those of the phases before it come on top"
EVALUATION_TASK = (
    "the Gymnasium id to evaluate the policy in; by default the one that the data names, and "
    f"{NONE} for no evaluation but estimates from the data"
)
ONLINE = (
    "Train an agent. The run directory is named after the configuration; re-running the command "
    "resumes from the last checkpoint. Defaults below are those of the preset. In place of TASK, "
    "d4rl:FILE, minari:ID or a file of arrays trains on logged data: `phimu train d4rl:FILE "
    "--help` lists what there is then."
)
LOGGED = (
    "Train an agent on logged data. The run directory is named after the configuration and the "
    "content of the dataset; re-running the command resumes from the last checkpoint. Defaults "
    "below are those of the preset."
)


def main(arguments: list[str]) -> None:
    request = parse(arguments)
    data = None
    if is_source(request.task):
        data = open_set(request.task, request.sha256, task=request.evaluation_task)
    order = order_for(request, data)
    directory = train(order, request.output, data, request.devices)
    if data is not None and order.config.evaluation_task is None and not request.output.quiet:
        where = f"phimu evaluate {directory.path} --data {request.task}"
        print(f"No environment to run the policy in; an estimate: {where}", file=sys.stderr)
    print(directory.path)


def resume(arguments: list[str]) -> None:
    def run(
        run: Annotated[Path, tyro.conf.Positional],
        steps: int | None = None,
        data: str | None = None,
        quiet: bool = False,
        threads: Annotated[int | None, tyro.conf.arg(help=THREADS)] = None,
    ) -> None:
        """Continue a run from its own directory, as far as it was to be trained.

        Args:
            run: a run directory of phimu train or phimu study.
            steps: train to this many steps instead; on logged data updates of the policy.
            data: where its logged data is now, if it was moved.
            quiet: print nothing while training.
        """
        del threads  # they were set before anything was imported
        print(train(order_of(run, steps, data), Output(run_dir=run, quiet=quiet)).path)

    call(run, arguments, "phimu resume")


def order_for(request: Any, data: LoggedDataset | None) -> Order:
    """What a parsed command line asks for."""
    task, source, dataset = request.task, None, None
    if data is not None:
        task, source = data.name, request.task
        dataset = Dataset.of(data, None if data.task == NONE else data.task)
    parts = request.settings, request.schedule
    options = task_options(request.option)
    config = RunConfig(task, request.agent, *parts, request.seed, options, dataset)
    return Order(config, request.steps, source, {"preset": request.preset})


def parse(arguments: list[str]) -> Any:
    """The request as a dataclass; which settings there are is up to the agent and the preset."""
    logged = bool(arguments) and is_source(arguments[0])
    known = learners(logged)
    agent = peek(arguments, "--agent", "ctrl-lcb" if logged else "ctrl-ucb-m")
    name = peek(arguments, "--preset", "small")
    # A part that is chosen by name comes first: its own settings are flags too.
    parts = preset(agent, name, logged)
    # One at a time, for each choice may bring others or take them away.
    made: set[str] = set()
    while left := [offered for offered in _offered(parts) if offered[0] not in made]:
        each, value, _ = left[0]
        flag = "--" + each.replace("_", "-")
        parts = override(parts, {each: peek(arguments, flag, value)})
        made.add(each)
    agents = _list({n: e.summary for n, e in known.items()})
    presets = _list({n: PRESETS.get(n, n) for n in known[agent].presets(logged)})
    own: list[Any] = [
        ("task", Annotated[str, tyro.conf.Positional, DATA if logged else TASK]),
        _flag("agent", str, agent, agents),
        _flag("preset", str, name, presets),
    ]
    if logged:
        own += [
            _flag("steps", int, 200_000, POLICY_STEPS),
            _flag("evaluation_task", str | None, None, EVALUATION_TASK, "task"),
            _flag("sha256", str | None, None, "what the file's must be"),
            ("devices", tyro.conf.Suppress[int], 1),
        ]
    else:
        own += [_flag("steps", int, 20_000, STEPS), _flag("devices", int, 1, DEVICES)]
    own += [
        _flag("seed", int, 0, "of everything random"),
        _flag("option", tuple[str, ...], (), OPTION),
        _flag("threads", int | None, None, THREADS),
        *(_flag(each, str, value, " or ".join(given)) for each, value, given in _offered(parts)),
        ("output", Output, Output()),
        ("settings", type(parts.settings), parts.settings),
        ("schedule", type(parts.schedule), parts.schedule),
    ]
    request = dataclasses.make_dataclass("Train", own, frozen=True)
    return read(
        tyro.conf.configure(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)(request),
        arguments,
        prog="phimu train",
        description=LOGGED if logged else ONLINE,
    )


def _offered(parts: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    """Of every part that is chosen by name: the field, what is chosen, and what can be."""
    return [
        (field.name, kind(field, value), tuple(choices(field)))
        for part in parts
        for field, value in walk(part)
        if choices(field)
    ]


def _list(descriptions: dict[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in descriptions.items())


def _flag(name: str, kind: Any, default: Any, text: str, called: str | None = None) -> Any:
    """A field of the request."""
    return name, Annotated[kind, tyro.conf.arg(name=called, help=text)], default


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
