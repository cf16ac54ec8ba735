"""Where a run has been, what its bonus was there, and when it first came to the goal."""

import json
from pathlib import Path

import numpy as np
import pytest

from phimu.cli import main
from phimu.environments.maze_geometry import Maze
from phimu.errors import InputError
from phimu.reports.exploration import RECORD, found, record, recorded, visits
from phimu.reports.maze import CELLS
from phimu.runs.directory import RunDirectory
from phimu.session import load_run
from phimu.studies.plan import Run, expand
from phimu.studies.study import Study, Variant
from phimu.studies.tables import STUDIES

SMALL = {
    "feature_dim": "8",
    "feature_sizes": "8",
    "critic_width": "8",
    "actor_sizes": "8",
    "batch_size": "16",
    "bonus_kernel": "16,0.45",
    "learning_starts": "50",
    "train_freq": "10",
    "evaluate_every": "0",
    "checkpoint_every": "50",
}
STUDY = Study(
    "small",
    "Small",
    ("phimu/FourRooms-v0",),
    (Variant("bonus", "ctrl-ucb-m"), Variant("sac", "sac")),
    "maze-explore",
    steps=300,
    seeds=1,
    options=(("goal_radius", 10.0), ("top_speed", 6.0)),  # so that a random walk finds it
    moments=(100, 400),
)


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory) -> dict[str, tuple[Run, list[list[str]]]]:
    """Each run of a small study, and the commands that brought it to its end."""
    root = tmp_path_factory.mktemp("runs")
    done = {}
    for run in expand(STUDY, SMALL, root, root):
        commands = []
        while (command := run.next_command()) is not None:
            run.prepare()
            # JAX has its threads already where other tests came first.
            assert main([word for word in command if word not in ("--threads", "1")]) == 0
            commands.append(command)
        done[run.label] = run, commands
    return done


def test_a_study_stops_at_its_moments(carried_out):
    run, commands = carried_out["bonus"]
    steps = [word[3] if word[0] == "resume" else "look" for word in commands]
    # 400 is beyond its end, and its end is no moment.
    assert steps == ["100", "look", "300"]
    assert run.saved()[0] == 300
    assert list(recorded(RunDirectory(run.path))) == [100]
    assert (run.path / "figures" / "exploration.png").read_bytes().startswith(b"\x89PNG")


def test_visits_are_those_of_the_first_steps(carried_out):
    _, run = load_run(carried_out["bonus"][0].path)
    maze = Maze()
    rows = run.replay.latest(300).next_observation
    for step in (100, 300):
        counts = visits(run, maze, step)
        assert counts.sum() == step
        cell = (rows[:step] / 20.0 * CELLS).astype(int).clip(0, CELLS - 1)
        expected = np.zeros((CELLS, CELLS), int)
        np.add.at(expected, (cell[:, 0], cell[:, 1]), 1)
        np.testing.assert_array_equal(counts, expected)


def test_the_bonus_is_that_of_the_moment(carried_out, tmp_path):
    """Maps of earlier moments stay as they were written; today's is what the run says."""
    path = carried_out["bonus"][0].path
    before = recorded(RunDirectory(path))
    _, run = load_run(path)
    (tmp_path / RECORD).write_bytes((path / RECORD).read_bytes())
    moments = record(run, RunDirectory(tmp_path))
    assert [moment.step for moment in moments] == [100, 300]
    after = recorded(RunDirectory(tmp_path))
    assert all(after[step] == before[step] for step in before)
    assert after[300] != after[100]
    bonus = moments[-1].bonus
    assert bonus.shape == (CELLS, CELLS)
    # The middle of the cross is no floor, and the middle of a room is.
    assert np.isnan(bonus[19:21, 19:21]).all()
    assert bonus[10, 10] > 0
    assert np.isnan(bonus).sum() == np.isnan(moments[0].bonus).sum() < 0.2 * CELLS**2


def test_first_success_is_when_the_goal_was_first_reached(carried_out):
    for run, _ in carried_out.values():
        _, loaded = load_run(run.path)
        ways = found(loaded)
        ends = loaded.replay.rows.terminated[:300]
        assert ways.successes == ends.sum() > 0
        assert ends[ways.first_success - 1] == 1
        assert not ends[: ways.first_success - 1].any()
        text = json.loads((run.path / RECORD).read_bytes())
        assert text["first_success"] == ways.first_success
        assert ways.episodes >= ways.successes


def test_the_command_says_it_of_several_runs(carried_out, capsys):
    paths = [str(run.path) for run, _ in carried_out.values()]
    kept = {path: (Path(path) / RECORD).read_bytes() for path in paths}
    assert main(["exploration", *paths]) == 0
    said = capsys.readouterr().out
    assert all(path in said for path in paths)
    assert "first success" in said
    for path, text in kept.items():
        (Path(path) / RECORD).write_bytes(text)


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / RECORD).write_text("{")
    with pytest.raises(InputError, match=f"{RECORD} cannot be read"):
        recorded(RunDirectory(tmp_path))
    assert recorded(RunDirectory(tmp_path / "none")) == {}


def test_other_tasks_have_no_maze(tmp_path, capsys):
    words = f"Pendulum-v1 --agent sac --steps 30 --run-dir {tmp_path / 'run'} --quiet"
    assert main(["train", *words.split(), "--evaluate-every", "0"]) == 0
    assert main(["exploration", str(tmp_path / "run")]) == 2
    assert "FourRooms" in capsys.readouterr().err


def test_the_study_of_exploration_has_what_is_to_be_compared():
    study = STUDIES["exploration"]
    varied = [dict(variant.settings) for variant in study.variants]
    assert {each.get("bonus_scale") for each in varied} >= {0.0, 1.0}
    assert any(each.get("uniform_mix") for each in varied)
    assert {variant.agent for variant in study.variants} == {"ctrl-ucb-m", "sac"}
    assert study.moments[-1] == study.steps
