"""Studies as runs: what each is, its directory, and what that says of it."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from phimu.agents import preset
from phimu.agents.schedule import Preset
from phimu.cli.train import order_for, parse
from phimu.confidence import CAP
from phimu.data.sets.opening import is_source, open_set
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.runs.config import load_config
from phimu.runs.lock import locked
from phimu.session import order_of
from phimu.settings import read, walk
from phimu.studies import plan
from phimu.studies.exploration import EXPLORATION
from phimu.studies.plan import Run, expand, find_study, narrow, try_tasks, under
from phimu.studies.study import Study, Variant
from phimu.studies.tables import STUDIES

PROBE, OTHER = "phimu/probe-TimeLimit-v0", "phimu/probe-DelayedReward-v0"
SAC, CTRL = Variant("sac", "sac"), Variant("ctrl", "ctrl-ucb-m", (("bonus_scale", 1.0),))
STUDY = Study("probes", "Probes", (PROBE, OTHER), (SAC, CTRL), "small", steps=100, seeds=2)


def planned(study: Study = STUDY, data: Path = Path("data"), **settings: str) -> list[Run]:
    return expand(study, settings, data, Path("runs"))


def as_trained(source: str, *flags: str) -> tuple[Path, int]:
    """Where `phimu train` with these arguments would train, and to which step."""
    request = parse([source, *flags])
    data = open_set(source) if is_source(source) else None
    order = order_for(request, data)
    suite = open_task(source).suite if data is None else data.layout
    return order.config.path(Path("runs"), suite), order.last_step


def flags(**settings: object) -> list[str]:
    """Settings as `phimu train` takes them."""
    words = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            each = value if isinstance(value, tuple) else (value,)
            words += [f"--{flag}", *map(str, each)]
    return words


def logged(directory: Path) -> Path:
    """A dataset as D4RL's files are."""
    directory.mkdir(exist_ok=True)
    with h5py.File(directory / "walk.hdf5", "w") as file:
        file.attrs["task"] = "Hopper-v5"
        rng = np.random.default_rng(0)
        for name, width in (("observations", 11), ("actions", 3)):
            file[name] = rng.uniform(-1, 1, (40, width)).astype(np.float32)
        file["rewards"] = np.zeros(40, np.float32)
        file["terminals"] = np.zeros(40, bool)
        file["timeouts"] = np.arange(40) % 20 == 19
    return directory


CLONED = (Variant("td3-bc", "td3-bc"), Variant("brac", "brac"))
LOGGED = Study("set", "A set", ("walk",), CLONED, "small", steps=10, seeds=1, metric="score")


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
    second = runs[5]
    assert (second.config.task, second.config.agent) == (PROBE, "ctrl-ucb-m")
    assert second.config.settings.confidence.bonus_scale == 1.0
    assert (second.seed, second.steps, second.order.data) == (1, 100, None)
    resume = f"resume {second.path} --steps 100 --threads 1 --quiet"
    assert second.next_command() == resume.split()


def test_a_run_is_what_train_makes_of_the_same_settings() -> None:
    """In the same directory, so that one goes on with what the other began."""
    texts = {"actor_sizes": "8,16", "feature_dim": "4", "planner_layer_norm": "false"}
    texts |= {"target_entropy": "-3", "fourier": "6,2", "feature_decay": "none", "ratio": "linear"}
    of_all = flags(actor_sizes=(8, 16), planner_layer_norm=False, target_entropy=-3)
    of_phi = flags(feature_dim=4, fourier=(6, 2), feature_decay=None, ratio="linear")
    for run in planned(**texts):
        own = ["--bonus-scale", "1", *of_phi] if run.label == "ctrl" else []
        words = [*of_all, *own, "--agent", run.config.agent, "--seed", str(run.seed)]
        assert as_trained(run.task, *words, "--steps", "100") == (run.path, run.steps)
        assert run.config.settings.planner.actor_sizes == (8, 16)
        assert not run.config.settings.planner.planner_layer_norm


@pytest.mark.parametrize("name", STUDIES)
def test_every_variant_of_the_paper_is_what_train_makes_of_its_settings(
    name: str, tmp_path: Path
) -> None:
    """A variant's own settings have the types that flags have: 5 and 5.0 are other directories."""
    tasks = (f"d4rl:{logged(tmp_path) / 'walk.hdf5'}",) if STUDIES[name].offline else (PROBE,)
    study = replace(STUDIES[name], tasks=tasks, options=(), seeds=1)
    for run, variant in zip(planned(study), study.variants, strict=True):
        words = ["--agent", variant.agent, "--preset", variant.preset or study.preset]
        words += flags(**dict(variant.settings))
        assert as_trained(*tasks, *words, "--steps", str(study.steps)) == (run.path, run.steps)


def test_options_of_the_task_are_those_of_train() -> None:
    study = replace(STUDY, options=(("limit", True),))
    request = parse([PROBE, "--option", "limit=true"])
    assert order_for(request, None).config.task_options == {"limit": True}
    with pytest.raises(InputError, match="'limit'"):  # they reach the task
        try_tasks(planned(study))


