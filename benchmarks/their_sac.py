"""The SAC of Stable-Baselines3 or sbx, timed: `python -I their_sac.py JOB.json` prints JSON.

It runs in a virtual environment without phimu, so it imports nothing of phimu.
"""

import importlib
import importlib.metadata
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any


def measure(job: dict[str, Any]) -> dict[str, Any]:
    model = importlib.import_module(job["module"]).SAC(
        "MlpPolicy",
        job["task"],
        learning_starts=job["learning_starts"],
        batch_size=job["batch_size"],
        buffer_size=job["buffer_size"],
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": [job["width"], job["width"]]},
        device="cpu",
        seed=0,
    )
    first_update: list[float] = []
    ticks: list[float] = []  # one per step, before its update
    train = model.train

    def timed_train(*args: Any, **kwargs: Any) -> None:
        train(*args, **kwargs)
        if not first_update:
            first_update.append(time.time() - job["began"])

    def tick(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
        ticks.append(time.perf_counter())
        return True

    model.train = timed_train
    # Both begin to learn one step later than they are told to.
    begin = job["learning_starts"] + 1 + job["warm"]
    model.learn(begin + job["steps"] + 1, callback=tick)
    return {
        "version": importlib.metadata.version(job["package"]),
        "steps_per_second": job["steps"] / (ticks[begin + job["steps"]] - ticks[begin]),
        "first_update_seconds": first_update[0],
        "memory_mb": runpy.run_path(job["peak_memory"])["peak_memory_mb"](),  # as ours is measured
    }


if __name__ == "__main__":
    file = Path(sys.argv[1])
    os.chdir(file.parent)  # where MuJoCo may leave its log
    print(json.dumps(measure(json.loads(file.read_text()))))
