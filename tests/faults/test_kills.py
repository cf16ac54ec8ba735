"""Processes that are killed or told to stop at any instant end where an undisturbed one does."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import phimu
from phimu.errors import Busy
from phimu.runs import checkpoint
from phimu.runs.lock import locked

SOURCE = str(Path(next(iter(phimu.__path__))).parent)
CAPACITY, STEPS = 150, 600  # the ring wraps, several times over
SECONDS = 4.0  # within which a run is killed; longer than most take once they hold the lock
FLAGS = (
    "--actor-sizes 8 --critic-width 8 --batch-size 8 --learning-starts 40 --evaluate-every 70 "
    f"--evaluation-episodes 1 --checkpoint-every 25 --log-every 10 --buffer-size {CAPACITY} "
    f"--steps {STEPS} --quiet"
)
FOR_PHI = (
    " --feature-dim 8 --feature-sizes 8 --negatives 4 --bonus-scale 1 --refresh-every 10 "
    "--covariance-sample 20"
)
COMMANDS = {
    "ctrl-ucb-m": ["Hopper-v5", *(FLAGS + FOR_PHI).split(), "--agent", "ctrl-ucb-m"],
    "sac": ["dmc/walker-run-v0", *FLAGS.split(), "--agent", "sac"],
}
PACKAGES = {"ctrl-ucb-m": "mujoco", "sac": "dm_control"}


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job in the background ignores SIGINT, and its children would too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(agent: str, run: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "phimu", "train", *COMMANDS[agent], "--run-dir", str(run)],
        # Most of the time would go into optimising what runs for a second.
        env=os.environ | {"PYTHONPATH": SOURCE, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(agent: str, run: Path) -> None:
    child = start(agent, run)
    assert child.wait(300) == 0
    assert child.stderr
    said = child.stderr.read()
    assert said == "" or said.startswith("Already trained")  # no checkpoint was damaged


def wait_for_training(child: subprocess.Popen, run: Path) -> None:
    """Until the process holds the run, which is after the slow imports."""
    deadline = time.monotonic() + 120
    while f'"pid": {child.pid}' not in lock_of(run):
        if child.poll() is not None:
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lock_of(run: Path) -> str:
    try:
        return (run / "lock").read_text()
    except FileNotFoundError:
        return ""


def digest(run: Path) -> dict[str, str]:
    """sha256 of all that a run is: agent, facts, replay buffer and metrics."""
    saved = checkpoint.load(run / "checkpoint", pytest.fail)
    assert saved is not None
    assert saved.step == STEPS
    folder = run / "checkpoint" / f"step-{STEPS:09d}"
    parts = {name: (folder / name).read_bytes() for name in ("arrays.safetensors", "facts.json")}
    parts["metrics"] = (run / "metrics.jsonl").read_bytes()
    for kind in ("rows", "random"):
        files = [run / "checkpoint" / "replay" / s.name for s in saved.segments if s.kind == kind]
        loaded = [load_file(file) for file in files]
        for column in sorted(loaded[0]):
            whole = np.concatenate([part[column] for part in loaded])[-CAPACITY:]
            parts[f"{kind}/{column}"] = whole.tobytes()
    return {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory):
    """undisturbed("sac"): the digest of a run that nobody touched."""
    found: dict[str, dict[str, str]] = {}

    def get(agent: str) -> dict[str, str]:
        pytest.importorskip(PACKAGES[agent], reason=f"{PACKAGES[agent]} is not installed")
        if agent not in found:
            run = tmp_path_factory.mktemp("undisturbed") / agent
            finish(agent, run)
            found[agent] = digest(run)
        return found[agent]

    return get


KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT


@pytest.mark.parametrize(
    ("agent", "signals"),
    [
        ("ctrl-ucb-m", [KILL, TERM]),
        pytest.param("ctrl-ucb-m", [KILL] * 50, marks=pytest.mark.faults),
        pytest.param("sac", [KILL] * 50, marks=pytest.mark.faults),
        pytest.param("ctrl-ucb-m", [TERM, INT] * 15, marks=pytest.mark.faults),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)}-{value[-1].name}",
)
def test_ended_at_any_instant_it_comes_to_the_same_bits(
    agent: str, signals: list[signal.Signals], undisturbed, tmp_path: Path
) -> None:
    """As many runs as it takes, each ended again and again until it is done."""
    expected = undisturbed(agent)
    rng = np.random.default_rng(0)
    left, runs = list(signals), 0
    while left:
        run, runs = tmp_path / str(runs), runs + 1
        while left and end_once(agent, run, left[0], rng.uniform(0, SECONDS)):
            left.pop(0)
        finish(agent, run)
        assert digest(run) == expected, f"after {len(signals) - len(left)} signals"


def end_once(agent: str, run: Path, number: signal.Signals, after: float) -> bool:
    """Start it, send the signal; False if it was done before."""
    child = start(agent, run)
    wait_for_training(child, run)
    with contextlib.suppress(subprocess.TimeoutExpired):
        assert child.wait(after) == 0
    child.send_signal(number)
    begin = time.monotonic()
    code = child.wait(60)
    assert child.stderr
    said = child.stderr.read()
    if code == 128 + number:
        assert time.monotonic() - begin < 10
        assert "re-run to resume" in said
        assert said.count("\n") == 1
    else:
        assert code in (0, -number), said  # over, or the signal came before training began
    return code != 0


def test_two_owners_and_a_dead_one(undisturbed, tmp_path: Path) -> None:
    undisturbed("ctrl-ucb-m")
    child = start("ctrl-ucb-m", tmp_path / "run")
    wait_for_training(child, tmp_path / "run")
    child.send_signal(signal.SIGSTOP)
    try:
        with (
            pytest.raises(Busy, match=rf"process {child.pid} on .* \(since 20") as refused,
            locked(tmp_path / "run", pytest.fail),
        ):
            pass
        assert refused.value.exit_code == 75
    finally:
        child.kill()
        child.wait()
    assert str(child.pid) in lock_of(tmp_path / "run")
    with locked(tmp_path / "run", pytest.fail):  # the kernel knows that the owner is dead
        assert f'"pid": {os.getpid()}' in lock_of(tmp_path / "run")
    assert not (tmp_path / "run" / "lock").exists()


SLOW_TO_STOP = """
import time
from phimu.runs.stopping import stop_requests
with stop_requests() as stop:
    print("ready", flush=True)
    for _ in range(3_000):
        if stop.number:
            print("heard", flush=True)
            break
        time.sleep(0.01)
    time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_leaves_at_once(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_TO_STOP],
        env=os.environ | {"PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout
        for word in ("ready", "heard"):
            assert child.stdout.readline().strip() == word
            child.send_signal(number)
        assert child.wait(10) == 128 + number


# Children are forked from one process, so that a kill costs no start of Python.
KILL_WHILE_SAVING = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from phimu.data.replay import Replay
from phimu.runs import checkpoint
from phimu.types import Spec

directory, kills = Path(sys.argv[1]), int(sys.argv[2])

def filled(step):
    replay = Replay(Spec(3, 2), 5_000, 2_000)
    rows = np.arange(max(0, step - 5_000), step)
    for column in replay.rows:
        column[rows % 5_000] = rows.reshape(-1, *[1] * (column.ndim - 1))
    replay.random_next[:] = np.arange(2_000)[:, None]
    replay.random_next[step:] = 0
    replay.added = step
    return replay

def save_for_ever(saved, pipe):
    step, last = saved.step if saved else 0, saved and checkpoint.Saved(saved.step, saved.segments)
    while True:
        step += 900
        arrays = {"x": np.full(200_000, step, np.float32)}
        last = checkpoint.save(directory, step, arrays, {"at": step}, filled(step), last)
        os.write(pipe, b".")

def said(text):
    raise SystemExit(f"damaged: {text}")

random.seed(0)
saves, last, each = 0, 0, 0.05
for kill in range(kills):
    saved = checkpoint.load(directory, said) if directory.exists() else None
    heard, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        save_for_ever(saved, pipe)
    # In the midst of the first, second or third save, however long they take on this machine.
    began, whole = time.monotonic(), random.randint(0, 2)
    for _ in range(whole):
        os.read(heard, 1)
    each = (time.monotonic() - began) / whole if whole else each
    time.sleep(random.uniform(0.0, each))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(heard)
    os.close(pipe)
    saved = checkpoint.load(directory, said) if directory.exists() else None
    if saved:
        assert saved.step >= last and saved.facts == {"at": saved.step}
        assert (saved.arrays["x"] == saved.step).all()
        replay, expected = filled(0), filled(saved.step)
        saved.restore_replay(replay)
        for column, other in zip(replay.rows, expected.rows):
            assert np.array_equal(column, other)
        assert np.array_equal(replay.random_next, expected.random_next)
        saves, last = saves + (saved.step - last) // 900, saved.step
assert saves > kills / 4, saves
print(f"{kills} kills, {saves} saves")
"""


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.faults)])
def test_killed_while_saving_the_last_checkpoint_is_whole(kills: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILL_WHILE_SAVING, str(tmp_path / "checkpoint"), str(kills)],
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{kills} kills")
