"""Several environments side by side: who learned what, in which order, and resumed to the bit."""

from collections.abc import Iterator
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from phimu import InputError, Sac
from phimu.agents import preset
from phimu.cli import main
from phimu.data.replay import Replay
from phimu.environments.vector import open_tasks
from phimu.runs import checkpoint
from phimu.runs.log import read_metrics
from phimu.settings import override
from phimu.training.online import OnlineRun
from phimu.types import Spec

SMALL = {
    **{"actor_sizes": (8,), "critic_width": 8, "batch_size": 8, "learning_starts": 22},
    **{"buffer_size": 57, "log_every": 10, "evaluate_every": 0},
}


class Count(gymnasium.Env):
    """Sees how often it was stepped in the episode, and its seed; episodes differ in length."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.fails_at, self.total = fails_at, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.start, self.steps = float(self.np_random.normal()), 0
        self.length = int(self.np_random.integers(3, 9))
        return np.array([self.start, 0], np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps, self.total = self.steps + 1, self.total + 1
        if self.total == self.fails_at:
            raise RuntimeError("out of order")
        seen = np.array([self.start, self.steps], np.float32)
        return seen, float(action[0]), False, self.steps == self.length, {}


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    gymnasium.register("Count-v0", Count, disable_env_checker=True)
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    del gymnasium.registry["Count-v0"]


def fresh(envs: int, **changes: object) -> OnlineRun:
    settings, schedule = override(preset("sac", "small"), SMALL | {"envs": envs} | changes)
    return OnlineRun(settings, open_tasks("Count-v0", envs), schedule, 0)


def advanced(run: OnlineRun, until: int) -> OnlineRun:
    while run.step < until:
        run.advance()
    return run


def assert_equal(one: OnlineRun, other: OnlineRun) -> None:
    for leaf, expected in zip(
        jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True
    ):
        np.testing.assert_array_equal(leaf, expected)
    for column, expected in zip(one.replay.rows, other.replay.rows, strict=True):
        np.testing.assert_array_equal(column, expected)
    assert (one.step, one.updates, one.episodes) == (other.step, other.updates, other.episodes)
    assert one.returns == other.returns


def test_each_environment_has_every_nth_row_and_whole_episodes() -> None:
    run = advanced(fresh(3, buffer_size=200), 150)
    rows = run.replay.rows
    for number in range(3):
        own = [column[number:150:3] for column in rows]
        seen, following, ended = own[0], own[3], own[5] > 0
        np.testing.assert_array_equal(following[:-1][~ended[:-1]], seen[1:][~ended[:-1]])
        assert (seen[1:][ended[:-1], 1] == 0).all()  # a reset
        assert seen[0, 1] == 0
    starts = rows.observation[:150][rows.observation[:150, 1] == 0]
    assert (
        len(np.unique(starts[:, 0]))
        == len(starts)
        == run.episodes + 3 - sum(seat.astray for seat in run.seats)
    )  # no two episodes have one seed


@pytest.mark.parametrize(("envs", "train_freq"), [(1, 1), (4, 1), (4, 3), (5, 2), (16, 1)])
def test_updates_per_step_are_those_of_one_environment(envs: int, train_freq: int) -> None:
    run = advanced(fresh(envs, train_freq=train_freq), 80)
    due = [k for k in range(1, run.step + 1) if k >= 22 and k % train_freq == 0]
    assert run.updates == len(due)


def test_a_step_is_one_call_of_the_policy_and_one_of_the_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = advanced(fresh(4), 40)
    calls: list[str] = []
    for name in ("act", "learn"):
        real = getattr(run.learner, name)

        def counted(*arguments, real=real, name=name):
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(run.learner, name, counted)
    run.advance()
    assert calls == ["act", "learn"]
    assert run.step == 44


@pytest.mark.parametrize("stop", [16, 24, 28, 52, 84])
def test_stopped_and_resumed_to_the_bit(stop: int, tmp_path: Path) -> None:
    """In the warm-up, just after it, and when the ring has wrapped."""
    whole = advanced(fresh(4), 120)
    advanced(fresh(4), stop).save(tmp_path)
    saved = checkpoint.load(tmp_path, pytest.fail)
    assert saved is not None
    again = fresh(4)
    again.restore(saved, pytest.fail)
    assert_equal(advanced(again, 120), whole)


def test_another_number_of_environments_cannot_go_on(tmp_path: Path) -> None:
    advanced(fresh(4), 40).save(tmp_path)
    saved = checkpoint.load(tmp_path, pytest.fail)
    assert saved is not None
    with pytest.raises(InputError, match="another program"):
        fresh(2).restore(saved, pytest.fail)


def test_one_that_raises_takes_no_other_with_it() -> None:
    settings, schedule = override(preset("sac", "small"), SMALL | {"envs": 3})
    vector = gymnasium.vector.SyncVectorEnv([Count, lambda: Count(fails_at=17), Count])
    run = OnlineRun(settings, open_tasks(vector), schedule, 0)
    with pytest.raises(RuntimeError, match="out of order"):
        advanced(run, 90)
    assert run.step == run.replay.added == 48
    assert_equal(advanced(run, 90), advanced(fresh(3), 90))


# The replay buffer


@pytest.mark.parametrize("capacity", [12, 13, 40])
def test_what_comes_later_is_of_the_same_environment(capacity: int) -> None:
    """Environment e at time t sees 100 e + t; each episode is five steps long."""
    envs, replay = 3, Replay(Spec(1, 1), capacity, 0, envs=3)
    for time in range(11):
        for number in range(envs):
            seen = np.array([100 * number + time], np.float32)
            replay.add(seen, np.zeros(1), 0.0, seen + 1, False, time % 5 == 4)
    held = np.arange(replay.added - len(replay), replay.added)
    for steps in (0, 1, 2, 4):
        found, valid = replay.later(held % capacity, steps)
        for transition, following, whole in zip(held, found[:, 0], valid, strict=True):
            time, number = divmod(transition, envs)
            last = min(time + steps, time // 5 * 5 + 4, 10)
            assert following == 100 * number + last + 1
            assert whole == (last == time + steps)


def test_the_latest_are_as_many_of_each() -> None:
    replay = Replay(Spec(1, 1), 20, 0, envs=3)
    for transition in range(24):
        seen = np.array([transition], np.float32)
        replay.add(seen, np.zeros(1), 0.0, seen, False, False)
    np.testing.assert_array_equal(replay.latest(8).observation[:, 0], np.arange(18, 24))
    np.testing.assert_array_equal(replay.latest(99).observation[:, 0], np.arange(6, 24))


# From outside


def test_the_command_line_ends_where_it_would_have_without_a_stop(tmp_path: Path) -> None:
    words = ["--agent", "sac", "--actor-sizes", "8", "--critic-width", "8", "--batch-size", "8"]
    words += ["--learning-starts", "22", "--log-every", "10", "--evaluate-every", "30", "--quiet"]
    words += ["--evaluation-episodes", "1", "--checkpoint-every", "25", "--envs", "4"]

    def train(name: str, steps: int) -> int:
        where = ["--run-dir", str(tmp_path / name), "--steps", str(steps)]
        return main(["train", "Count-v0", *words, *where])

    assert train("whole", 120) == 0
    for steps in (44, 72, 120):
        assert train("parts", steps) == 0
    rows = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "parts")]
    assert rows[0] == rows[1]
    found = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    assert [row["step"] for row in found if row["kind"] == "evaluation"] == [32, 60, 92, 120]


def test_steps_that_the_environments_cannot_share_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--envs", "3", "--steps", "100", "--run-dir", str(tmp_path / "run")]
    assert main(["train", "Count-v0", "--agent", "sac", *words]) == 2
    assert "steps is 100: with 3 envs give a multiple of that" in capsys.readouterr().err


def test_a_vector_environment_of_gymnasium() -> None:
    vector = gymnasium.make_vec("Count-v0", num_envs=3, vectorization_mode="sync")
    model = Sac(vector, **SMALL).learn(60)
    assert model.config.envs == 3
    by_id = Sac("Count-v0", **SMALL, envs=3).learn(60)
    assert_equal(model.run, by_id.run)


def test_a_saved_model_goes_on_with_all_of_them(tmp_path: Path) -> None:
    Sac("Count-v0", **SMALL, envs=3).learn(40).save(tmp_path / "model")
    again = Sac.load(tmp_path / "model").learn(20)
    assert_equal(again.run, Sac("Count-v0", **SMALL, envs=3).learn(61).run)


@pytest.mark.parametrize(
    ("source", "envs", "sentence"),
    [
        (Count, 4, "envs is 4, but env is one environment: give its Gymnasium id"),
        (lambda: gymnasium.vector.SyncVectorEnv([Count] * 2), 3, "envs is 3, but the vector env"),
        (
            lambda: gymnasium.wrappers.vector.RecordEpisodeStatistics(
                gymnasium.vector.SyncVectorEnv([Count] * 2)
            ),
            2,
            "env is a RecordEpisodeStatistics: give a gymnasium.vector.SyncVectorEnv without",
        ),
    ],
)
def test_what_cannot_be_stepped_one_by_one_is_refused(source, envs: int, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Sac(source(), envs=envs, **SMALL)


def test_one_environment_keeps_the_name_of_its_run() -> None:
    """`envs` came later; a run of one is called what it was."""
    config = Sac("Count-v0", **SMALL).config
    assert "envs" not in config.to_json()["schedule"]["collection"]
    four = Sac("Count-v0", **SMALL, envs=4).config
    assert four.to_json()["schedule"]["collection"]["envs"] == 4
    assert config.path(Path("runs"), "x") != four.path(Path("runs"), "x")
