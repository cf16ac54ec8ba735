"""Training on a full or lost disk, and with numbers that are not finite."""

import errno
import json
import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from phimu import session
from phimu.agents import preset
from phimu.cli import main
from phimu.environments.task import open_task
from phimu.errors import InputError, NotFinite, Stopped
from phimu.normalisation import AsIs
from phimu.runs import checkpoint
from phimu.runs.lock import locked
from phimu.runs.log import MetricsLog, read_metrics
from phimu.settings import override
from phimu.training.learner import LearnerState, Program, updates
from phimu.training.online import OnlineRun
from phimu.types import Drawn, Feed, Spec

TINY = {
    **{"actor_sizes": (8,), "critic_width": 8, "feature_dim": 8, "feature_sizes": (8,)},
    **{"negatives": 4, "bonus_scale": 1.0, "refresh_every": 10, "covariance_sample": 20},
    "bonus_kernel": None,
    **{"batch_size": 8, "buffer_size": 60, "learning_starts": 20, "evaluate_every": 0},
    **{"checkpoint_every": 10, "log_every": 5, "normalise_observations": False},
}
IO_ERROR = 74


class Spoilt(gymnasium.Env):
    """One number per step; from `at` on, `where` is `value`."""

    def __init__(self, where: str = "", value: float = 0.0, at: int = 45) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.where, self.value, self.at = where, float(value), at
        self.steps = self.total = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.normal(size=1).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps, self.total = self.steps + 1, self.total + 1
        spoilt = self.value if self.total >= self.at else 0.0
        observation = self.np_random.normal(size=1) + spoilt * (self.where == "observation")
        reward = float(action[0]) + (spoilt if self.where == "reward" else 0.0)
        return observation.astype(np.float32), reward, False, self.steps == 7, {}


@pytest.fixture(autouse=True, scope="module")
def spoilt_task() -> Iterator[None]:
    gymnasium.register("Spoilt-v0", Spoilt, disable_env_checker=True)
    yield
    del gymnasium.registry["Spoilt-v0"]


def train(run: Path, steps: int = 60, evaluate_every: int = 0, **options: object) -> int:
    flags = []
    for name, value in (TINY | {"evaluate_every": evaluate_every}).items():
        flag = "--" + name.replace("_", "-")
        if value is False:
            flags.append(f"--no-{flag[2:]}")
        else:
            flags += [flag, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    given = ["--option", *(f"{name}={json.dumps(value)}" for name, value in options.items())]
    flags += ["--steps", str(steps), "--run-dir", str(run), "--quiet"]
    return main(["train", "Spoilt-v0", *flags, *(given if options else [])])


def online(**options: object) -> OnlineRun:
    settings, schedule = override(preset("ctrl-ucb-m", "small"), TINY)
    return OnlineRun(settings, open_task("Spoilt-v0", **options), schedule, 0)


def saved_step(run: Path) -> int:
    loaded = checkpoint.load(run / "checkpoint", pytest.fail)
    assert loaded is not None
    for name, array in loaded.arrays.items():
        assert np.isfinite(array).all(), name
    for segment in loaded.segments:
        for column in load_file(run / "checkpoint" / "replay" / segment.name).values():
            assert np.isfinite(column).all(), segment.name
    return loaded.step


# The disk


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The metrics of a run that had all the space it wanted."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert train(run) == 0
    return (run / "metrics.jsonl").read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path, free: int) -> None:
    """Leave about `free` bytes."""
    room = os.statvfs(disk)
    size = room.f_bavail * room.f_frsize - free
    (disk / "ballast").write_bytes(b"\0" * max(0, size))


