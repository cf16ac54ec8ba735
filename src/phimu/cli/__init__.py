"""The command line. Commands import what they need when they run, so that --help is instant."""

import importlib
import os
import sys
from typing import NamedTuple

from phimu.leaving import leave_at_once, raise_again


class Command(NamedTuple):
    module: str
    function: str
    summary: str
    resumes: bool = False  # it can be stopped anywhere, and re-running it goes on

    def run(self, arguments: list[str]) -> None:
        function = getattr(importlib.import_module(f"phimu.cli.{self.module}"), self.function)
        if not self.resumes:
            raise_again()
        function(arguments)


COMMANDS = {
    "train": Command(
        "train", "main", "train an agent; re-running the command resumes the run", resumes=True
    ),
    "resume": Command("train", "resume", "continue a run from its directory", resumes=True),
    "study": Command(
        "study", "main", "run a table, figure or ablation of the paper; it resumes", resumes=True
    ),
    "sweep": Command("sweep", "main", "search settings with Optuna; it resumes", resumes=True),
    "queue": Command("queue", "main", "studies one after the other, left alone", resumes=True),
    "watch": Command("watch", "main", "live curves of runs, in the terminal or as a page"),
    "evaluate": Command("evaluate", "main", "run episodes of a trained agent, and film one"),
    "probe": Command("evaluate", "probe", "say what is linear in a run's phi"),
    "phi": Command("phi", "main", "draw a run's phi as a map, by value and by bonus"),
    "plot": Command("report", "plot", "draw the learning curves of runs"),
    "report": Command("report", "main", "one page of runs beside what was published"),
    "heatmap": Command("maze", "heatmap", "draw and score a maze run's learned transition"),
    "exploration": Command(
        "maze", "exploration", "draw where maze runs have been, and their bonus"
    ),
    "data": Command("data", "main", "logged transitions: check them, say what they hold"),
    "tasks": Command("lists", "tasks", "list tasks with sizes and published scores, or draw them"),
    "agents": Command("lists", "agents", "list agents and presets"),
    "bench": Command("bench", "main", "measure speed, as ratios within one run"),
    "theory": Command("theory", "main", "the paper's theory, run on finite MDPs"),
    "gap": Command(
        "gap", "main", "a maze with a doorway that is not in the data, and the penalty", True
    ),
    "demo": Command("maze", "demo", "the paper's first figure, in about five minutes", True),
}

USAGE = """\
phimu: reinforcement learning on learned linear-MDP representations (CTRL).

Usage: phimu COMMAND ...

{commands}

Examples:
  phimu demo
  phimu train Pendulum-v1 --agent ctrl-ucb-m --preset small --steps 20000 --seed 0
  phimu train Pendulum-v1 --agent sac --steps 20000 --discount 0.98
  phimu evaluate runs/gymnasium/Pendulum-v1/sac/*/seed-0 --episodes 100
  phimu data show hopper_medium.hdf5
  phimu train d4rl:hopper_medium.hdf5 --agent ctrl-lcb --steps 100000
  phimu plot runs/gymnasium/Pendulum-v1 --out curves.png
  phimu study table1 --tasks Pendulum CartPole --preset small --steps 20000 --dry-run
  phimu report runs -o report.html

`phimu COMMAND --help` explains a command; for train it lists every setting with its default."""

UNHARMED = "earlier checkpoints are intact; fix the problem and re-run to resume."


def main(arguments: list[str] | None = None) -> int:
    """Run one command; whatever ends it early is one sentence on standard error and a code."""
    if arguments is None:
        leave_at_once()
        arguments = sys.argv[1:]
    if arguments[:1] in (["-V"], ["--version"]):
        from importlib.metadata import version

        print(version("phimu"))
        return 0
    from phimu.training.threads import limit_threads

    try:
        asked = peek(arguments, "--threads", "")
        limit_threads(int(asked) if asked.removeprefix("-").isdigit() else None)
        dispatch(arguments, COMMANDS, USAGE, "command")
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("phimu: stopped; re-run to resume from the last checkpoint.", file=sys.stderr)
        return 130
    except Exception as error:
        return _report(error)
    return 0


def _report(error: Exception) -> int:
    """Say what ended a command, and with which code it ends; raise what nobody foresaw."""
    from phimu.errors import InputError, Stopped, environment_traceback

    notes, where = getattr(error, "__notes__", []), environment_traceback(error)
    if isinstance(error, InputError | Stopped):
        print(" ".join([f"phimu: {error}", *notes]), file=sys.stderr)
        return error.exit_code
    if where is not None:
        import traceback

        error.__notes__ = []  # they are the sentence below
        traceback.print_exception(type(error), error, where)
        print(" ".join(["phimu:", *notes]), file=sys.stderr)
        return os.EX_SOFTWARE
    if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, OSError):
        where_on_disk = f"{error.filename}: " if error.filename else ""
        print(f"phimu: {where_on_disk}{error.strerror or error}; {UNHARMED}", file=sys.stderr)
        return os.EX_IOERR
    raise error


def peek(arguments: list[str], flag: str, default: str) -> str:
    """The value of one flag before the parser exists."""
    value = default
    for index, word in enumerate(arguments):
        if word == flag and index + 1 < len(arguments):
            value = arguments[index + 1]
        elif word.startswith(flag + "="):
            value = word.partition("=")[2]
    return value


def dispatch(arguments: list[str], commands: dict[str, Command], usage: str, what: str) -> None:
    """Run the command that `arguments` begin with, or print `usage` with the list of them."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(11, *map(len, commands)) + 2
        lines = [f"  {name:<{width}}{command.summary}" for name, command in commands.items()]
        print(usage.format(commands="\n".join(lines)))
        return
    name, *rest = arguments
    if name not in commands:
        import difflib

        from phimu.errors import InputError

        close = difflib.get_close_matches(name, commands, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        known = ", ".join(commands)
        raise InputError(f"There is no {what} {name!r}: use one of {known}.{meant}")
    commands[name].run(rest)
