import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from safetensors.numpy import load_file

from phimu import Ctrl, session
from phimu.agents import AGENTS, PRESETS, learners, preset
from phimu.cli import COMMANDS, main
from phimu.evaluation.episodes import episode_seeds
from phimu.reports import maze
from phimu.runs import checkpoint
from phimu.session import Output, load_run
from phimu.speed import loop, offline, updates
from phimu.studies.cost import read_bench

MAZE = "phimu/FourRooms-v0"
# Short episodes, so that a run of 60 steps has finished ones and an open one at each checkpoint.
OPTIONS = ["--option", "reward=dense", "random_start=true", "max_episode_steps=25"]
SIZES = {
    "ctrl-ucb-m": (
        "--feature-dim 8 --feature-sizes 8 --negatives 4 --bonus-scale 1 --refresh-every 10 "
        "--covariance-sample 20 "
    ),
    "sac": "",
}
SCHEDULE = (
    "--actor-sizes 8 --critic-width 8 --batch-size 8 --buffer-size 100 --learning-starts 20 "
    "--evaluate-every 20 --evaluation-episodes 1 --checkpoint-every 20 --log-every 10"
)
SCORES = {
    *("total_variation_free", "total_variation_beside_walls", "total_variation_beside_inner_walls"),
    *("mean_abs_log_z", "sampling_floor", "success_rate", "mean_length"),
    *("episodes", "step", "updates"),
}


