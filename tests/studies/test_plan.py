"""Studies as runs: their command lines, their directories, and what these say of them."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from phimu.cli.train import resolve
from phimu.errors import InputError
from phimu.runs.config import RunConfig
from phimu.studies.plan import Run, expand, find_study, narrow
from phimu.studies.tables import STUDIES, Study, Variant

PROBE, OTHER = "phimu/probe-TimeLimit-v0", "phimu/probe-DelayedReward-v0"
SAC, CTRL = Variant("sac", "sac"), Variant("ctrl", "ctrl-ucb-m", (("bonus_scale", 1.0),))
STUDY = Study("probes", "Probes", (PROBE, OTHER), (SAC, CTRL), "small", steps=100, seeds=2)


def planned(study: Study = STUDY, data: Path = Path("data"), **settings: str) -> list[Run]:
    return expand(study, settings, data, Path("runs"), resolve)


def save(run: Run, step: int, due: bool = False) -> None:
    """As much of a checkpoint as a glance sees."""
    folder = run.path / "checkpoint" / f"step-{step:09d}"
    folder.mkdir(parents=True)
    (folder / "facts.json").write_text(json.dumps({"evaluation_due": due}))


def test_every_variant_on_every_task_with_every_seed() -> None:
    runs = planned()
    assert [run.number for run in runs] == list(range(1, 9))
    assert [(run.seed, run.task, run.label) for run in runs[:5]] == [
        (0, PROBE, "sac"),
        (0, PROBE, "ctrl"),
        (0, OTHER, "sac"),
        (0, OTHER, "ctrl"),
        (1, PROBE, "sac"),
    ]
    assert len({run.path for run in runs}) == 8
    assert " ".join(runs[5].arguments) == (
        f"{PROBE} --agent ctrl-ucb-m --preset small --steps 100 --threads 1 --runs runs "
        "--bonus-scale 1.0 --seed 1"
    )


def test_a_command_line_has_the_directory_of_its_run() -> None:
    sizes = {"actor_sizes": "8,16", "feature_dim": "4", "planner_layer_norm": "false"}
    for run in planned(**sizes):
        config, suite, steps = resolve(list(run.arguments))
        assert (config, steps) == (run.config, run.steps)
        assert config.path(Path("runs"), suite) == run.path
        assert config.settings.planner.actor_sizes == (8, 16)
        assert not config.settings.planner.planner_layer_norm
    # each setting went to the agents that have it
    assert ["--feature-dim" in run.arguments for run in planned(**sizes)[:2]] == [False, True]


def test_of_some_numbers_nothing_else_is_looked_at() -> None:
    looked: list[str] = []

    def resolve_and_note(arguments: list[str]) -> tuple[RunConfig, str, int]:
        looked.append(arguments[0])
        return resolve(arguments)

    runs = expand(STUDY, {}, Path("data"), Path("runs"), resolve_and_note, only=(7, 3))
    assert runs == [planned()[2], planned()[6]]
    assert looked == [OTHER]


def test_what_is_left_of_a_run_is_read_from_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = planned()[0]
    train = ["train", *run.arguments, "--quiet"]
    assert run.next_command() == train
    save(run, 60)
    assert run.next_command() == train
    save(run, 100, due=True)  # stopped in its last evaluation
    assert run.next_command() == train
    save(run, 120)  # a longer run of the same configuration
    assert run.next_command() is None
    mapped = replace(run, heat_map=True)
    assert mapped.next_command() == ["heatmap", str(run.path)]
    (run.path / "scores.json").write_text('{"step": 99}')  # of an earlier checkpoint
    assert mapped.next_command() == ["heatmap", str(run.path)]
    (run.path / "scores.json").write_text('{"step": 100}')
    assert mapped.next_command() is None


def test_tasks_by_the_papers_names_and_agents_from_elsewhere() -> None:
    study = narrow(STUDIES["ablation-bonus"], ["walker_run", PROBE], ["sac", "ctrl-ucb-m"])
    assert study.tasks == ("dmc/walker-run-v0", PROBE)
    assert [variant.agent for variant in study.variants] == ["ctrl-ucb-m"] * 3 + ["sac"]
    assert narrow(study, [], []) == study


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_of_the_paper_can_be_planned(name: str) -> None:
    """Their settings are those of their agents: a probe stands in for the tasks."""
    study = STUDIES[name]
    if study.offline:
        pytest.skip("its runs are named after the content of files")
    study = replace(study, tasks=(PROBE,), options=())
    assert len(planned(study)) == len(study.variants) * study.seeds


def test_runs_on_logged_data_end_after_all_phases(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "walk.hdf5", "w") as file:
        file.attrs["task"] = "Hopper-v5"
        rng = np.random.default_rng(0)
        for name, width in (("observations", 11), ("actions", 3)):
            file[name] = rng.uniform(-1, 1, (40, width)).astype(np.float32)
        file["rewards"] = np.zeros(40, np.float32)
        file["terminals"] = np.zeros(40, bool)
        file["timeouts"] = np.arange(40) % 20 == 19
    variants = (Variant("td3-bc", "td3-bc"), Variant("brac", "brac"))
    study = Study("set", "A set", ("walk",), variants, "small", steps=10, seeds=1, metric="score")
    plain, cloned = planned(study, tmp_path, behaviour_updates="30")
    assert plain.arguments[0] == f"d4rl:{tmp_path / 'walk.hdf5'}"
    assert (plain.steps, cloned.steps) == (10, 40)
    assert plain.path.parts[:3] == ("runs", "d4rl", "walk")
    assert "--behaviour-updates" not in plain.arguments


@pytest.mark.parametrize(
    ("change", "settings", "sentence"),
    [
        ({"tasks": ("Pendulun-v1",)}, {}, "'Pendulun-v1' is not a registered Gymnasium id"),
        ({"variants": (Variant("dqn", "dqn"),)}, {}, "agent is 'dqn': choose one of"),
        ({"preset": "tiny"}, {}, "preset is 'tiny': choose one of"),
        ({"seeds": 0}, {}, "seeds is 0 and steps is 100: give at least 1"),
        ({}, {"bach_size": "8"}, "There is no setting 'bach_size' of sac or ctrl-ucb-m: see"),
        ({}, {"bonus_scale": "2"}, "bonus_scale cannot be set, for it is what probes varies"),
        ({}, {"batch_size": "some"}, "batch-size"),
        ({"variants": (SAC, replace(SAC, label="again"))}, {}, "'again' and 'sac' are the same"),
    ],
)
def test_bad_input_is_one_sentence(change: dict, settings: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as error:
        planned(replace(STUDY, **change), **settings)
    assert "\n" not in str(error.value)


def test_unknown_study() -> None:
    with pytest.raises(InputError, match="There is no study 'table4': choose one of table1, "):
        find_study("table4")
