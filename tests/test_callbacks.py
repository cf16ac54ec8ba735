"""What `learn` calls, and what it leaves behind: history and figure."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from phimu import InputError, Offline, Sac, callbacks, from_arrays
from phimu.callbacks import Checkpoint, Evaluate, Moment, StopAtReturn
from phimu.runs.log import read_metrics

SMALL = {"actor_sizes": (8,), "critic_width": 8, "batch_size": 8, "learning_starts": 20}


class Steps(gymnasium.Env):
    """One number; each step pays what the environment was told, five steps an episode."""

    def __init__(self, pay: float = 1.0, fails_at: int | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.pay, self.fails_at, self.total = pay, fails_at, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps, self.total = self.steps + 1, self.total + 1
        if self.total == self.fails_at:
            raise RuntimeError("out of order")
        observation = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return observation, self.pay, False, self.steps == 5, {}


@pytest.fixture(autouse=True, scope="module")
def whole_runs() -> Iterator[None]:
    gymnasium.register("Steps-v0", Steps, disable_env_checker=True)
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    del gymnasium.registry["Steps-v0"]


def sac(**changes: object) -> Sac:
    return Sac("Steps-v0", **SMALL | {"log_every": 10} | changes)


def offline() -> Offline:
    rng = np.random.default_rng(0)
    data = from_arrays(
        observation=rng.normal(size=(60, 3)),
        action=rng.uniform(-1, 1, (60, 2)),
        reward=rng.normal(size=60),
        next_observation=rng.normal(size=(60, 3)),
        terminated=np.arange(60) % 10 == 9,
    )
    sizes = {"actor_sizes": (8,), "critic_width": 8, "behaviour_sizes": (8,), "batch_size": 8}
    return Offline(data, "brac", **sizes, behaviour_updates=20, log_every=10)


def weights(model: Sac) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.run.state)]


def test_a_callback_is_told_step_metrics_and_model() -> None:
    moments = []

    def look(moment: Moment) -> None:
        moments.append((moment.step, moment.num_timesteps, moment.metrics))
        assert moment.model is model

    model = sac()
    assert model.learn(30, callback=look) is model
    assert [step for step, *_ in moments] == list(range(1, 31))
    assert all(step == alias for step, alias, _ in moments)
    assert "td_loss" not in moments[10][2]  # the warm-up
    assert np.isfinite(moments[-1][2]["td_loss"])
    assert moments[-1][2]["return"] == 5.0
    assert model.run.step == 30


def test_false_stops_and_learning_goes_on_from_there() -> None:
    model = sac().learn(40, callback=lambda moment: moment.step < 25)
    assert model.run.step == 25
    model.learn(15)
    assert model.run.step == 40
    for leaf, other in zip(weights(model), weights(sac().learn(40)), strict=True):
        np.testing.assert_array_equal(leaf, other)


def test_every_one_of_a_list_is_called_though_the_first_stops() -> None:
    called = []
    several = [lambda _: False, lambda moment: called.append(moment.step)]
    sac().learn(10, callback=several)
    assert called == [1]


@pytest.mark.parametrize("wrong", [3, "save", lambda: None, lambda one, two: None])
def test_what_is_no_callback_is_refused_at_once(wrong: object) -> None:
    model = sac()
    with pytest.raises(InputError, match="give a function of one argument, the moment"):
        model.learn(10, callback=wrong)
    assert model.run.step == 0


@pytest.mark.parametrize("total", ["100", None, 10.5, True])
def test_a_total_that_is_no_integer_is_refused(total: object) -> None:
    with pytest.raises(InputError, match=r"total_timesteps is .*: give an integer"):
        sac().learn(total)


def test_a_total_may_be_written_as_a_power_of_ten() -> None:
    assert sac().learn(1e1).run.step == 10


def test_evaluations_are_those_of_the_command_line(tmp_path: Path) -> None:
    """In the history, and in the metrics of the moment."""
    seen = {}
    model = sac(log_every=7)
    model.learn(45, callback=[Evaluate(20, episodes=2), lambda m: seen.update({m.step: m.metrics})])
    rows = [row for row in model.history if row["kind"] == "evaluation"]
    assert [(row["step"], row["return"], row["episodes"]) for row in rows] == [
        (20, 5.0, 2),
        (40, 5.0, 2),
    ]
    assert "evaluation" not in seen[19]
    assert seen[20]["evaluation"] == 5.0
    from phimu.cli import main

    words = ["--agent", "sac", "--actor-sizes", "8", "--critic-width", "8", "--batch-size", "8"]
    words += ["--learning-starts", "20", "--log-every", "7", "--evaluate-every", "20"]
    words += ["--evaluation-episodes", "2", "--steps", "45", "--run-dir", str(tmp_path / "run")]
    assert main(["train", "Steps-v0", *words, "--quiet"]) == 0
    logged = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row for row in logged if row["step"] != 45] == list(model.history)[:-1]


def test_evaluation_in_another_environment_and_the_best_is_saved(tmp_path: Path) -> None:
    pays = iter([1.0, 3.0, 2.0])

    class Changing(Steps):
        def reset(self, **how) -> tuple:
            self.pay = next(pays)
            return super().reset(**how)

    best = tmp_path / "best"
    evaluation = Evaluate(10, episodes=1, env=Changing(), save_best=best)
    model = sac().learn(30, callback=evaluation)
    found = [row["return"] for row in model.history if row["kind"] == "evaluation"]
    assert found == [5.0, 15.0, 10.0]
    assert evaluation.best == 15.0
    assert Sac.load(best).run.step == 20


def test_early_stop_on_a_return() -> None:
    model = sac().learn(50, callback=[Evaluate(10, episodes=1), StopAtReturn(5.0)])
    assert model.run.step == 10
    model = sac().learn(50, callback=StopAtReturn(5.0, of="return"))
    assert model.run.step == 5  # the first episode's end
    assert sac().learn(20, callback=StopAtReturn(5.1, of="return")).run.step == 20


def test_checkpoints_go_on_to_the_bit(tmp_path: Path) -> None:
    where = tmp_path / "model"
    sac().learn(47, callback=[Checkpoint(where, every=20)])
    again = Sac.load(where)
    assert again.run.step == 40
    again.learn(20)
    for leaf, other in zip(weights(again), weights(sac().learn(60)), strict=True):
        np.testing.assert_array_equal(leaf, other)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_checkpoint_is_made_when_learning_is_broken_off(
    error: type[BaseException], tmp_path: Path
) -> None:
    def interrupt(moment: Moment) -> None:
        if error is KeyboardInterrupt and moment.step == 36:
            raise KeyboardInterrupt

    model = Sac(Steps(fails_at=37), **SMALL)
    with pytest.raises(error):
        model.learn(60, callback=[Checkpoint(tmp_path / "model", every=20), interrupt])
    again = Sac.load(tmp_path / "model", env=Steps())
    assert again.run.step == model.run.step == 36
    again.learn(24)
    for leaf, other in zip(weights(again), weights(Sac(Steps(), **SMALL).learn(60)), strict=True):
        np.testing.assert_array_equal(leaf, other)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Evaluate(every=0), "every is 0: give at least 1"),
        (lambda: Evaluate(episodes=0), "episodes is 0: give at least 1"),
        (lambda: Checkpoint("x", every=-1), "every is -1: give at least 1"),
    ],
)
def test_bad_settings_are_one_sentence(make, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


def test_history_is_a_table_and_lasts(tmp_path: Path) -> None:
    model = sac().learn(35)
    assert [row["step"] for row in model.history] == [20, 30, 35]
    columns = model.history.columns
    assert columns["step"] == [20, 30, 35]
    assert columns["kind"] == ["train"] * 3
    assert columns["return"] == [5.0] * 3
    steps, values = model.history.series("td_loss")
    np.testing.assert_array_equal(steps, [20, 30, 35])
    assert np.isfinite(values).all()
    model.save(tmp_path / "model")
    lines = (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == list(model.history)
    again = Sac.load(tmp_path / "model")
    assert list(again.history) == list(model.history)
    again.learn(10)
    assert [row["step"] for row in again.history] == [20, 30, 35, 40, 45]


def test_history_of_phases_on_logged_data() -> None:
    seen = []
    model = offline().learn(15, callback=lambda moment: seen.append((moment.before, moment.step)))
    assert [(row["step"], row["kind"]) for row in model.history] == [
        (10, "behaviour"),
        (20, "behaviour"),
        (30, "train"),
        (35, "train"),
    ]
    assert "behaviour_loss" in model.history[0]
    assert "td_loss" in model.history[-1]
    assert seen[0][0] == 0
    assert seen[-1][1] == 35
    assert all(one[1] == two[0] for one, two in itertools.pairwise(seen))


def test_a_frame_of_pandas_where_there_is_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sac().learn(25)
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        model.history.frame()
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    assert isinstance(model.history.frame(), pandas.DataFrame)
    assert list(model.history.frame()["step"]) == [20, 25]


def test_plot_draws_what_there_is(tmp_path: Path) -> None:
    model = sac()
    with pytest.raises(InputError, match="The history has no evaluation yet: let it learn"):
        model.plot()
    model.learn(40)

    def drawn(**named: object) -> tuple[str, list[float]]:
        (axes,) = model.plot(**named).axes
        return axes.get_ylabel(), list(axes.lines[0].get_ydata())

    assert drawn() == ("return of the last ten training episodes", [5.0] * 3)
    label, losses = drawn(metric="td_loss")
    assert label == "td_loss"
    assert losses == model.history.columns["td_loss"]
    model.learn(20, callback=Evaluate(10, episodes=1))
    assert drawn(path=tmp_path / "curve.svg") == ("return", [5.0, 5.0])
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")
    with pytest.raises(InputError, match=r"has no bonus yet: choose another metric \(.*td_loss"):
        model.plot(metric="bonus")


def test_progress_shows_warm_up_losses_and_evaluations(capsys: pytest.CaptureFixture[str]) -> None:
    sac().learn(40, callback=Evaluate(15, episodes=1), progress_bar=True)
    lines = capsys.readouterr().out.splitlines()
    assert "warm-up left" in lines[0]
    assert "td_loss" not in lines[0]
    assert "evaluation 5" in lines[0]
    assert "warm-up" not in lines[-1]
    assert "td_loss" in lines[-1]
    offline().learn(15, progress_bar=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert "policy left" in line
    assert "behaviour_loss" not in line


def test_callbacks_are_found_from_the_package() -> None:
    assert callbacks.Evaluate is Evaluate
