"""Our training loops against the SAC of Stable-Baselines3 and of sbx, in turns."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from phimu.errors import InputError
from phimu.runs.files import cache_directory
from phimu.speed import their_loop, updates
from phimu.speed.loop import Job, run_child, run_ours

# In this order: Stable-Baselines3 would take any other torch.
REQUIREMENTS = (
    ("torch==2.13.0",),
    ("stable-baselines3", "sbx-rl", "gymnasium[mujoco]", "mujoco>=3.17,<4"),
)
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
    python = venv / "bin" / "python"
    if not python.exists():
        raise InputError(f"{venv} is no virtual environment: it has no bin/python.")
    script = [str(python), "-I", their_loop.__file__]
    job = Job(updates.CASES[SAC], steps=steps, work=1.0)
    theirs = job._asdict() | {"width": job.agent.hidden}
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


def own_venv(
    say: Callable[[str], Any],
    name: str = "peers",
    requirements: tuple[tuple[str, ...], ...] = REQUIREMENTS,
) -> Path:
    """A virtual environment with the peers in the user's cache directory, made if need be."""
    venv = cache_directory() / name
    wanted = "\n".join(each for group in requirements for each in group) + "\n"
    finished = venv / "installed.txt"  # written last, so that half an installation is redone
    if finished.exists() and finished.read_text() == wanted:
        return venv
    say(f"Installing {' '.join(wanted.split())} into {venv}; delete it to get the space back.")
    install(venv, requirements)
    finished.write_text(wanted)
    return venv


def install(venv: Path, requirements: tuple[tuple[str, ...], ...]) -> None:
    """Make `venv` anew, and install each group after the one before."""
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    commands = [[sys.executable, "-m", "venv", "--clear", str(venv)]]
    commands += [[*pip, *group] for group in requirements]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr + done.stdout).strip().splitlines() or ["no reason was given"]
            errors = [line for line in said if line.startswith("ERROR:")]
            why = (errors or said)[-1].removeprefix("ERROR:").strip()
            raise InputError(
                f"The peers could not be installed into {venv} ({why}); "
                "check the network, or name a virtual environment that has them by --peers-venv."
            )
