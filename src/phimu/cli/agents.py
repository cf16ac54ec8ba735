"""`phimu agents`: what can be trained, and with which presets."""

from rich.console import Console
from rich.table import Table

from phimu.agents.offline_presets import OFFLINE_DESCRIPTIONS, OFFLINE_PRESET_DESCRIPTIONS
from phimu.agents.presets import DESCRIPTIONS, PRESET_DESCRIPTIONS
from phimu.cli.arguments import call


def main(arguments: list[str]) -> None:
    call(_run, arguments, "phimu agents")


def _run() -> None:
    """List the agents and presets of `phimu train`."""
    console = Console()
    for title, rows in (
        ("agent", DESCRIPTIONS),
        ("preset", PRESET_DESCRIPTIONS),
        ("agent for logged data", OFFLINE_DESCRIPTIONS),
        ("preset for logged data", OFFLINE_PRESET_DESCRIPTIONS),
    ):
        table = Table(title, "what it is", box=None, pad_edge=False)
        for name, text in rows.items():
            table.add_row(name, text)
        console.print(table)
        console.print()