def test_options_of_a_suite_are_for_its_tasks_alone() -> None:
    options = (("dmc/action_repeat", 2), ("phimu/noise", 0.3), ("top_speed", 1.0))
    study = replace(STUDY, options=options)
    assert study.options_of("dmc/cheetah-run-v0") == {"action_repeat": 2, "top_speed": 1.0}
    assert study.options_of("phimu/FourRooms-v0") == {"noise": 0.3, "top_speed": 1.0}
    assert study.options_of("Pendulum-v1") == {"top_speed": 1.0}


@pytest.mark.parametrize("study", EXPLORATION, ids=lambda study: study.name)
def test_our_own_studies_can_be_planned_as_they_are(study: Study) -> None:
    """With their tasks and options: one run of each variant on each task."""
    if any(task.startswith("dmc/") for task in study.tasks):
        pytest.importorskip("dm_control", reason="the extra dmc is not installed")
    runs = planned(replace(study, seeds=1))
    assert len(runs) == len(study.tasks) * len(study.variants)
    for run in runs:
        repeated = run.config.task_options.get("action_repeat")
        assert repeated == (2 if run.task.startswith("dmc/") else None)


def test_of_some_numbers_nothing_else_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def open_and_note(task: str, **options: object) -> object:
        looked.append(task)
        return open_task(task, **options)

    monkeypatch.setattr(plan, "open_task", open_and_note)
    runs = expand(STUDY, {}, Path("data"), Path("runs"), only=(7, 3))
    assert looked == []
    try_tasks(runs)
    assert looked == [OTHER]
    assert runs == [planned()[2], planned()[6]]


# What a worker is told


def test_a_run_is_prepared_once_and_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker finds in the directory what it is to do: the order comes back from it."""
    monkeypatch.chdir(tmp_path)
    run = planned()[1]
    run.prepare()
    assert load_config(run.path) == run.config
    assert order_of(run.path) == replace(run.order, about={})
    assert order_of(run.path, 70).last_step == 70
    manifest = json.loads((run.path / "manifest.json").read_text())
    about = {"preset": "small", "study": "probes", "variant": "ctrl", "steps": 100}
    assert {name: manifest[name] for name in about} == about
    assert "data" not in manifest
    assert manifest["versions"]["jax"]
    run.prepare()
    assert json.loads((run.path / "manifest.json").read_text()) == manifest
    assert {path.name for path in run.path.iterdir()} == {"config.json", "manifest.json"}


def test_a_kill_between_two_files_of_a_directory_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = planned()[0]
    run.prepare()
    (run.path / "manifest.json").unlink()
    with pytest.raises(InputError, match="how far it was to be trained: give --steps"):
        order_of(run.path)
    run.prepare()
    assert order_of(run.path) == replace(run.order, about={})


def test_a_run_that_another_process_has_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = planned()[0]
    with locked(run.path, print):
        run.prepare()
        assert {path.name for path in run.path.iterdir()} == {"lock"}


def test_data_that_has_moved_is_found_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content of the dataset names the run, not where its file lies.

    The manifest has the absolute path, so that the run can be resumed from any directory.
    """
    monkeypatch.chdir(tmp_path)
    (first, *_), (moved, *_) = (planned(LOGGED, logged(Path(name))) for name in ("a", "b"))
    assert first.path == moved.path
    places = [f"d4rl:{tmp_path / name / 'walk.hdf5'}" for name in ("a", "b")]
    for run, where in zip((first, moved), places, strict=True):
        run.prepare()
        run.prepare()
        assert order_of(run.path) == replace(run.order, data=where, about={})
    manifest = json.loads((moved.path / "manifest.json").read_text())
    assert [manifest["data"], *(each["data"] for each in manifest["sessions"])] == places


def test_what_is_left_of_a_run_is_read_from_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = planned()[0]
    resume = ["resume", str(run.path), "--steps", "100", "--threads", "1", "--quiet"]
    assert run.next_command() == resume
    save(run, 60)
    assert run.next_command() == resume
    save(run, 100, due=True)  # stopped in its last evaluation
    assert run.next_command() == resume
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


def test_another_preset_is_that_of_variants_which_had_none_of_their_own() -> None:
    """A baseline without the study's preset has one in its place; a variant of the maze chose."""
    table = under(STUDIES["table1"], "small")
    assert {variant.preset for variant in table.variants} == {None}
    maze = under(STUDIES["maze"], "maze-explore")
    own = {variant.preset for variant in STUDIES["maze"].variants}
    assert {variant.preset for variant in maze.variants} == own != {None}


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_of_the_paper_can_be_planned(name: str, tmp_path: Path) -> None:
    """Their settings are those of their agents: a probe, or a set, stands in for the tasks."""
    study = STUDIES[name]
    tasks = (f"d4rl:{logged(tmp_path) / 'walk.hdf5'}",) if study.offline else (PROBE,)
    study = replace(study, tasks=tasks, options=())
    assert len(planned(study)) == len(study.variants) * study.seeds


