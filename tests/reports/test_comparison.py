import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phimu.reports.comparison import (
    ABSENT,
    REGENERATED,
    UNFINISHED,
    Cell,
    Table,
    aggregates,
    differences,
    place,
    tables,
)
from phimu.reports.markdown import markdown
from phimu.reports.rows import D4RL_SHA256, gather
from phimu.studies.tables import STUDIES

sys.path.insert(0, str(Path(__file__).parent))
from written_runs import write_run


def table(root: Path, name: str) -> Table:
    (found,) = [each for each in tables(gather([root])) if each.study.name == name]
    return found


def cell(
    found: Table, title: str, heading: str, whose: str, detail: str | None = None
) -> Cell | None:
    (column,) = [
        column
        for column in found.columns
        if (column.heading, column.whose) == (heading, whose) and detail in (None, column.detail)
    ]
    return next(row.cells.get(column) for row in found.rows if row.title == title)


def test_ours_stand_beside_the_papers_and_the_better_is_marked(tmp_path: Path) -> None:
    for seed, value in enumerate((5_200.0, 5_300.0, 5_400.0)):
        write_run(tmp_path, "mbbl/HalfCheetah-v0", "ctrl-ucb-m", [value, value], seed)
        write_run(tmp_path, "mbbl/HalfCheetah-v0", "sac", [value - 2_300], seed, every=200_000)
        write_run(tmp_path, "mbbl/Reacher-v0", "sac", [-9.0], seed, every=199_999)
        write_run(tmp_path, "mbbl/CartPole-v0", "sac", [199.3], seed, every=200_000)
    found = table(tmp_path, "table1")
    mine, theirs = (cell(found, "HalfCheetah", "ctrl-ucb-m", whose) for whose in ("ours", "paper"))
    assert mine
    assert theirs
    assert (mine.mean, mine.std, mine.seeds, mine.steps) == (5_300.0, 100.0, 3, (10_000, 10_000))
    assert (theirs.mean, theirs.std) == (4888.5, 205.8)
    assert (mine.ahead, mine.near, theirs.ahead) == (True, False, False)
    sac, printed = (cell(found, "HalfCheetah", "sac", whose) for whose in ("ours", "paper"))
    assert sac
    assert printed
    assert (sac.ahead, printed.ahead, printed.near) == (False, True, False)
    close = cell(found, "CartPole", "sac", "paper")
    assert close
    assert (close.ahead, close.near) == (True, True)  # 199.4 ± 0.4
    longer = cell(found, "Reacher", "sac", "paper")
    assert longer
    assert (longer.ahead, longer.near) == (True, True)  # -6.4 ± 0.5, after more steps
    assert cell(found, "Walker-ET", "sac", "ours") is None  # not run
    best = cell(found, "HalfCheetah", "best of the rest", "paper")
    assert best
    assert (best.method, best.mean, best.ahead) == ("Best MBBL", 3639.0, False)


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_seed_is_ahead_in_pale(tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        write_run(tmp_path, "mbbl/HalfCheetah-v0", "ctrl-ucb-m", [9_000.0 + seed], seed)
        write_run(tmp_path, "mbbl/CartPole-v0", "sac", [9.0 + seed], seed, every=200_000)
    found = table(tmp_path, "table1")
    mine, theirs = (
        cell(found, "HalfCheetah", "ctrl-ucb-m", "ours"),
        cell(found, "CartPole", "sac", "paper"),
    )
    assert mine
    assert theirs
    assert (mine.ahead, theirs.ahead) == (True, True)
    assert (mine.near, theirs.near) == (seeds == 1, seeds == 1)
    assert ("**9,000" in markdown(found)) == (seeds > 1)


def test_another_dataset_is_ahead_in_pale(tmp_path: Path) -> None:
    for sha256, regenerated in (("0" * 64, True), (sorted(D4RL_SHA256)[0], False)):
        root = tmp_path / sha256
        for seed in range(2):
            scores = [90.0 + seed]
            write_run(root, "hopper_medium", "ctrl-lcb", scores, seed, offline=True, sha256=sha256)
        mine = cell(table(root, "table3"), "hopper-medium-v0", "ctrl-lcb", "ours")
        assert mine
        assert (mine.ahead, mine.near) == (True, regenerated)


def test_presets_are_not_mixed_and_changes_are_named(tmp_path: Path) -> None:
    task = "mbbl/CartPole-v0"
    write_run(tmp_path, task, "sac", [100.0], chosen="small")
    write_run(tmp_path, task, "sac", [150.0], chosen="paper-mujoco")
    write_run(tmp_path, task, "sac", [50.0], chosen="small", changes={"discount": 0.9})
    found = table(tmp_path, "table1")
    means = {
        detail: getattr(cell(found, "CartPole", "sac", "ours", detail), "mean", None)
        for detail in ("small", "paper-mujoco", "small, discount=0.9")
    }
    assert means == {"small": 100.0, "paper-mujoco": 150.0, "small, discount=0.9": 50.0}


def test_a_run_of_an_ablation_is_no_odd_run_of_the_table(tmp_path: Path) -> None:
    task = "dmc/walker-run-v0"
    for bonus in (0.0, 5.0):
        write_run(
            tmp_path,
            task,
            "ctrl-ucb-m",
            [bonus],
            chosen="paper-dmc",
            changes={"bonus_scale": bonus},
        )
    write_run(tmp_path, task, "sac", [9.0], chosen="paper-dmc", changes={"critic": "two_layer"})
    placed = {run.values[0]: {fit.study for fit in place(run)} for run in gather([tmp_path])}
    assert placed[0.0] == {"ablation-bonus"}
    assert placed[9.0] == {"table2"}
    # The paper's own settings are a value of every ablation.
    others = {"ablation-bonus", "ablation-feature-dim", "ablation-loss", "ablation-sampling"}
    assert placed[5.0] == {"table2"} | others
    two_layers = cell(table(tmp_path, "table2"), "walker_run", "sac, two layers", "ours")
    assert two_layers
    assert two_layers.mean == 9.0
    assert cell(table(tmp_path, "table2"), "walker_run", "sac", "ours") is None


def test_a_run_stands_where_its_manifest_says(tmp_path: Path) -> None:
    def placed(seed: int, study: str, variant: str, **changes: Any) -> set[tuple[str, str, Any]]:
        facts = {"preset": "paper-dmc", "study": study, "variant": variant}
        run = write_run(
            tmp_path / str(seed),
            "dmc/walker-run-v0",
            "ctrl-ucb-m",
            [float(seed)],
            seed,
            chosen="paper-dmc",
            changes=changes,
            facts=facts,
        )
        fits = place(gather([run])[0])
        labels = {fit.study: STUDIES[fit.study].variants[fit.variant].label for fit in fits}
        return {(fit.study, labels[fit.study], fit.rest) for fit in fits}

    # With a further change it is still a run of its study, and no odd run of the table.
    found = placed(0, "ablation-bonus", "bonus_scale 1.0", bonus_scale=1.0, discount=0.9)
    assert found == {("ablation-bonus", "bonus_scale 1.0", (("discount", 0.9),))}
    # One run can be a value of several studies, whichever of them made it.
    found = placed(1, "ablation-loss", "loss ranking")
    assert {("ablation-loss", "loss ranking", ()), ("table2", "ctrl-ucb-m", ())} < found
    # A study or a variant that is not known here is guessed from the settings, as ever.
    for seed, said in enumerate((("ablation-of-tomorrow", "x"), ("ablation-bonus", "x")), 2):
        found = placed(seed, *said, bonus_scale=0.0)
        assert found == {("ablation-bonus", "bonus_scale 0.0", ())}


def test_a_variant_of_several_numbers_is_found_by_its_settings(tmp_path: Path) -> None:
    """`levels` is a tuple in the study and a list in a run's file."""
    (several,) = [each for each in STUDIES["recipe"].variants if each.label == "levels 0.3, 1, 3"]
    changes, options = dict(several.settings), {"action_repeat": 2}
    assert isinstance(changes["levels"], tuple)
    write_run(tmp_path, "dmc/walker-run-v0", several.agent, [1.0], changes=changes, options=options)
    (fit,) = place(gather([tmp_path])[0])
    assert (fit.study, fit.rest) == ("recipe", ())
    assert STUDIES["recipe"].variants[fit.variant] == several


def test_the_maze_is_placed_whatever_its_start(tmp_path: Path) -> None:
    options = {"random_start": True}
    write_run(tmp_path, "phimu/FourRooms-v0", "ctrl-ucb-l", [1.0], chosen="maze", options=options)
    (run,) = gather([tmp_path])
    assert place(run) == [("maze", 0, ())]


def test_what_must_be_known_of_a_cell_is_noted(tmp_path: Path) -> None:
    write_run(tmp_path, "hopper_medium", "ctrl-lcb", [48.0], offline=True, asked=90_000)
    found = cell(table(tmp_path, "table3"), "hopper-medium-v0", "ctrl-lcb", "ours")
    assert found
    assert found.notes == (REGENERATED, UNFINISHED)
    row = next(row for row in table(tmp_path, "table3").rows if row.task == "hopper_medium_expert")
    assert "medium-replay" in row.notes[0]


def test_a_note_in_a_run_is_a_note_of_its_cell(tmp_path: Path) -> None:
    for seed in range(3):
        run = write_run(tmp_path, "mbbl/Reacher-v0", "sac", [-9.0], seed)
        if seed:
            (run / "note.txt").write_text("Chosen on\n  this very seed.\n")
    (tmp_path / "secret").write_text("not of this run")
    linked = write_run(tmp_path, "mbbl/CartPole-v0", "sac", [9.0])
    (linked / "note.txt").symlink_to(tmp_path / "secret")
    found = table(tmp_path, "table1")
    for title, notes in (("Reacher", ("Chosen on this very seed.",)), ("CartPole", ())):
        mine = cell(found, title, "sac", "ours")
        assert mine
        assert mine.notes == notes


def test_settings_that_ours_do_not_share_are_found(tmp_path: Path) -> None:
    for agent in ("ctrl-ucb-m", "sac"):
        write_run(tmp_path, "mbbl/Reacher-v0", agent, [-9.0])
    write_run(tmp_path, "mbbl/Reacher-v0", "sac", [-8.0], changes={"critic_width": 512})
    columns, found = differences(table(tmp_path, "table1"))
    assert columns == ["ctrl-ucb-m (small)", "sac (small)", "sac (small, critic_width=512)"]
    assert found == {
        "critic": ["two_layer", "three_layer", "three_layer"],
        "critic_width": [256, 256, 512],
    }
    write_run(tmp_path, "mbbl/Reacher-v0", "ctrl-ucb-l", [-9.0])
    _, found = differences(table(tmp_path, "table1"))
    assert found["critic_trains_phi"] == [0.0, 2.0, ABSENT, ABSENT]


def test_aggregates_are_of_tasks_that_all_variants_ran(tmp_path: Path) -> None:
    random, sac = 38.4, 199.4  # of CartPole in MBBL
    for seed in range(2):
        for agent, share in (("ctrl-ucb-m", 1.0), ("sac", 0.5)):
            value = random + share * (sac - random)
            write_run(tmp_path, "mbbl/CartPole-v0", agent, [value], seed)
    write_run(tmp_path, "mbbl/Reacher-v0", "sac", [-5.0])
    (found,) = aggregates(table(tmp_path, "table1"))
    assert (found.detail, found.tasks) == ("small", ["CartPole"])
    assert found.labels == ["ctrl-ucb-m", "sac"]
    np.testing.assert_allclose([each.value for each in found.middle], [1.0, 0.5])
    over = found.improvement[0][1]
    assert over is not None
    assert over.value == 1.0
    assert found.profiles[1].value[0] == 1.0
    assert found.profiles[1].value[-1] == 0.0
    assert aggregates(table(tmp_path, "table2")) == []


@pytest.mark.parametrize("name", ["table1", "table3", "ablation-loss"])
def test_tables_stand_where_nothing_was_run(tmp_path: Path, name: str) -> None:
    write_run(tmp_path, "Pendulum-v1", "sac", [1.0])
    found = table(tmp_path, name)
    ours = [column for column in found.columns if column.whose == "ours"]
    assert len(ours) == len(found.study.variants)
    assert all(column not in row.cells for row in found.rows for column in ours)
