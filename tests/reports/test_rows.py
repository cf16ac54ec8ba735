import contextlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phimu.agents import AGENTS, PRESETS, preset
from phimu.data.sets.scores import V0_FILES
from phimu.errors import InputError
from phimu.reports.rows import gather
from phimu.runs.json_form import to_json

sys.path.insert(0, str(Path(__file__).parent))
from written_runs import write_run

RESULTS = Path(__file__).parents[2] / "results"


def test_a_score_is_the_mean_of_the_last_window(tmp_path: Path) -> None:
    write_run(tmp_path, "mbbl/Pendulum-v0", "sac", [1.0, 2.0, 4.0, 8.0], every=5_000)
    (run,) = gather([tmp_path])
    assert run.score == (4.0 + 8.0) / 2  # at 15K and 20K; 10K is not within 10K of the end
    np.testing.assert_array_equal(run.steps, [5_000, 10_000, 15_000, 20_000])
    assert (run.done, run.finished, run.hours) == (20_000, True, 1.0)
    assert run.command.startswith("phimu train mbbl/Pendulum-v0 --agent sac")
    assert (run.preset, run.changes, run.label) == ("small", (), "small")


def test_runs_say_how_they_differ_from_the_nearest_preset(tmp_path: Path) -> None:
    changed = {"bonus_scale": 2.0, "log_every": 7, "actor_sizes": (64, 64)}
    write_run(tmp_path, "Pendulum-v1", "ctrl-ucb-m", [0.0], chosen="paper-dmc", changes=changed)
    (run,) = gather([tmp_path])
    assert run.preset == "paper-dmc"
    assert dict(run.changes) == {"bonus_scale": 2.0, "actor_sizes": "[64, 64]"}


def test_of_equal_presets_the_one_that_was_asked_for(tmp_path: Path) -> None:
    for chosen in ("small", "paper-d4rl"):  # TD3+BC is the same in both
        write_run(tmp_path / chosen, "hopper_medium", "td3-bc", [1.0], offline=True, chosen=chosen)
        (run,) = gather([tmp_path / chosen])
        assert (run.preset, run.changes) == (chosen, ())


def test_the_preset_in_the_manifest_is_not_guessed_again(tmp_path: Path) -> None:
    where, changed = "mbbl/Pendulum-v0", {"discount": 0.9}
    for seed, facts in enumerate(({"preset": "paper-mujoco"}, {"preset": "of-tomorrow"}, {})):
        write_run(tmp_path, where, "sac", [1.0], seed, changes=changed, facts=facts)
    stated, unknown, guessed = gather([tmp_path])
    assert stated.preset == "paper-mujoco"
    assert dict(stated.changes).keys() > changed.keys()  # "small" has more that differs from it
    assert (unknown.preset, unknown.changes) == ("of-tomorrow", ())
    assert (guessed.preset, guessed.changes) == ("small", (("discount", 0.9),))


def test_settings_that_only_one_side_has_are_not_compared(tmp_path: Path) -> None:
    path = write_run(tmp_path, "Pendulum-v1", "sac", [1.0], facts={"preset": "small"})
    config = json.loads((path / "config.json").read_text())
    config["settings"]["of_yesterday"] = 3
    del config["schedule"]["batch_size"]
    (path / "config.json").write_text(json.dumps(config))
    (run,) = gather([tmp_path])
    assert (run.label, run.settings["of_yesterday"]) == ("small", 3)
    assert "log_every" not in run.settings  # changes nothing that is learned


def test_a_run_from_before_a_setting_did_what_was_done_then(tmp_path: Path) -> None:
    """`small` blurs s' now: an older run, which could not, is no run of it."""
    path = write_run(tmp_path, "mbbl/Pendulum-v0", "ctrl-ucb-m", [0.0])
    config = json.loads((path / "config.json").read_text())
    for name in ("target_every", "extra_entropy"):
        del config["settings"]["planner"][name]
    for name in ("feature_every", "levels"):
        del config["settings"]["representation"][name]
    (path / "config.json").write_text(json.dumps(config))
    (run,) = gather([tmp_path])
    assert dict(run.changes) == {"levels": "[]", "extra_entropy": 0.0}


