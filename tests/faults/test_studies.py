"""Studies whose driver and workers are killed at any instant end as an undisturbed one does."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import phimu
from phimu.runs.checkpoint import glance

SOURCE = str(Path(next(iter(phimu.__path__))).parent)
WORDS = (
    "table1 --tasks phimu/probe-MatchObservation-v0 phimu/probe-TimeLimit-v0 --preset small "
    "--workers 2 --set actor_sizes=8 critic_width=8 batch_size=8 buffer_size=150 "
    "learning_starts=40 evaluate_every=70 evaluation_episodes=1 checkpoint_every=25 log_every=10"
)
COMMAND = WORDS.split()
QUICK = [*COMMAND, "--agents", "sac", "--seeds", "1", "--steps", "150"]
FOR_PHI = ["feature_dim=8", "feature_sizes=8", "negatives=4"]
WHOLE = [*COMMAND, *FOR_PHI, "--agents", "sac", "ctrl-ucb-m", "--seeds", "2", "--steps", "300"]
ON_RAY = [*COMMAND, "--agents", "sac", "--seeds", "2", "--steps", "600"]
KILLS = ["driver", "workers", "both", "driver, and wait"]
STOPS = ["stop", "one worker", "stop", "both"]
VARIABLES = {
    "PYTHONPATH": SOURCE,
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # most of the time would go into it
}


class Driver:
    """A `phimu study` at work."""

    def __init__(self, words: list[str], runs: Path):
        self.runs = runs
        self.said = runs.with_name(f"{runs.name}-{time.monotonic_ns()}.txt")
        with open(self.said, "w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "phimu", "study", *words, "--runs", str(runs)],
                env=os.environ | VARIABLES,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Or until all is over."""
        wait_for(lambda: self.process.poll() is not None or condition(), 300)

    def finish(self) -> str:
        """The scores that it prints."""
        code = self.process.wait(600)
        said = self.said.read_text()
        assert code == 0, said
        return said[said.index("\nreturn ") : said.index("Beside others")]


def workers(runs: Path) -> list[int]:
    """The processes that hold the locks of runs and are alive."""
    found = []
    for lock in runs.glob("*/*/*/*/*/lock"):
        with contextlib.suppress(OSError, ValueError):
            pid = json.loads(lock.read_text())["pid"]
            if str(runs) in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


def saved_steps(runs: Path) -> int:
    """Of all runs together."""
    return sum(glance(path)[0] for path in runs.glob("*/*/*/*/*/checkpoint"))


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def outcome(runs: Path) -> dict[str, bytes]:
    """The metrics of each run, which say what was trained and evaluated, and each thing once."""
    return {str(path.relative_to(runs)): path.read_bytes() for path in runs.glob("**/*.jsonl")}


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job in the background ignores SIGINT, and its children would too."""
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("words", "kills", "seconds"),
    [
        (QUICK, ["workers", "driver, and wait"], 2.0),
        pytest.param(WHOLE, KILLS * 4, 6.0, marks=pytest.mark.faults),
        pytest.param(WHOLE, STOPS * 4, 6.0, marks=pytest.mark.faults),
    ],
    ids=["quick", "kills", "stops"],
)
def test_killed_at_any_instant_each_run_is_done_once(
    words: list[str], kills: list[str], seconds: float, tmp_path: Path
) -> None:
    """Something is killed within so many seconds after workers have begun, or have saved."""
    runs, rng = tmp_path / "runs", np.random.default_rng(0)
    driver = Driver(words, runs)
    for number, what in enumerate(kills):
        if driver.process.poll() is not None:
            driver = Driver(words, runs)
        driver.wait_until(lambda: bool(workers(runs)))
        if number % 2:
            before = saved_steps(runs)
            driver.wait_until(lambda: saved_steps(runs) > before)  # noqa: B023 (called at once)
        time.sleep(rng.uniform(0, seconds))
        disturb(driver, what)
    if driver.process.poll() is not None:
        driver = Driver(words, runs)
    table = driver.finish()
    assert workers(runs) == []
    undisturbed = Driver(words, tmp_path / "undisturbed")
    assert undisturbed.finish() == table
    assert outcome(tmp_path / "undisturbed") == outcome(runs)


def disturb(driver: Driver, what: str) -> None:
    at_work = workers(driver.runs)
    if what == "one worker":
        kill(at_work[:1])
    if what in ("workers", "both"):
        kill(at_work)
    if what in ("driver", "both", "driver, and wait"):
        driver.process.kill()
        driver.process.wait()
    if what == "driver, and wait":  # the kernel tells its workers to stop
        wait_for(lambda: not workers(driver.runs), 60)
    if what == "stop":
        driver.process.send_signal(signal.SIGINT)
        code = driver.process.wait(60)
        assert code in (0, 130, -signal.SIGINT), driver.said.read_text()  # the last at its start
        assert code < 0 or not workers(driver.runs)


class Node:
    """A machine of a Ray cluster, which is this one; no dashboard."""

    def __init__(self, *words: str):
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        own = ["--node-ip-address=127.0.0.1", "--num-cpus=1", "--object-store-memory=80000000"]
        self.process = subprocess.Popen(
            [*ray, *own, "--disable-usage-stats", *words],
            env=os.environ | VARIABLES,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> None:
        """All at once, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


CORES = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
print(ray.cluster_resources().get("CPU"))
"""


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, Node]]:
    """The address of a cluster of two nodes, and the second of them, which may be killed."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    for _ in range(5):  # on a busy machine Ray gives up some processes that are slow to start
        with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as directory:
            port, client = free_port(), free_port()
            address = f"127.0.0.1:{port}"
            ports = f"--port={port}", f"--ray-client-server-port={client}"
            head = Node("--head", *ports, "--include-dashboard=false", f"--temp-dir={directory}")
            nodes = [head]
            try:
                if not has_cores(address, 1):
                    continue
                nodes.append(Node(f"--address={address}"))
                if has_cores(address, 2):
                    yield address, nodes[1]
                    return
            finally:
                for node in nodes:
                    node.kill()
    pytest.fail("No Ray cluster could be started.")


def has_cores(address: str, count: int) -> bool:
    """Whether there are so many after a while."""
    command = [sys.executable, "-c", CORES, address]
    for _ in range(10):
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        if f"{count}.0" in said:
            return True
        time.sleep(2)
    return False


@pytest.mark.faults
def test_on_ray_with_a_node_killed_each_run_is_done_once(cluster, tmp_path: Path) -> None:
    address, node = cluster
    runs = tmp_path / "runs"
    driver = Driver([*ON_RAY, "--ray", address], runs)
    wait_for(lambda: len(workers(runs)) == 2, 300)  # one on each node
    driver.process.terminate()
    assert driver.process.wait(120) == 143, driver.said.read_text()
    assert workers(runs) == []  # they were told to save and leave, and did
    assert any(runs.glob("**/checkpoint/step-*"))
    driver = Driver([*ON_RAY, "--ray", address], runs)
    wait_for(lambda: len(workers(runs)) == 2, 300)
    time.sleep(3)
    node.kill()
    table = driver.finish()
    undisturbed = Driver(ON_RAY, tmp_path / "undisturbed")
    assert undisturbed.finish() == table
    assert outcome(tmp_path / "undisturbed") == outcome(runs)
