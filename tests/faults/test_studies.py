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
    "PYTHONPATH": os.pathsep.join([SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])]),
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

    def wait_while_at_work(self, condition: Callable[[], bool]) -> None:
        """What comes before its end: if that comes first, what it said is why."""
        self.wait_until(condition)
        assert condition(), self.said.read_text()

    def finish(self) -> str:
        """The scores that it prints."""
        code = self.process.wait(600)
        said = self.said.read_text()
        assert code == 0, said
        return said[said.index("\nreturn ") : said.index("Beside others")]


Begin = Callable[[list[str], Path], Driver]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """begin(words, runs): a Driver that does not outlive the test."""
    begun: list[Driver] = []

    def start(words: list[str], runs: Path) -> Driver:
        begun.append(Driver(words, runs))
        return begun[-1]

    yield start
    for driver in begun:
        driver.process.kill()
        driver.process.wait()


def workers(runs: Path) -> list[int]:
    """The processes that hold the locks of runs and are alive."""
    found = []
    for lock in runs.glob("*/*/*/*/*/lock"):
        with contextlib.suppress(OSError, ValueError):
            pid = json.loads(lock.read_text())["pid"]
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "resume" in words and any(word.startswith(str(runs)) for word in words):
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
        pytest.param(QUICK, ["workers", "driver, and wait"], 2.0, marks=pytest.mark.thorough),
        pytest.param(WHOLE, KILLS * 4, 6.0, marks=pytest.mark.faults),
        pytest.param(WHOLE, STOPS * 4, 6.0, marks=pytest.mark.faults),
    ],
    ids=["quick", "kills", "stops"],
)
def test_killed_at_any_instant_each_run_is_done_once(
    words: list[str], kills: list[str], seconds: float, begin: Begin, tmp_path: Path
) -> None:
    """Something is killed within so many seconds after workers have begun, or have saved."""
    runs, rng = tmp_path / "runs", np.random.default_rng(0)
    driver = begin(words, runs)
    for number, what in enumerate(kills):
        if driver.process.poll() is not None:
            driver = begin(words, runs)
        driver.wait_until(lambda: bool(workers(runs)))
        if number % 2:
            before = saved_steps(runs)
            driver.wait_until(lambda: saved_steps(runs) > before)  # noqa: B023 (called at once)
        time.sleep(rng.uniform(0, seconds))
        disturb(driver, what)
    if driver.process.poll() is not None:
        driver = begin(words, runs)
    table = driver.finish()
    assert workers(runs) == []
    undisturbed = begin(words, tmp_path / "undisturbed")
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
            # What else fills the memory of this machine must not have runs killed.
            env=os.environ | VARIABLES | {"RAY_memory_monitor_refresh_ms": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> None:
        """All at once, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


TWO_CORES = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
while ray.cluster_resources().get("CPU") != 2:
    time.sleep(0.2)
"""


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def cluster() -> Iterator[tuple[str, Node]]:
    """The address of a cluster of two nodes, and the second of them, which may be killed.

    Ray listens on every network of a machine. Who does not want that gives the test one of its own:
    unshare --net --map-root-user sh -c "ip link set lo up && make faults".
    """
    pytest.importorskip("ray", reason="the extra ray is not installed")
    for _ in range(3):  # on a busy machine Ray gives up some processes that are slow to start
        with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as directory:
            port, client = free_port(), free_port()
            ports = f"--port={port}", f"--ray-client-server-port={client}"
            head = Node("--head", *ports, "--include-dashboard=false", f"--temp-dir={directory}")
            nodes = [head]
            try:
                wait_for(lambda: listens(port), 60)  # noqa: B023 (called at once)
                address = f"127.0.0.1:{port}"
                nodes.append(Node(f"--address={address}"))
                subprocess.run([sys.executable, "-c", TWO_CORES, address], check=True, timeout=90)
                yield address, nodes[1]
                return
            except (AssertionError, subprocess.SubprocessError):
                continue
            finally:
                for node in nodes:
                    node.kill()
    pytest.fail("No Ray cluster could be started.")


@pytest.mark.faults
def test_on_ray_with_a_node_killed_each_run_is_done_once(cluster, begin, tmp_path: Path) -> None:
    address, node = cluster
    runs = tmp_path / "runs"
    driver = begin([*ON_RAY, "--ray", address], runs)
    # one on each node; and what is stopped before its first step has nothing to save
    driver.wait_while_at_work(lambda: len(workers(runs)) == 2 and saved_steps(runs) > 0)
    driver.process.terminate()
    assert driver.process.wait(120) == 143, driver.said.read_text()
    assert workers(runs) == []  # they were told to save and leave, and did
    assert saved_steps(runs) > 0
    driver = begin([*ON_RAY, "--ray", address], runs)
    driver.wait_while_at_work(lambda: len(workers(runs)) == 2)
    time.sleep(3)
    node.kill()
    table = driver.finish()
    undisturbed = begin(ON_RAY, tmp_path / "undisturbed")
    assert undisturbed.finish() == table
    assert outcome(tmp_path / "undisturbed") == outcome(runs)