def test_settings_compare_equal_in_their_old_and_new_form(tmp_path: Path) -> None:
    """A part as {"kind": ...} where it was a name; what belongs to the run, in its schedule."""
    source = RESULTS / "pendulum" / "ctrl-ucb-l" / "seed-0"
    config = json.loads((source / "config.json").read_text())
    parts = config["settings"]["representation"]
    parts["ratio"] = {"kind": parts["ratio"], "temperature": parts.pop("temperature")}
    run_owns = ("normalise_observations", "uniform_mix", "precision")
    moved = {name: config["settings"].pop(name) for name in run_owns if name in config["settings"]}
    assert len(moved) > 1
    config["schedule"]["collection"] = moved
    for name in ("manifest.json", "metrics.jsonl"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    (old,), (new,) = gather([source]), gather([tmp_path])
    assert new.settings == old.settings
    assert (new.settings["ratio"], new.settings["temperature"]) == ("linear", 1.0)
    assert (new.label, new.preset) == (old.label, "small")


@pytest.mark.parametrize("agent", AGENTS)
def test_settings_have_names_of_their_own(agent: str) -> None:
    """They are told apart by the last part of their names alone."""

    def names(settings: dict[str, Any]) -> list[str]:
        inner = [names(each) for each in settings.values() if isinstance(each, dict)]
        own = [name for name, each in settings.items() if not isinstance(each, dict)]
        return [*own, *(name for each in inner for name in each if name != "kind")]

    found = 0
    for chosen, offline in itertools.product(PRESETS, (False, True)):
        with contextlib.suppress(InputError):  # not every agent has every preset
            settings, schedule = preset(agent, chosen, offline)
            every = names(to_json(settings)) + names(to_json(schedule))
            assert len(every) == len(set(every))
            found += 1
    assert found


def test_runs_on_data_have_scores_and_say_whose_data(tmp_path: Path) -> None:
    own = V0_FILES["hopper_medium.hdf5"].sha256
    write_run(tmp_path / "a", "hopper_medium", "ctrl-lcb", [40.0, 50.0], offline=True, sha256=own)
    write_run(tmp_path / "b", "hopper_medium", "ctrl-lcb", [41.0], offline=True, every=20_000)
    first, second = gather([tmp_path / "a", tmp_path / "b"])
    assert (first.metric, first.score, first.done, first.regenerated) == (
        "score",
        45.0,
        10_000,
        False,
    )
    assert second.regenerated


def test_a_run_that_was_asked_for_more_is_unfinished(tmp_path: Path) -> None:
    path = write_run(tmp_path, "Pendulum-v1", "sac", [1.0, 2.0], asked=50_000)
    assert not gather([tmp_path])[0].finished
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["steps"]  # as older versions wrote it: then the command says so
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert not gather([tmp_path])[0].finished


def test_a_run_just_begun_and_one_without_a_log_are_read(tmp_path: Path) -> None:
    path = write_run(tmp_path, "Pendulum-v1", "sac", [1.0], seconds=None)
    (path / "metrics.jsonl").unlink()
    (run,) = gather([tmp_path])
    assert (run.score, run.done, run.finished, run.hours) == (None, 0, False, None)
    (path / "manifest.json").unlink()
    assert gather([path])[0].command == "not recorded"


def test_of_copies_the_one_that_got_furthest_counts(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "Pendulum-v1", "sac", [1.0])
    write_run(tmp_path / "b", "Pendulum-v1", "sac", [1.0, 3.0])
    write_run(tmp_path / "b", "Pendulum-v1", "sac", [5.0], seed=1)
    runs = gather([tmp_path / "a", tmp_path / "b", tmp_path / "b"])
    assert [(run.seed, run.done) for run in runs] == [(0, 10_000), (1, 5_000)]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "{}"),
        ("config.json", "[1]"),
        ("config.json", "not JSON"),
        ("manifest.json", "{"),
        ("manifest.json", "{}"),
        ("manifest.json", '{"sessions": [], "command": 3}'),
        ("manifest.json", '{"sessions": [], "steps": "many"}'),
        ("manifest.json", '{"sessions": [], "revision": "8d39d91"}'),
        ("manifest.json", '{"sessions": [], "preset": 3}'),
        ("manifest.json", '{"sessions": [], "study": ["table1"]}'),
        ("manifest.json", '{"sessions": [], "variant": {}}'),
        ("metrics.jsonl", '{"step": 1}\n{"step": 2}\n'),
        ("metrics.jsonl", 'no\n{"step": 1}\n'),
        ("metrics.jsonl", '{"step": 1, "kind": "evaluation", "return": NaN}\n'),
        ("metrics.jsonl", '{"step": 1, "kind": "evaluation", "return": "high"}\n'),
        ("scores.json", '{"total_variation_free": "low"}'),
        ("scores.json", "[]"),
    ],
)
def test_damage_is_one_sentence_that_names_the_run(tmp_path: Path, file: str, content: str) -> None:
    path = write_run(tmp_path, "Pendulum-v1", "sac", [1.0])
    (path / file).write_text(content)
    with pytest.raises(InputError, match=str(path)) as caught:
        gather([tmp_path])
    assert "\n" not in str(caught.value)


def test_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run"):
        gather([tmp_path])
    with pytest.raises(InputError, match="no run"):
        gather([])


def test_what_is_in_results_is_read() -> None:
    runs = gather([RESULTS])
    pendulum = [run for run in runs if run.task == "Pendulum-v1"]
    assert {(run.agent, run.preset) for run in pendulum} >= {("sac", "small")}
    by_name = {run.path.relative_to(RESULTS).as_posix(): run for run in runs}
    assert round(by_name["maze/exponential"].maze["total_variation_free"], 3) == 0.107
    lcb = by_name["offline/hopper_medium/ctrl-lcb-held/seed-0"]
    assert (round(lcb.score or 0, 1), lcb.done, lcb.regenerated) == (51.0, 50_000, True)
