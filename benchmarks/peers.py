"""Our training loops against the SAC of Stable-Baselines3 and of sbx, in turns.

`python benchmarks/peers.py` installs both into a virtual environment in your cache directory, some
gigabytes, when it is first run; `--venv DIR` takes one that has them already. A round takes about a
minute.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import their_sac
from command import run_peers
from phimu.speed import peak_memory, updates
from phimu.speed.loop import Job, run_child, run_ours
from venvs import python_of

# In this order: Stable-Baselines3 would take any other torch.
REQUIREMENTS = (
    ("torch==2.13.0",),
    ("stable-baselines3", "sbx-rl", "gymnasium[mujoco]", "mujoco>=3.17,<4"),
)
VENV = "peers"
PEERS = {"stable-baselines3": "stable_baselines3", "sbx-rl": "sbx"}  # package -> module
SAC, CTRL = OURS = "sac 256-256", "ctrl-ucb-m 256-256-256"  # of updates.CASES


class PeerSpeed(NamedTuple):
    """One training loop; of several rounds the quickest, the soonest and the smallest."""

    name: str
    steps_per_second: float
    sac_over_it: float  # our SAC's steps a second over its
    ctrl_over_it: float  # the same of our ctrl-ucb-m, which does more
    first_update_seconds: float
    memory_mb: float


def peer_speeds(venv: Path, rounds: int, steps: int) -> list[PeerSpeed]:
    """Ours, then each of PEERS as installed in `venv`, with the same sizes and schedule."""
    script = [str(python_of(venv)), "-I", their_sac.__file__]
    job = Job(updates.CASES[SAC], steps=steps, work=1.0)
    theirs = job._asdict() | {"width": job.agent.hidden, "peak_memory": peak_memory.__file__}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*OURS, *PEERS)}
    for turn in range(rounds):
        # To and fro, so that nobody always comes first on a machine that grows slower.
        for name in list(found)[:: -1 if turn % 2 else 1]:
            if name in OURS:
                found[name].append(run_ours(job._replace(agent=updates.CASES[name])))
            else:
                whose = {"package": name, "module": PEERS[name]}
                found[name].append(run_child(script, theirs | whose))
    return _rows(found)


def _rows(found: dict[str, list[dict[str, Any]]]) -> list[PeerSpeed]:
    best = {
        name: max(each["steps_per_second"] for each in several) for name, several in found.items()
    }
    return [
        PeerSpeed(
            f"phimu {name}" if name in OURS else f"{name} {several[0]['version']}",
            best[name],
            *(best[ours] / best[name] for ours in OURS),
            *(min(each[k] for each in several) for k in ("first_update_seconds", "memory_mb")),
        )
        for name, several in found.items()
    ]


if __name__ == "__main__":
    sys.exit(run_peers(__doc__, "peers", VENV, REQUIREMENTS, peer_speeds))
