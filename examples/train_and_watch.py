"""Train CTRL-UCB and watch it: `phimu train` in this thread, a frame of `phimu watch` from another.

python examples/train_and_watch.py [STEPS]

In a shell one would run the two commands side by side; `phimu watch RUN --page` serves a page.
"""

import sys
import threading
from pathlib import Path

from phimu.cli import main as phimu

RUN = Path("runs/examples/train-and-watch")


def watch(run: Path, over: threading.Event, seconds: float) -> None:
    """Print a frame now and then, once there is something to see."""
    while not over.wait(seconds):
        if (run / "metrics.jsonl").exists():
            phimu(["watch", str(run), "--once"])


def main(steps: int = 10_000, run: Path = RUN, seconds: float = 10.0, *flags: str) -> None:
    words = ["train", "Pendulum-v1", "--agent", "ctrl-ucb-m", "--preset", "small", "--quiet"]
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(run, over, seconds))
    watcher.start()
    try:
        phimu([*words, "--steps", str(steps), "--run-dir", str(run), *flags])
    finally:
        over.set()
        watcher.join()
    phimu(["watch", str(run), "--once"])  # how it ended


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