class Plane(gymnasium.Env):
    """As many numbers as the maze has, so that nothing compiles anew; spoilt from a step on."""

    def __init__(self, spoilt_at: int | None = None, render_mode: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.spoilt_at, self.steps, self.render_mode = spoilt_at, 0, render_mode

    def _observation(self) -> np.ndarray:
        return np.array([self.steps, np.nan if self.steps == self.spoilt_at else 0], np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        self.steps = 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps += 1
        return self._observation(), 0.0, False, self.steps == 5, {}


class Switches(Plane):
    """With actions that no agent takes."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self.action_space = gymnasium.spaces.MultiBinary(2)


def phimu(*arguments: object) -> int:
    """The exit code, also where the parser ends the process."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)


def training(agent: str, runs: Path, steps: int, *more: object) -> list[object]:
    flags = [*(SIZES[agent] + SCHEDULE).split(), "--agent", agent]
    return ["train", MAZE, *flags, *OPTIONS, "--steps", steps, "--runs", runs, *more]


def only_run(runs: Path) -> Path:
    (config,) = runs.glob("**/config.json")
    return config.parent


def snapshot(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def results(run: Path) -> dict[str, bytes]:
    """All but the manifest, which counts the starts."""
    return {name: data for name, data in snapshot(run).items() if name != "manifest.json"}


def rows(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def flags_of(config: object) -> Iterator[str]:
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from flags_of(value)
        else:
            yield "--" + field.name.replace("_", "-")


@pytest.fixture(autouse=True, scope="module")
def whole_runs() -> None:
    gymnasium.register("Plane-v0", Plane, disable_env_checker=True)
    gymnasium.register("Switches-v0", Switches, disable_env_checker=True)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would go into the working directory goes where the test can see it."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    search = os.pathsep.join(str(Path(path).resolve()) for path in inherited if path)
    monkeypatch.setenv("PYTHONPATH", search)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An uninterrupted run of 60 steps per agent. Tests that write work on a copy."""
    found = {}
    for agent in SIZES:
        runs = tmp_path_factory.mktemp(agent)
        assert phimu(*training(agent, runs, 60, "--quiet")) == 0
        found[agent] = only_run(runs)
    return found


@pytest.fixture(scope="module")
def plane_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CTRL outside of the maze."""
    runs = tmp_path_factory.mktemp("plane")
    flags = (SIZES["ctrl-ucb-m"] + SCHEDULE).split()
    assert phimu("train", "Plane-v0", *flags, "--steps", 5, "--runs", runs, "--quiet") == 0
    return only_run(runs)


# Help and lists


def test_help_is_instant_and_lists_every_command() -> None:
    code = (
        "import sys; from phimu.cli import main; assert main(['--help']) == 0; "
        "heavy = {'jax', 'tyro', 'matplotlib', 'gymnasium', 'numpy'} & sys.modules.keys(); "
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, command in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert command.summary in done.stdout


def test_agents_lists_agents_and_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert phimu("agents") == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.split()}
    assert {*AGENTS, *PRESETS} <= listed


@pytest.mark.parametrize("agent", learners(logged=False))
def test_train_help_names_every_setting(agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert phimu("train", "--agent", agent, "--help") == 0
    words = capsys.readouterr().out.replace(",", " ").split()
    chosen = preset(agent, "small")
    expected = {*flags_of(chosen.settings), *flags_of(chosen.schedule), *flags_of(Output())}
    assert {"--batch-size", "--runs"} < expected
    own = {"--agent", "--preset", "--steps", "--seed", "--option", "--devices", "--threads"}
    assert expected | own <= set(words)


# Training and resuming


def test_run_directory_has_the_documented_layout(trained: dict[str, Path]) -> None:
    run = trained["ctrl-ucb-m"]
    *_, suite, task, agent, digest, seed = run.parts
    assert (suite, task, agent, seed) == ("phimu", "FourRooms-v0", "ctrl-ucb-m", "seed-0")
    assert len(digest) == 8
    assert int(digest, 16) >= 0
    names = {path.name for path in run.iterdir()}
    assert names == {"config.json", "manifest.json", "metrics.jsonl", "checkpoint"}
    config = json.loads((run / "config.json").read_text())
    assert config["settings"]["representation"]["feature_dim"] == 8
    assert config["settings"]["planner"]["actor_sizes"] == [8]
    assert config["settings"]["confidence"]["bonus_scale"] == 1.0
    assert config["schedule"]["collection"]["learning_starts"] == 20
    assert config["task_options"] == {
        "reward": "dense",
        "random_start": True,
        "max_episode_steps": 25,
    }
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["versions"]["jax"]
    assert (manifest["steps"], manifest["preset"]) == (60, "small")
    assert manifest["seconds"] > 0
    saved = sorted(path.name for path in (run / "checkpoint").iterdir())
    assert saved == ["replay", "step-000000040", "step-000000060"]
    segments = sorted(path.name[:24] for path in (run / "checkpoint" / "replay").iterdir())
    rows = [f"rows-{first:09d}-{first + 20:09d}" for first in (0, 20, 40)]
    assert segments == ["random-000000000-0000000", *rows]


def test_metrics_have_every_row_once(trained: dict[str, Path]) -> None:
    for run in trained.values():
        at = [(row["step"], row["kind"]) for row in rows(run)]
        train = [(step, "train") for step in (20, 30, 40, 50, 60)]
        assert sorted(at) == sorted([*train, *((s, "evaluation") for s in (20, 40, 60))])


def test_bonus_is_at_work(trained: dict[str, Path]) -> None:
    bonuses = [row["bonus"] for row in rows(trained["ctrl-ucb-m"]) if row["kind"] == "train"]
    assert all(0 < bonus <= 2 for bonus in bonuses)


def test_same_command_again_changes_nothing(
    trained: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained["ctrl-ucb-m"]
    before = results(run)
    assert phimu(*training("ctrl-ucb-m", run.parents[4], 60)) == 0
    captured = capsys.readouterr()
    assert "Already trained to step 60" in captured.err
    assert captured.out.strip() == str(run)
    assert results(run) == before


@pytest.mark.parametrize("agent", SIZES)
def test_stopped_and_resumed_equals_uninterrupted(
    agent: str, trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phimu(*training(agent, tmp_path, 40)) == 0
    run = only_run(tmp_path)
    assert rows(run)[-1]["step"] == 40
    assert "Training in" in capsys.readouterr().out
    assert phimu(*training(agent, tmp_path, 60)) == 0
    captured = capsys.readouterr()
    assert "Resuming" in captured.out
    assert captured.err == ""  # in particular, the open episode repeated itself
    assert_same_run(run, trained[agent])


def test_end_off_the_grid_leaves_no_row_behind(trained: dict[str, Path], tmp_path: Path) -> None:
    assert phimu(*training("sac", tmp_path, 33, "--quiet")) == 0
    run = only_run(tmp_path)
    assert [(row["step"], row["kind"]) for row in rows(run)][-2:] == [
        (33, "train"),
        (33, "evaluation"),
    ]
    assert phimu(*training("sac", tmp_path, 60, "--quiet")) == 0
    assert_same_run(run, trained["sac"])


def test_killed_after_a_checkpoint_equals_uninterrupted(
    trained: dict[str, Path], tmp_path: Path
) -> None:
    """The rows beyond the checkpoint are there already, the last one cut short."""
    whole = trained["ctrl-ucb-m"]
    run = tmp_path.joinpath(*whole.parts[-5:])
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoint" / "step-000000060")
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-10])
    assert phimu(*training("ctrl-ucb-m", tmp_path, 60, "--quiet")) == 0
    assert_same_run(run, whole)


def test_resume_needs_the_directory_alone(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes on to where the run was to end, and with --steps beyond."""
    whole = trained["sac"]
    run = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(run / "checkpoint" / "step-000000060")
    assert phimu("resume", run, "--quiet") == 0
    assert capsys.readouterr().out.strip() == str(run)
    assert_same_run(run, whole)
    assert phimu("resume", run) == 0
    assert "Already trained to step 60" in capsys.readouterr().err
    assert phimu("resume", run, "--steps", 70, "--quiet") == 0
    assert rows(run)[-1]["step"] == 70
    manifest = json.loads((run / "manifest.json").read_text())
    assert [each["steps"] for each in manifest["sessions"]] == [60, 60, 70]
    assert manifest["preset"] == "small"


def assert_same_run(run: Path, other: Path) -> None:
    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    name = "checkpoint/step-000000060/"
    here, there = (load_file(path / name / "arrays.safetensors") for path in (run, other))
    assert here.keys() == there.keys()
    assert any(key.startswith("agent/") for key in here)
    for key, array in here.items():
        np.testing.assert_array_equal(array, there[key], err_msg=key)
    assert (run / name / "facts.json").read_bytes() == (other / name / "facts.json").read_bytes()
    here, there = (load_run(path)[1].replay for path in (run, other))
    for column, expected in zip(here.rows, there.rows, strict=True):
        np.testing.assert_array_equal(column, expected)
    np.testing.assert_array_equal(here.random_next, there.random_next)


def test_seed_names_another_run(trained: dict[str, Path], tmp_path: Path) -> None:
    assert phimu(*training("sac", tmp_path, 20, "--seed", 1, "--quiet")) == 0
    run = only_run(tmp_path)
    assert run.parts[-5:-1] == trained["sac"].parts[-5:-1]
    assert run.name == "seed-1"
    assert rows(run)[0]["td_loss"] != rows(trained["sac"])[0]["td_loss"]


def test_threads_are_in_the_manifest_and_another_number_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for threads, steps in ((1, 20), (1, 40), (2, 60)):
        monkeypatch.setattr(session, "threads_in_use", lambda n=threads: n)
        capsys.readouterr()
        assert phimu(*training("sac", tmp_path, steps, "--quiet")) == 0
        said = capsys.readouterr().err
        assert ("had threads 1 and now has 2, which changes rounding" in said) == (threads == 2)
    manifest = json.loads((only_run(tmp_path) / "manifest.json").read_text())
    assert [manifest["threads"], *(s["threads"] for s in manifest["sessions"])] == [1, 1, 2]


def test_threads_are_set_before_anything_is_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "phimu", *training("sac", tmp_path, 5, "--threads", 1)]
    quickly = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    subprocess.run([str(word) for word in command], check=True, capture_output=True, env=quickly)
    assert json.loads((only_run(tmp_path) / "manifest.json").read_text())["threads"] == 1


def test_a_run_on_two_devices_goes_on_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "phimu", *training("sac", tmp_path, 30, "--devices", 2)]
    quickly = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    subprocess.run([str(word) for word in command], check=True, capture_output=True, env=quickly)
    assert json.loads((only_run(tmp_path) / "manifest.json").read_text())["devices"] == 2
    assert phimu(*training("sac", tmp_path, 40, "--quiet")) == 0
    assert "had devices 2 and now has 1, which changes rounding" in capsys.readouterr().err
    assert rows(only_run(tmp_path))[-1]["step"] == 40


def test_tensorboard_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    assert phimu(*training("sac", tmp_path, 20, "--quiet", "--tensorboard")) == 0
    (events,) = (only_run(tmp_path) / "tensorboard").iterdir()
    assert b"evaluation/return" in events.read_bytes()


# Evaluation and pictures


def test_evaluate_prints_the_mean_return(
    trained: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained["ctrl-ucb-m"]
    before = snapshot(run)
    assert phimu("evaluate", run, "--episodes", 2, "--seed", 3) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["task"], result["agent"], result["step"]) == (MAZE, "ctrl-ucb-m", 60)
    assert result["episodes"] == 2

    model, returns = Ctrl.load(run), []
    env = gymnasium.make(MAZE, reward="dense", random_start=True, max_episode_steps=25)
    for seed in episode_seeds(3, 2):
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    assert result["return"] == pytest.approx(np.mean(returns), rel=1e-4)
    assert snapshot(run) == before


def test_evaluate_a_random_policy(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("mbbl/Pendulum-v0", "--policy", "random", "--episodes", 3)
    assert phimu("evaluate", *arguments, "--option", "raw_actions=true") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["agent"], result["length"], result["simulator_steps"]) == ("random", 200, 200)
    assert -1_000 < result["return"] < 200
    assert phimu("evaluate", *arguments, "--option", "colour=red") == 2
    assert "does not accept 'colour'" in capsys.readouterr().err


def test_options_belong_to_a_random_policy(
    trained: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert phimu("evaluate", trained["sac"], "--option", "reward=dense") == 2
    assert "option is for --policy random" in capsys.readouterr().err


def test_tasks_are_listed_with_their_scores(capsys: pytest.CaptureFixture[str]) -> None:
    assert phimu("tasks", "HopperET") == 0
    title, row, *_ = capsys.readouterr().out.splitlines()
    assert title.split()[:5] == ["task", "obs", "act", "horizon", "dt"]
    assert title.split()[5:] == ["random", "SAC", "CTRL-UCBL", "CTRL-UCBM"]
    assert row.split()[:5] == ["mbbl/HopperET-v0", "11", "3", "1000", "0.008"]
    assert row.endswith("2,910.6 ± 323.1")
    assert phimu("tasks", "chess") == 2
    assert "No task has 'chess' in its id" in capsys.readouterr().err


def test_tasks_as_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert phimu("tasks", "FourRooms", "--picture", tmp_path / "sheet.png") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'sheet.png'}\n"
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_bench_is_printed_written_and_kept_for_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the smallest update; a loop's process has tests of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(updates, "CASES", {"sac tiny": updates.Case("sac", 8, 8)})
    monkeypatch.setattr(updates, "update_speed", partial(updates.update_speed, work=1.0))
    monkeypatch.setattr(updates, "PEAK_WORK", 1e6)
    monkeypatch.setattr(offline, "PLANNERS", {})
    monkeypatch.setattr(loop, "CASES", ("sac tiny",))
    timed = loop.LoopSpeed("sac tiny", 100.0, 0.5, 0.01, 7.0, 300.0, 400.0)
    monkeypatch.setattr(loop, "loop_speed", lambda name, rounds, steps: timed)
    assert read_bench(None) is None
    assert phimu("bench", "--rounds", 1, "--json", tmp_path / "bench.json") == 0
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["loop"] == [timed._asdict()]
    (row,) = found["updates"]
    assert row["share"] == pytest.approx(row["gflops"] / row["peak_gflops"])
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == f"{row['share']:.3g}"
    kept = read_bench(None)
    assert kept == read_bench(tmp_path / "bench.json")
    assert (kept.memory_mb, kept.start_seconds) == ({"sac": 300.0}, 7.0)
    assert phimu("bench", "--rounds", 0) == 2
    assert "rounds is 0: give at least 1." in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of the reader below
def test_video_shows_the_first_episode(
    trained: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed")
    imageio = pytest.importorskip("imageio.v2", reason="the extra video is not installed")
    out = tmp_path / "films" / "out.mp4"
    run = trained["ctrl-ucb-m"]
    assert phimu("evaluate", run, "--episodes", 1, "--seed", 3, "--video", out) == 0
    captured = capfd.readouterr()
    printed, path = captured.out.splitlines()
    assert path == str(out)
    assert captured.err == ""
    with imageio.get_reader(out) as reader:
        frames = list(reader.iter_data())
    assert len(frames) == json.loads(printed)["length"] + 1
    assert frames[0].shape == (256, 256, 3)

    env = gymnasium.make(MAZE, random_start=True, render_mode="rgb_array")
    env.reset(seed=episode_seeds(3, 1)[0])
    dot = (env.render() == (255, 140, 0)).all(axis=-1)
    assert dot.sum() > 50
    # The codec blurs; elsewhere the floor is white.
    assert np.abs(frames[0][dot].mean(axis=0) - (255, 140, 0)).max() < 40


def test_video_must_be_an_mp4(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phimu("evaluate", trained["sac"], "--video", tmp_path / "out.avi") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "out.avi: give a name that ends in .mp4" in captured.err
    assert list(tmp_path.iterdir()) == []


def test_failed_film_is_said_once(
    trained: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed")

    def aborts(command: list[str], **_: object) -> subprocess.CompletedProcess:
        return subprocess.CompletedProcess(command, -6, "", "")

    monkeypatch.setattr(subprocess, "run", aborts)
    assert phimu("evaluate", trained["sac"], "--episodes", 1, "--video", "out.mp4") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "No picture could be drawn" in error
    assert list(tmp_path.iterdir()) == []


def test_plot_writes_a_picture(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "curves.png"
    assert phimu("plot", *trained.values(), "--out", out) == 0
    assert capsys.readouterr().out.split() == [str(out)]
    assert out.read_bytes().startswith(b"\x89PNG")


def test_heatmap_draws_and_scores_a_maze_run(
    trained: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(maze, "DRAWS", 200)
    run = shutil.copytree(trained["ctrl-ucb-m"], tmp_path / "run")
    before = snapshot(run)
    assert phimu("heatmap", run, "--episodes", 2) == 0
    assert (run / "figures" / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    scores = json.loads((run / "scores.json").read_text())
    assert scores.keys() == SCORES
    assert np.isfinite(list(scores.values())).all()
    assert (scores["step"], scores["updates"], scores["episodes"]) == (60, 41, 2)
    for name in SCORES - {"mean_abs_log_z", "mean_length", "episodes", "step", "updates"}:
        assert 0 <= scores[name] <= 1
    assert "total_variation_free" in capsys.readouterr().out
    after = snapshot(run)
    assert {name: after[name] for name in before} == before


# Bad input

TINY = (SIZES["ctrl-ucb-m"] + SCHEDULE).split()
ONE_SENTENCE = {
    "unknown task": (["train", "Pendulum-v9"], "Pendulum-v1"),
    "discrete actions": (
        ["train", "CartPole-v1", "--agent", "ppo"],
        "ppo needs continuous actions",
    ),
    "several integers as an action": (["train", "Switches-v0"], "MultiBinary(2)"),
    "NaN at the reset": (
        ["train", "Plane-v0", *TINY, "--option", "spoilt_at=0"],
        "observation[1] is nan at the reset",
    ),
    "no threads": (["train", MAZE, "--threads", 0], "threads is 0"),
    "threads that are no number": (["demo", "--threads", "all"], "--threads"),
    "no devices": (["train", MAZE, "--devices", 0], "devices is 0"),
    "more devices than there are": (["train", MAZE, "--devices", 64], "devices is 64"),
    "no steps": (["train", MAZE, "--steps", 0], "steps is 0"),
    "negative seed": (["train", MAZE, "--seed", -1], "seed is -1"),
    "empty buffer": (["train", MAZE, *TINY, "--buffer-size", 0], "buffer_size is 0"),
    "option without a value": (["train", MAZE, "--option", "noise"], "name=value"),
    "unknown option": (["train", MAZE, "--option", "nois=1"], "'nois'"),
    "misspelled agent": (["train", MAZE, "--agent", "ctrl-ucb"], "ctrl-ucb-m"),
    "misspelled preset": (["train", MAZE, "--preset", "smal"], "small"),
    "misspelled command": (["trian", MAZE], "Did you mean train?"),
    "resuming nothing": (["resume", "."], "not a run directory"),
    "evaluating nothing": (["evaluate", "."], "not a run directory"),
    "evaluating no episodes": (["evaluate", ".", "--episodes", 0], "episodes is 0"),
    "plotting nothing": (["plot", "."], "no run in"),
    "a heat map of nothing": (["heatmap", "."], "not a run directory"),
    "misspelled flag": (["train", MAZE, "--feature-dmi", 8], "--feature-dim"),
    "a flag of another agent": (["train", MAZE, "--agent", "sac", "--ridge", 1], "--ridge"),
    "no number": (["train", MAZE, "--steps", "many"], "--steps"),
    "no task": (["train"], "Gymnasium id"),
    "negative bonus": (["train", MAZE, "--bonus-scale", -1], "bonus_scale is -1.0"),
    "undiscounted": (["train", MAZE, "--discount", 1.0], "discount is 1.0"),
    "unknown loss": (["train", MAZE, "--loss", "rank"], "--loss"),
    "no run to evaluate": (["evaluate"], "a run directory"),
}


@pytest.mark.parametrize("case", ONE_SENTENCE)
def test_bad_input_is_one_sentence(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, mentioned = ONE_SENTENCE[case]
    assert phimu(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("phimu: ")
    assert captured.err.count("\n") == 1
    assert mentioned in captured.err
    assert list(tmp_path.iterdir()) == []


def test_nan_in_the_middle_stops_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phimu("train", "Plane-v0", *TINY, "--option", "spoilt_at=3", "--runs", tmp_path) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "observation[1] is nan after step 3" in error
    assert "The run is saved at step 2" in error  # as it was before that step
    saved = checkpoint.load(only_run(tmp_path) / "checkpoint")
    assert saved is not None
    assert saved.step == 2


def test_directory_of_another_configuration_is_refused(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(trained["sac"], tmp_path / "run")
    before = snapshot(run)
    for change, field in (
        (["--discount", 0.9], "settings.planner.discount = 0.99"),
        (["--seed", 1], "seed = 0"),
    ):
        arguments = training("sac", tmp_path / "runs", 80, "--run-dir", run, *change)
        assert phimu(*arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert field in error
    assert snapshot(run) == before
    assert list(tmp_path.iterdir()) == [run]


def test_directory_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert phimu(*training("sac", tmp_path / "runs", 60, "--run-dir", tmp_path)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "not a run directory" in error
    assert snapshot(tmp_path) == {"notes.txt": b"mine"}


@pytest.mark.parametrize(("where", "mentioned"), [("sac", "SAC"), ("plane", "phimu/FourRooms-v0")])
def test_heatmap_needs_ctrl_in_the_maze(
    where: str,
    mentioned: str,
    trained: dict[str, Path],
    plane_run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = plane_run if where == "plane" else trained["sac"]
    before = snapshot(run)
    assert phimu("heatmap", run) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert mentioned in error
    assert snapshot(run) == before


def test_run_without_checkpoint_cannot_be_evaluated(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(trained["sac"] / "config.json", tmp_path)
    assert phimu("evaluate", tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no checkpoint yet" in captured.err
    assert captured.err.count("\n") == 1


def test_a_reader_that_stops_is_no_error() -> None:
    command = [sys.executable, "-m", "phimu", "train", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stderr
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0
