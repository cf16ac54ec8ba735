"""Our TD3+BC, timed: `python our_td3_bc.py JOB.json` prints JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from phimu.agents import preset
from phimu.data.logged import Transitions
from phimu.errors import InputError
from phimu.speed.offline import Timed


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the updates, by the clock and of the processor."""
    with np.load(job["data"], allow_pickle=False) as arrays:
        rows = Transitions(**{name: arrays[name] for name in Transitions._fields})
    return {
        "seconds": Timed(preset("td3-bc", "paper-d4rl", logged=True), rows).seconds(job["steps"])
    }


if __name__ == "__main__":
    try:
        print(json.dumps(measure(json.loads(Path(sys.argv[1]).read_text()))))
    except InputError as error:
        sys.exit(str(error))