@pytest.mark.parametrize(
    "free",
    [40_000, *(pytest.param(n, marks=pytest.mark.faults) for n in range(0, 53_248, 4_096))],
)
def test_full_disk_keeps_the_last_checkpoint(
    free: int, small_disk: Path, undisturbed: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_disk / "run"
    assert train(run, 20) == 0
    fill(small_disk, free)
    capsys.readouterr()
    assert train(run) == IO_ERROR
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{run}" in error
    assert "No space left on device" in error
    assert saved_step(run) >= 20
    (small_disk / "ballast").unlink()
    assert train(run) == 0
    assert saved_step(run) == 60
    assert (run / "metrics.jsonl").read_bytes() == undisturbed


def test_read_only_disk_is_one_sentence(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_disk / "run"
    assert train(run, 20) == 0
    capsys.readouterr()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert train(run) == IO_ERROR
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{run}/lock: Read-only file system" in error
    assert saved_step(run) == 20
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("fsync", errno.ENOSPC),
        ("open", errno.EACCES),
        ("rename", errno.EDQUOT),
        *(
            pytest.param(call, number, marks=pytest.mark.faults)
            for call in ("fsync", "rename", "open", "mkdir")
            for number in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EIO)
        ),
    ],
)
def test_fault_of_the_disk_is_one_sentence_and_a_code(
    call: str,
    number: int,
    undisturbed: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The disk fails in the middle of the second checkpoint."""
    run = tmp_path / "run"
    real = getattr(os, call)

    def failing(*arguments, **more):
        if (run / "checkpoint" / "step-000000010").exists():
            raise OSError(number, os.strerror(number))
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        assert train(run) == IO_ERROR
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert os.strerror(number) in error
    assert str(run) in error
    assert saved_step(run) == 10
    assert train(run) == 0
    assert (run / "metrics.jsonl").read_bytes() == undisturbed


def test_log_that_cannot_be_written_is_named(
    undisturbed: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file may not grow beyond two rows and a half; checkpoints are other files."""
    run = tmp_path / "run"
    rows = undisturbed.splitlines(keepends=True)
    limit = len(rows[0]) + len(rows[1]) + len(rows[2]) // 2
    write = MetricsLog.write

    def limited(self: MetricsLog, *arguments) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            write(self, *arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with monkeypatch.context() as patch:
        patch.setattr(MetricsLog, "write", limited)
        assert train(run) == IO_ERROR
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{run}/metrics.jsonl: File too large" in error
    assert saved_step(run) == 20
    assert train(run) == 0
    assert (run / "metrics.jsonl").read_bytes() == undisturbed


# Numbers that are not finite


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("observation", "nan", "observation[0] is nan after step 3"),
        ("observation", "inf", "observation[0] is inf after step 3"),
        ("reward", "nan", "reward is nan after step 3"),
        ("reward", "inf", "reward is inf after step 3"),
        ("reward", "1e39", "reward is 1e+39 after step 3"),  # infinite in float32
    ],
)
def test_environment_that_is_not_finite_stops_the_run(
    where: str, value: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", where=where, value=value) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert "The run is saved at step 44; mend the environment and re-run to resume." in error
    assert saved_step(tmp_path / "run") == 44


def test_loss_that_is_not_finite_stops_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert train(run, where="reward", value=3e38) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(r"td_loss is inf,? .*at step 4\d: lower the learning rates", error)
    (file,) = run.glob("not-finite-step-*.safetensors")
    assert str(file) in error
    batch = load_file(file)
    assert batch["reward"].max() > 1e18
    assert batch.keys() >= {"observation", "action", "next_observation", "terminated", "negatives"}
    assert saved_step(run) == 40
    assert all(row["step"] <= 45 for row in read_metrics(run / "metrics.jsonl"))


@dataclass(frozen=True)
class Overflowing:
    """An agent whose loss is finite while its gradient is the greatest reward."""

    def update(self, phase: str, state: jax.Array, feed: Feed, key: jax.Array) -> tuple:
        return state, {"td_loss": jnp.ones(()), "critic_gradient": jnp.max(feed.batch.reward)}


@pytest.mark.parametrize("value", [1.0, np.inf, np.nan])
def test_one_flag_stands_for_losses_and_gradients(value: float) -> None:
    state = LearnerState(AsIs(), jnp.zeros(1))
    program = Program(
        Overflowing(), "policy", jax.tree.structure(state), Spec(1, 1), False, True, None
    )
    drawn = Drawn(np.full((5, 6), value, np.float32))
    *_, finite = updates(program, 1, jax.tree.leaves(state), drawn, 0, 0, 1)
    assert bool(finite) == np.isfinite(value)


def test_every_gradient_has_its_norm_in_the_log(undisturbed: bytes) -> None:
    row = json.loads(undisturbed.splitlines()[0])
    for name in ("feature_gradient", "critic_gradient", "actor_gradient"):
        assert 0 < row[name] < 1e6


def test_no_update_follows_a_bad_one() -> None:
    run = online(where="reward", value=3e38)
    while not run.metrics or np.isfinite(float(run.metrics["td_loss"])):
        run.advance()
    updates = run.updates
    with pytest.raises(NotFinite) as stopped:
        run.advance()
    assert run.updates == updates
    assert stopped.value.arrays["reward"].shape == (8,)


@pytest.mark.parametrize("place", ["weight", "action", "replay"])
def test_what_is_not_finite_is_never_saved(place: str, tmp_path: Path) -> None:
    run = online()
    for _ in range(30):
        run.advance()
    run.save(tmp_path / "checkpoint")
    for _ in range(5):
        run.advance()
    if place == "replay":
        run.replay.rows.reward[33] = np.nan
        match = "reward has a number that is not finite"
    else:
        run.learner.state = jax.tree.map(lambda leaf: leaf * np.float32("nan"), run.state)
        match = "agent/.* has a number that is not finite"
    if place == "action":
        with pytest.raises(InputError, match=r"action\[0\] is nan"):
            run.advance()
    with pytest.raises(NotFinite, match=match):
        run.save(tmp_path / "checkpoint")
    assert saved_step(tmp_path) == 30


# Signals in the middle of an evaluation, and readers


@pytest.mark.parametrize("end_first", [True, False])
def test_stopped_within_an_evaluation_makes_it_later(
    end_first: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also in that of the last step, 47, which is none of a run that goes on to 60."""
    assert train(tmp_path / "whole", 60, evaluate_every=20) == 0
    run, evaluate = tmp_path / "broken", session.evaluate
    for allowed, until, saved in ((0, 47, 20), (2, 47, 47)):
        made: list[object] = []

        def stopped(*arguments, made=made, allowed=allowed):
            if len(made) == allowed:
                raise Stopped(signal.SIGTERM)
            made.append(evaluate(*arguments))
            return made[-1]

        with monkeypatch.context() as patch:
            patch.setattr(session, "evaluate", stopped)
            assert train(run, until, evaluate_every=20) == 128 + signal.SIGTERM
        assert "stopped by SIGTERM; re-run to resume" in capsys.readouterr().err
        assert saved_step(run) == saved
    if end_first:
        assert train(run, 47, evaluate_every=20) == 0
        last = read_metrics(run / "metrics.jsonl")[-2:]
        assert [(row["step"], row["kind"]) for row in last] == [(47, "train"), (47, "evaluation")]
    assert train(run, 60, evaluate_every=20) == 0
    here, there = (tmp_path / name / "metrics.jsonl" for name in ("whole", "broken"))
    assert here.read_bytes() == there.read_bytes()


def test_readers_need_no_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert train(run, 20) == 0
    with locked(run, pytest.fail):
        assert main(["evaluate", str(run), "--episodes", "1"]) == 0
        capsys.readouterr()
        assert train(run) == 75
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"process {os.getpid()} on " in error
