"""The TD3+BC of d3rlpy, timed: `python -I their_td3_bc.py JOB.json` prints JSON.

It runs in a virtual environment without phimu, so it imports nothing of phimu.
"""

import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of its own loop, and of as many updates alone on one batch that is given.

    Each by the clock, and of the processor.
    """
    import d3rlpy
    import numpy as np
    import torch

    torch.set_num_threads(1)
    arrays = np.load(job["data"], allow_pickle=False)
    data = d3rlpy.dataset.MDPDataset(
        arrays["observation"],
        arrays["action"],
        arrays["reward"][:, None],
        arrays["terminated"].astype(np.float32),
        arrays["truncated"].astype(np.float32),
    )
    encoder = d3rlpy.models.VectorEncoderFactory([job["width"], job["width"]])
    algorithm = d3rlpy.algos.TD3PlusBCConfig(
        batch_size=job["batch_size"],
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(),
    ).create(device="cpu")
    ticks: list[list[float]] = []  # one per update
    steps = job["warm"] + job["steps"]
    algorithm.fit(
        data,
        n_steps=steps,
        n_steps_per_epoch=steps,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
        callback=lambda *told: ticks.append(now()),
    )
    batch = data.sample_transition_batch(job["batch_size"])
    begin = now()
    for _ in range(job["steps"]):
        algorithm.update(batch)
    return {
        "version": importlib.metadata.version("d3rlpy"),
        "loop": between(ticks[job["warm"] - 1], ticks[-1]),
        "alone": between(begin, now()),
    }


def now() -> list[float]:
    return [time.perf_counter(), time.process_time()]


def between(begin: list[float], end: list[float]) -> list[float]:
    return [after - before for before, after in zip(begin, end, strict=True)]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    os.chdir(file.parent)  # where it may leave its logs
    print(json.dumps(measure(json.loads(file.read_text()))))
