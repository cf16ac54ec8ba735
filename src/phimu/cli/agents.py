"""`phimu agents`: what can be trained, and with which presets."""

from rich.console import Console
from rich.table import Table

from phimu.agents import AGENTS, PRESETS
from phimu.cli.arguments import call


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu agents")


def _run() -> None:
    """List the agents and presets of `phimu train`."""
    agents = Table("agent", "learns from", "what it is", "presets", box=None, pad_edge=False)
    for name, entry in AGENTS.items():
        sources = {"environments": entry.presets(False), "logged data": entry.presets(True)}
        for source, found in sources.items():
            if found:
                agents.add_row(name, source, entry.summary, ", ".join(found))
    presets = Table("preset", "what it is", box=None, pad_edge=False)
    for name, text in PRESETS.items():
        presets.add_row(name, text)
    Console().print(agents, "", presets)
