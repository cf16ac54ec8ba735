import math

import pytest

from phimu.agents import preset
from phimu.data.sets.scores import V0_FILES
from phimu.environments.catalogue import catalogue
from phimu.reports.published import Published, published
from phimu.settings import override
from phimu.studies.exploration import EXPLORATION
from phimu.studies.tables import STUDIES, TASK_TITLES

PAPER = [row for row in published() if row.of_paper]


def cell(table: str, task: str, method: str) -> Published:
    (found,) = [
        row
        for row in PAPER
        if (row.table, TASK_TITLES[row.task], row.method) == (table, task, method)
    ]
    return found


def test_every_cell_of_the_paper_is_there_once() -> None:
    counts = {name: sum(row.table == name for row in PAPER) for name in STUDIES}
    assert counts == {
        "table1": 11 * 10,
        "table2": 5 * 6,
        "table3": 7 * 9,
        "ablation-bonus": 9,
        "ablation-feature-dim": 9,
        "ablation-loss": 6,
        "ablation-sampling": 9,
        "maze": 0,
        "ablation-penalty": 0,
        "recipe": 0,
        "representations": 0,
        **{study.name: 0 for study in EXPLORATION},  # the paper's stand beside some of them
    }
    keys = [(row.table, row.task, row.method, row.metric, row.steps) for row in published()]
    assert len(set(keys)) == len(keys)


def test_every_number_is_finite_and_has_a_source() -> None:
    for row in published():
        assert math.isfinite(row.mean)
        assert row.std is None or (math.isfinite(row.std) and row.std >= 0)
        assert row.seeds is None or row.seeds > 0
        assert row.steps is None or row.steps >= 100_000
        assert row.source
        assert row.metric in ("return", "score", "best score")
        assert row.table in (*STUDIES, "gymnasium", "d4rl-v2")


@pytest.mark.parametrize(
    ("table", "task", "method", "mean", "std"),
    [
        ("table1", "HalfCheetah", "CTRL-UCBM (2-layer)", 4888.5, 205.8),
        ("table1", "Walker-ET", "CTRL-UCBL", 1670.5, 824.2),
        ("table1", "I-Pendulum", "SAC (3-layer)", -0.2, 0.1),
        ("table2", "walker_run_sparse", "CTRL-UCBM (2-layer)", 697.0, 44.8),
        ("table3", "walker2d-medium-replay-v0", "CTRL-LCB", 22.4, None),
        ("ablation-bonus", "walker_run_sparse", "CTRL-UCBM (alpha=0)", 118.4, 236.5),
        ("ablation-feature-dim", "hopper_hop", "CTRL-UCBM (h=256)", 99.1, 84.8),
        ("ablation-loss", "cheetah_run", "CTRL-UCBM (classify)", 455.2, 2.7),
        ("ablation-sampling", "walker_run", "CTRL-UCBM (epsilon=0.05)", 777.5, 15.7),
    ],
)
def test_known_cells(table: str, task: str, method: str, mean: float, std: float | None) -> None:
    found = cell(table, task, method)
    assert (found.mean, found.std) == (mean, std)


def test_misprints_of_mbbl_are_noted() -> None:
    assert "843.6" in cell("table1", "S-Humanoid-ET", "SAC (3-layer)").note
    assert "926.9" in cell("table1", "Hopper-ET", "Best MBBL").note
    noted = [row for row in PAPER if row.table == "table1" and "MBBL" in row.note]
    assert len(noted) == 13


def test_studies_name_tasks_and_methods_that_exist() -> None:
    registered = {entry.task for entry in catalogue()} | {"MountainCarContinuous-v0"}
    files = {name.removesuffix(".hdf5") for name in V0_FILES}
    for study in STUDIES.values():
        assert set(study.tasks) <= (files if study.offline else registered)
        printed = [row for row in published() if row.table == (study.published or study.name)]
        methods = {(row.task, row.method) for row in printed}
        for variant in study.variants:
            if variant.published_method is None:
                continue
            if study.published is None:
                assert {(task, variant.published_method) for task in study.tasks} <= methods
            else:  # on other tasks than the paper's
                assert variant.published_method in {method for _, method in methods}


def test_studies_are_settings_that_their_agents_have() -> None:
    for study in STUDIES.values():
        for variant in study.variants:
            chosen = preset(variant.agent, variant.preset or study.preset, study.offline)
            override(chosen, dict(variant.settings))
    two_layers = STUDIES["table2"].variants[2]
    assert two_layers.settings == (("critic", "two_layer"),)


def test_paper_and_catalogue_agree() -> None:
    """Two files carry these; only where MBBL is misprinted may they differ."""
    methods = {
        "sac": "SAC (3-layer)",
        "ctrl_ucb_l": "CTRL-UCBL",
        "ctrl_ucb_m": "CTRL-UCBM (2-layer)",
    }
    printed = {(row.task, row.method): row for row in PAPER if row.table in ("table1", "table2")}
    for entry in catalogue():
        for name, method in methods.items():
            row = printed.get((entry.task, method))
            if row is not None and name in entry.scores and not row.note:
                assert entry.scores[name] == (row.mean, row.std)
