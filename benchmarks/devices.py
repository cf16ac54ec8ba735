"""An update with its batch divided among devices, timed in a process that has so many.

`python benchmarks/devices.py JOB.json` prints the seconds of an update as JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from phimu.errors import InputError
from phimu.speed import updates
from phimu.speed.loop import run_child
from phimu.training.devices import use_devices
from phimu.training.learner import Learner
from phimu.training.memory import keep_freed_memory

UPDATES = 20  # in a round


def update_seconds(name: str, devices: int, rounds: int, work: float) -> float:
    """Of one of updates.CASES, with so many devices: virtual ones on the CPU."""
    job = {
        "task": f"An update on {devices} devices",
        "devices": devices,
        "name": name,
        "rounds": rounds,
        "updates": max(1, round(UPDATES * work / updates.WORK)),
    }
    return run_child([sys.executable, __file__], job)["seconds"]


def measure(job: dict[str, Any]) -> dict[str, float]:
    use_devices(job["devices"])
    keep_freed_memory()
    chosen = updates.settings(*updates.CASES[job["name"]])
    drawn = updates.example(chosen, updates.random_replay(chosen, updates.ROWS))
    learner = Learner(chosen.settings, updates.SPEC, chosen.schedule, 0, job["devices"])
    times = []
    for _ in range(job["rounds"] + 1):  # the first one compiles
        begin = time.perf_counter()
        for step in range(job["updates"]):
            learner.learn("policy", step, [drawn], 1)
        learner.check(0)
        times.append((time.perf_counter() - begin) / job["updates"])
    return {"seconds": min(times[1:])}


if __name__ == "__main__":
    try:
        print(json.dumps(measure(json.loads(Path(sys.argv[1]).read_text()))))
    except InputError as error:
        sys.exit(str(error))