def test_the_penalty_goes_from_none_to_too_much_in_one_unit(tmp_path: Path) -> None:
    source = f"d4rl:{logged(tmp_path) / 'walk.hdf5'}"
    runs = planned(replace(STUDIES["ablation-penalty"], tasks=(source,), seeds=1))
    measures = [run.config.settings.confidence for run in runs]
    assert {(m.bonus_unit, m.effective_rows) for m in measures} == {("reward", 10_000)}
    scales = [measure.bonus_scale for measure in measures]
    assert scales[0] == 0
    assert scales == sorted(scales)
    assert scales[-1] >= CAP  # everywhere at its bound, so that it says nothing any more


def test_runs_on_logged_data_end_after_all_phases(tmp_path: Path) -> None:
    plain, cloned = planned(LOGGED, logged(tmp_path), behaviour_updates="30")
    source = f"d4rl:{tmp_path / 'walk.hdf5'}"
    assert plain.order.data == cloned.order.data == source
    assert (plain.steps, cloned.steps) == (10, 40)
    assert plain.path.parts[:3] == ("runs", "d4rl", "walk")
    assert plain.path == planned(LOGGED, tmp_path)[0].path  # td3-bc has no such setting
    words = [source, "--agent", "brac", "--behaviour-updates", "30", "--steps", "10"]
    assert as_trained(*words) == (cloned.path, 40)
    # updates of the policy: the others come on top
    assert cloned.next_command()[2:4] == ["--steps", "10"]


# Settings given as text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("batch_size", "128", 128),
        ("actor_sizes", "64,64", (64, 64)),
        ("actor_sizes", "64", (64,)),
        ("discount", "0", 0.0),
        ("critic_learning_rate", "1e-3", 1e-3),
        ("normalise_observations", "True", True),
        ("loss", "binary", "binary"),
        ("target_entropy", "-3", -3.0),
        ("target_entropy", "none", None),
        ("feature_decay", "9", 9),
        ("fourier", "8,1", (8, 1.0)),
        ("fourier", "none", None),
        ("temperature", "1", 1.0),
    ],
)
def test_a_text_becomes_the_type_of_its_setting(name: str, text: str, value: object) -> None:
    """Not that of its present value: None may become a number."""
    found = {each.name: now for part in small(**{name: text}) for each, now in walk(part)}
    assert (found[name], type(found[name])) == (value, type(value))
    if isinstance(value, tuple):
        assert [type(each) for each in found[name]] == [type(each) for each in value]


def small(**texts: str) -> Preset:
    return read(preset("ctrl-ucb-m", "small"), texts)


def test_a_part_is_chosen_by_name_and_brings_its_own_settings() -> None:
    assert small(ratio="linear", balance_weight="1").settings.representation.ratio == replace(
        small(ratio="linear").settings.representation.ratio, balance_weight=1.0
    )
    linear, _ = planned(replace(STUDY, variants=(CTRL,)), ratio="linear", balance_weight="1")[:2]
    assert linear.config.settings.representation.ratio.balance_weight == 1.0


@pytest.mark.parametrize(
    ("change", "settings", "sentence"),
    [
        ({"tasks": ("Pendulun-v1",)}, {}, "'Pendulun-v1' is not a registered Gymnasium id"),
        (
            {"variants": (Variant("dqn", "dqn"),)},
            {},
            "agent is 'dqn': to train in an environment choose",
        ),
        ({"preset": "tiny"}, {}, "preset is 'tiny': sac has paper-mujoco, "),
        ({"seeds": 0}, {}, "seeds is 0 and steps is 100: give at least 1"),
        ({}, {"bach_size": "8"}, "There is no setting 'bach_size' of sac or ctrl-ucb-m: see"),
        ({}, {"bonus_scale": "2"}, "bonus_scale cannot be set, for it is what probes varies"),
        ({}, {"batch_size": "some"}, "batch_size is 'some': give an integer"),
        ({}, {"batch_size": "1.5"}, "batch_size is '1.5': give an integer"),
        ({}, {"batch_size": "8,8"}, "batch_size is '8,8': give an integer"),
        ({}, {"batch_size": "1"}, "batch_size is 1: give at least 2"),
        ({}, {"discount": "true"}, "discount is 'true': give a number"),
        ({}, {"discount": "nan"}, "discount is nan"),
        ({}, {"actor_sizes": "8,x"}, "actor_sizes is '8,x': give integers with commas between"),
        ({}, {"in_batch": "1"}, "in_batch is '1': give true or false"),
        ({}, {"loss": "rank"}, "loss is 'rank': give one of ranking, binary"),
        ({}, {"ratio": "lin"}, "ratio is 'lin': choose one of exponential, linear"),
        ({}, {"ratio": "linear", "temperature": "1"}, "There is no setting 'temperature' of"),
        ({}, {"feature_decay": "few"}, "feature_decay is 'few': give an integer or none"),
        ({}, {"fourier": "8"}, "give an integer and a number with a comma between or none"),
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
