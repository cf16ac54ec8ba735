import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from phimu.environments.maze_geometry import Maze
from phimu.errors import InputError
from phimu.reports import figures
from phimu.reports.curves import Curve, curves_of_runs
from phimu.reports.figures import (
    GREEN,
    ORANGE,
    RED,
    Panel,
    _band_caption,
    _in_thousands,
    contact_sheet,
    heat_map,
    learning_curves,
)

MAZE, CELLS = Maze(), 40
WALLS = np.array(MAZE.rectangles)


def panel(title: str, position: tuple[float, float], action: tuple[float, float]) -> Panel:
    rng, s, a = np.random.default_rng(0), np.array([position]), np.array([action])
    drawn = MAZE.transition(s.repeat(5_000, axis=0), a.repeat(5_000, axis=0), rng)
    counts, _, _ = np.histogram2d(*drawn.T, bins=CELLS, range=[[0.0, MAZE.size]] * 2)
    mass = counts / counts.sum()
    target = MAZE.move(s, MAZE.top_speed * a)[0]
    return Panel(title, s[0], target, drawn[:60], mass, np.roll(mass, 1, axis=0), 0.17)


def read(path: Path) -> np.ndarray:
    """[height, width, 3] in 0 ... 255."""
    return np.round(imread(path)[..., :3] * 255).astype(np.int16)


def pixels(image: np.ndarray, colour: str) -> np.ndarray:
    """[n, 2] rows and columns of the pixels in this colour."""
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], np.int16)
    return np.argwhere(np.abs(image - wanted).max(axis=-1) <= 2)


def test_heat_map_shows_walls_and_markers(tmp_path: Path) -> None:
    path = tmp_path / "new" / "heat.png"
    panels = [panel("open", (4.0, 16.0), (0.6, 0.6)), panel("edge", (18.5, 1.5), (0.8, -0.8))]
    heat_map(path, [*panels, *panels], WALLS, MAZE.size)
    image = read(path)
    assert 1350 <= image.shape[1] <= 1450
    assert path.stat().st_size < 300_000
    assert len(pixels(image, "#000000")) / image[..., 0].size > 0.05
    for colour in (ORANGE, RED, GREEN):
        assert len(pixels(image, colour)) > 8 * 20  # two maps of four panels


def test_heat_map_has_x_to_the_right_and_y_up(tmp_path: Path) -> None:
    path, mass = tmp_path / "heat.png", np.zeros((CELLS, CELLS))
    mass[4:12, 28:36] = 1 / 64  # x in [2, 6] and y in [14, 18]
    star = np.array([4.0, 16.0])
    heat_map(path, [Panel("", star, star, star[None], mass, mass, 0.0)], WALLS, MAZE.size)
    image = read(path)
    dense, stars, walls = (pixels(image, colour) for colour in ("#4a34a4", ORANGE, "#000000"))
    stars = stars[stars[:, 0] > dense[:, 0].min()]  # without the legend's, which is above the maps
    assert np.allclose(dense.mean(axis=0), stars.mean(axis=0), atol=4)
    lower = stars[stars[:, 0] > dense[:, 0].mean()].mean(axis=0)
    row = walls[np.abs(walls[:, 0] - lower[0]) < 1]  # frame, star's edge, middle wall, frame
    left, right = row[:, 1].min(), row[:, 1].max()
    assert lower[1] == pytest.approx(left + 0.2 * (right - left), abs=4)
    column = walls[np.abs(walls[:, 1] - (left + 0.4 * (right - left))) < 1, 0]
    bottom = column[column > lower[0]]  # the middle wall, then the frame; both are below the star
    assert bottom.min() - lower[0] < 0.4 * (right - left)
    assert bottom.max() - lower[0] > 0.7 * (right - left)


def test_heat_map_as_svg_and_in_other_sizes(tmp_path: Path) -> None:
    one = panel("open", (4.0, 16.0), (0.6, 0.6))
    heat_map(tmp_path / "heat.svg", [one], WALLS, MAZE.size)
    assert "<svg" in (tmp_path / "heat.svg").read_text()
    zero = one._replace(true_mass=np.zeros((CELLS, CELLS)), learned_mass=np.zeros((CELLS, CELLS)))
    heat_map(tmp_path / "zero.png", [zero, one], WALLS, MAZE.size)


def curve(label: str, seeds: int, steps: int = 20) -> Curve:
    values = np.random.default_rng(seeds).normal(size=(seeds, steps)).cumsum(axis=1)
    return Curve(label, 10_000 * np.arange(steps), values)


def test_learning_curves_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "curves.png"
    learning_curves(path, [curve("ctrl_ucb", 5), curve("sac", 2), curve("ppo", 1, 1)], "A task")
    image = read(path)
    assert len(pixels(image, "#0072b2")) > 500
    assert len(pixels(image, "#d55e00")) > 500
    assert len(pixels(image, "#009e73")) > 30  # one evaluation is a marker
    learning_curves(tmp_path / "curves.svg", [curve(str(i), 3) for i in range(9)], "A task")
    assert "<svg" in (tmp_path / "curves.svg").read_text()


