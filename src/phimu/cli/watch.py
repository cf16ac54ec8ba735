"""`phimu watch RUN ...`: curves while runs train, in the terminal or as a page."""

import time
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.live import Live

from phimu.cli.arguments import command
from phimu.errors import InputError
from phimu.reports.live.terminal import frame
from phimu.reports.live.watched import Watch

REFRESH_SECONDS = 1.0


@command("phimu watch", tyro.conf.FlagCreatePairsOff)
def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    once: bool = False,
    page: bool = False,
    port: int = 0,
) -> None:
    """Show runs while they train: returns, losses, speed and the time left. Ctrl-C ends it.

    It only reads, so nobody who trains is disturbed; finished runs are shown too.

    Args:
        runs: run directories, or directories above them, where runs that begin later appear too.
        once: print one frame and end.
        page: serve a page of curves on this machine, at an address that is printed, instead.
        port: of that page; 0 takes a free one.
    """
    watch = Watch(runs)
    try:
        if page:
            _serve(watch, port)
        else:
            _show(watch, Console(), once)
    except KeyboardInterrupt:
        return  # how it ends


def _show(watch: Watch, console: Console, once: bool) -> None:
    if once:
        found = watch.look()
        console.print(frame(found, console.width, 1_000))
        return
    if not console.is_terminal:
        raise InputError("Standard output is no terminal: give --once for one frame, or --page.")
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.update(frame(watch.look(), *console.size), refresh=True)
            time.sleep(REFRESH_SECONDS)


def _serve(watch: Watch, port: int) -> None:
    from phimu.reports.live.server import Server

    if not 0 <= port < 65_536:
        raise InputError(f"port is {port}: give one from 1 to 65535, or 0 for a free one.")
    with Server(watch, port) as server:
        print(f"{server.address}  (Ctrl-C ends it)", flush=True)
        server.serve_forever()
