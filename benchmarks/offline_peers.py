"""Updates on logged data: our TD3+BC against d3rlpy's, in turns, on one thread.

`python benchmarks/offline_peers.py` installs d3rlpy into a virtual environment in your cache
directory, some gigabytes, when it is first run; `--venv DIR` takes one that has it already. A round
takes about a minute.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import our_td3_bc
import their_td3_bc
from columns import HOPPER, ROWS, Comparison, compare
from command import run_peers
from phimu.agents.td3_bc import Td3Bc
from phimu.speed.loop import run_child
from phimu.speed.offline import WARM, random_set
from phimu.training.threads import environment
from venvs import python_of

# In this order: d3rlpy would take any other torch.
REQUIREMENTS = (("torch==2.13.0",), ("d3rlpy==2.8.0",))
BATCH = 256
VENV = "peers-offline"  # apart from the other peers, whose Gymnasium it need not agree with
OURS = "td3-bc 256-256"


def offline_speeds(venv: Path, rounds: int, steps: int, rows: int = ROWS) -> list[Comparison]:
    """Against d3rlpy's own loop, and against its updates alone, on one batch."""
    ours = [sys.executable, our_td3_bc.__file__]
    theirs = [str(python_of(venv)), "-I", their_td3_bc.__file__]
    loop, alone = [], []
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "set.npz"
        np.savez(file, **random_set(HOPPER, rows)._asdict())
        job = {"task": OURS, "data": str(file), "width": Td3Bc().critic_width}
        job |= {"batch_size": BATCH, "warm": WARM, "steps": steps}
        for turn in range(rounds):
            # To and fro, so that nobody always comes first on a machine that grows slower.
            order = (ours, theirs)[:: -1 if turn % 2 else 1]
            found = {script[-1]: run_child(script, job, environment(1)) for script in order}
            own, other = found[ours[-1]]["seconds"], found[theirs[-1]]
            loop.append((own, other["loop"]))
            alone.append((own, other["alone"]))
    name = f"d3rlpy {other['version']} TD3+BC"
    return [
        compare((f"phimu {OURS}", name), steps, loop),
        compare((f"phimu {OURS}", f"{name}, one batch for all updates"), steps, alone),
    ]


if __name__ == "__main__":
    sys.exit(run_peers(__doc__, "offline", VENV, REQUIREMENTS, offline_speeds))