@pytest.mark.parametrize("name", ["figure.jpeg", "figure", ".png"])
def test_an_unknown_suffix_is_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"does not end in \.png or \.svg") as caught:
        learning_curves(tmp_path / name, [curve("sac", 2)], "A task")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("seeds", "caption"),
    [
        ([1], "one seed"),
        ([1, 1], "one seed each"),
        ([3, 3], "mean of 3 seeds; band: lowest to highest seed"),
        ([5, 5], "mean of 5 seeds; band: one standard deviation"),
        ([5, 10, 1], "mean of the seeds; band: one standard deviation"),
        (
            [3, 5],
            "mean of the seeds; band: one standard deviation, lowest to highest below 4 seeds",
        ),
    ],
)
def test_the_caption_says_what_the_band_is(seeds: list[int], caption: str) -> None:
    assert _band_caption(seeds) == caption


def test_ticks_are_readable() -> None:
    values = [0, 500, 2_500, 20_000, 1_000_000, 1_500_000]
    assert [_in_thousands(value) for value in values] == ["0", "500", "2.5K", "20K", "1M", "1.5M"]


def make_run(
    path: Path, seed: int, returns: dict[int, float], agent: str = "sac", task: str = "mbbl/Hopper",
    **settings: object,
) -> Path:  # fmt: skip
    path.mkdir(parents=True)
    config = {
        **{"task": task, "task_options": {}, "agent": agent},
        **{"settings": settings, "schedule": {"steps": 100}, "seed": seed},
    }
    (path / "config.json").write_text(json.dumps(config))
    rows = [{"step": 1, "kind": "train", "loss": 1.0, "return": 9.0}]
    rows += [{"step": step, "kind": "evaluation", "return": r} for step, r in returns.items()]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_seeds_of_a_configuration_are_one_curve(tmp_path: Path) -> None:
    make_run(tmp_path / "sac" / "aa" / "seed-10", 10, {10: 7.0, 20: 8.0, 30: 9.0})
    run = make_run(tmp_path / "sac" / "aa" / "seed-2", 2, {10: 1.0, 20: 2.0})
    make_run(tmp_path / "ucb" / "bb" / "seed-0", 0, {10: 3.0}, agent="ctrl_ucb")
    make_run(tmp_path / "zz" / "seed-0", 0, {5: 4.0}, task="dmc/cheetah_run")
    (hopper, curves), (cheetah, others) = curves_of_runs([tmp_path, run])  # `run` counts once
    assert (hopper, cheetah) == ("mbbl/Hopper", "dmc/cheetah_run")
    assert [one.label for one in curves] == ["sac", "ctrl_ucb"]
    np.testing.assert_array_equal(curves[0].steps, [10, 20])
    np.testing.assert_array_equal(curves[0].values, [[1.0, 2.0], [7.0, 8.0]])
    np.testing.assert_array_equal(others[0].values, [[4.0]])


def test_offline_curves_are_scores_by_updates_of_the_policy(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0, {}, agent="ctrl-lcb", task="hopper_medium")
    config = json.loads((run / "config.json").read_text())
    config["dataset"] = {"task": "Hopper-v4", "sha256": "0" * 64}
    (run / "config.json").write_text(json.dumps(config))
    row = {"step": 70, "kind": "evaluation", "updates": 30, "return": 1_500.0, "score": 46.7}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    [(task, [one])] = curves_of_runs([run])
    assert (task, one.clock) == ("hopper_medium", "updates of the policy")
    assert one.measure == "D4RL's normalised score"
    np.testing.assert_array_equal(one.steps, [30])
    np.testing.assert_array_equal(one.values, [[46.7]])


def test_labels_name_the_settings_that_differ(tmp_path: Path) -> None:
    actors = [{"actor_width": 4, "rate": 0.1}, {"actor_width": 8, "rate": 0.1}]
    critics = [{"critic_width": 4}, {"critic_width": 8}]
    make_run(tmp_path / "a" / "seed-0", 0, {1: 1.0}, actor=actors[0], critic=critics[0], loss="x")
    make_run(tmp_path / "b" / "seed-5", 5, {1: 1.0}, actor=actors[1], critic=critics[0], loss="x")
    make_run(tmp_path / "c" / "seed-0", 0, {1: 1.0}, agent="ppo", loss="x")
    [(_, curves)] = curves_of_runs([tmp_path])
    assert [one.label for one in curves] == ["sac (actor_width=4)", "sac (actor_width=8)", "ppo"]
    make_run(tmp_path / "d" / "seed-0", 0, {1: 1.0}, actor=actors[0], critic=critics[1], loss="y")
    make_run(tmp_path / "e" / "seed-0", 0, {1: 1.0}, actor=actors[0], critic=critics[0])
    [(_, curves)] = curves_of_runs([tmp_path])
    assert [one.label for one in curves] == [
        "sac (actor_width=4, critic_width=4, loss=x)",
        "sac (actor_width=8, critic_width=4, loss=x)",
        "ppo",
        "sac (actor_width=4, critic_width=8, loss=y)",
        "sac (actor_width=4, critic_width=4, loss=-)",
    ]


