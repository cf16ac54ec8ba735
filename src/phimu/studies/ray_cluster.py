"""Commands on a Ray cluster: a task each, with one core. Its machines share a file system.

Nothing is started here: no cluster, no dashboard. A task that was lost with its machine is begun
anew by whoever waits for it, and goes on from the run directory.
"""

import logging
import time
from pathlib import Path
from typing import Any

from phimu.errors import InputError
from phimu.studies.processes import End, Process
from phimu.studies.runner import POLL_SECONDS

LOST = -1  # the code of a command whose end nobody saw


def _work(command: list[str], directory: str) -> tuple[int, str]:
    """On some machine of the cluster: the command in a process of its own, there to be killed."""
    process = Process(command, Path(directory))
    while True:
        try:
            while (end := process.end()) is None:
                time.sleep(POLL_SECONDS)
            return end.code, end.said
        except KeyboardInterrupt:  # how Ray cancels a task
            process.stop()


class Cluster:
    """A Ray cluster that is there already."""

    def __init__(self, address: str):
        try:
            import ray
        except ImportError as error:
            raise InputError('--ray needs a package: pip install "phimu[ray]".') from error
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            why = str(error).partition("\n")[0]
            raise InputError(
                f"There is no Ray cluster at {address!r} ({why}): start one with "
                "`ray start --head --include-dashboard=false`, or name its address."
            ) from error
        self._ray: Any = ray
        # What is lost is begun anew by the runner, which looks at the run directory first.
        self._task = ray.remote(num_cpus=1, max_retries=0)(_work)

    def cores(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def start(self, command: list[str]) -> "RayTask":
        return RayTask(self._ray, self._task.remote(command, str(Path.cwd())))


class RayTask:
    def __init__(self, ray: Any, reference: Any):
        self._ray, self._reference = ray, reference

    def end(self) -> End | None:
        done, _ = self._ray.wait([self._reference], timeout=0)
        if not done:
            return None
        try:
            return End(*self._ray.get(self._reference))
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return End(LOST, lines[-1])

    def stop(self) -> None:
        self._ray.cancel(self._reference, force=False)
