"""A sweep on a Ray cluster; without one, in processes of this machine.

ray start --head --include-dashboard=false    # once; other machines join with --address
python examples/sweep_on_ray.py [STEPS]

Killed at any time, the same command goes on. Needs `pip install "phimu[sweep,ray]"`.
"""

import importlib.util
import os
import sys
from pathlib import Path

from phimu.cli import main as phimu


def pool() -> list[str]:
    """Where trials run."""
    if importlib.util.find_spec("ray") is None:
        print('Ray is not installed (pip install "phimu[ray]"): using processes of this machine.')
        return ["--workers", str(os.cpu_count())]
    return ["--ray", os.environ.get("RAY_ADDRESS", "auto")]


def main(steps: int = 5_000, trials: int = 12, out: Path = Path("runs/sweeps"), *fixed: str) -> int:
    words = ["sweep", "Pendulum-v1", "--agent", "sac", "--preset", "small", "--out", str(out)]
    words += ["--steps", str(steps), "--trials", str(trials), *pool()]
    words += ["--vary", "critic_learning_rate=1e-4..1e-2:log", "batch_size=64,128,256"]
    return phimu([*words, *(["--set", *fixed] if fixed else [])])


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