def test_labels_name_options_of_the_task(tmp_path: Path) -> None:
    for name in ("off", "on"):
        run = make_run(tmp_path / name / "seed-0", 0, {1: 1.0})
        config = json.loads((run / "config.json").read_text())
        config["task_options"] = {"random_start": name == "on"}
        (run / "config.json").write_text(json.dumps(config))
    [(_, curves)] = curves_of_runs([tmp_path])
    assert [one.label for one in curves] == ["sac (random_start=False)", "sac (random_start=True)"]


def test_equal_configurations_in_two_places_are_told_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name / "seed-0", 0, {1: 1.0}) for name in ("old", "new")]
    [(_, curves)] = curves_of_runs(runs)
    assert [one.label for one in curves] == [f"sac ({run.parent})" for run in runs]


def test_different_configurations_in_one_place_are_never_averaged(tmp_path: Path) -> None:
    make_run(tmp_path / "first", 0, {1: 1.0}, width=4)
    make_run(tmp_path / "second", 0, {1: 2.0}, width=8)
    [(_, curves)] = curves_of_runs([tmp_path])
    assert [one.label for one in curves] == ["sac (width=4)", "sac (width=8)"]


def test_training_returns_and_losses_are_drawn_on_request(tmp_path: Path) -> None:
    for seed in (0, 1):
        run = make_run(tmp_path / f"seed-{seed}", seed, {})
        rows = [
            {"step": step, "kind": "train", "return": seed + step / 10, "td_loss": 1.0 / step}
            for step in (10, 20)
        ]
        rows += [{"step": 15, "kind": "representation", "td_loss": 7.0}]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [(_, [curve])] = curves_of_runs([tmp_path], "return")
    np.testing.assert_array_equal(curve.steps, [10, 20])
    np.testing.assert_array_equal(curve.values, [[1.0, 2.0], [2.0, 3.0]])
    assert curve.measure == "return of the last ten training episodes"
    [(_, [curve])] = curves_of_runs([tmp_path], "td_loss")
    np.testing.assert_array_equal(curve.values, [[0.1, 0.05]] * 2)
    assert curve.measure == "td_loss"
    for metric in ("evaluation", "bonus"):
        sentence = rf"has no {metric} yet: choose another metric \(return, td_loss\), or wait\."
        with pytest.raises(InputError, match=sentence):
            curves_of_runs([tmp_path], metric)


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    empty = make_run(tmp_path / "runs" / "seed-0", 0, {})
    started = make_run(tmp_path / "started" / "seed-0", 0, {})
    (started / "metrics.jsonl").unlink()
    apart = tmp_path / "apart"
    make_run(apart / "seed-0", 0, {10: 1.0})
    make_run(apart / "seed-1", 1, {15: 1.0})
    alien = tmp_path / "alien"
    alien.mkdir()
    (alien / "config.json").write_text("{}")
    for runs, message in [
        ([], "There is no run to read"),
        ([tmp_path / "absent"], "There is no run in"),
        ([tmp_path / "runs"], f"The run in {empty} has no evaluation yet"),
        ([started], "has no evaluation yet"),
        ([apart], "no evaluation step in common"),
        ([alien], "names no task"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            curves_of_runs(runs)
        assert "\n" not in str(caught.value)


def test_contact_sheet_shows_every_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    colours = [f"#{5 * index:02x}8040" for index in range(19)]

    def snapshots(task_ids: list[str]) -> list[np.ndarray]:
        shapes = [(40, 60, 3), (50, 50, 3)]
        values = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours]
        return [np.full(shapes[i % 2], value, np.uint8) for i, value in enumerate(values)]

    monkeypatch.setattr(figures, "snapshots", snapshots)
    path = tmp_path / "new" / "sheet.png"
    contact_sheet([f"suite/task-{index}-v0" for index in range(19)], path)
    image = read(path)
    middles = [pixels(image, colour).mean(axis=0) for colour in colours]
    rows = [[middles[i] for i in range(first, min(first + 8, 19))] for first in (0, 8, 16)]
    for row in rows:
        assert np.ptp([y for y, _ in row]) < 20
        assert (np.diff([x for _, x in row]) > 100).all()
    assert rows[0][0][0] < rows[1][0][0] < rows[2][0][0]


def test_contact_sheet_says_what_it_cannot_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "snapshots", None)  # not called
    with pytest.raises(InputError, match=r"sheet\.bmp does not end in"):
        contact_sheet(["Pendulum-v1"], tmp_path / "sheet.bmp")
