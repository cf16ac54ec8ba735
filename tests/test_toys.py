"""Another agent, and another representation, are one file and one line each.

Everything else, from training to loading a saved model, works for them unchanged.
"""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from phimu import Model
from phimu.agents import AGENTS, Entry
from phimu.cli import main
from phimu.errors import InputError
from phimu.representation import REPRESENTATIONS
from phimu.runs import checkpoint
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun

TOYS = Path(__file__).parent / "toys"
PROBE = "phimu/probe-MatchObservation-v0"  # a = s is the best action
OFTEN = ["--evaluation-episodes", "2", "--checkpoint-every", "50", "--log-every", "20", "--quiet"]
NARROW = {"actor_sizes": (8,), "critic_width": 8, "batch_size": 16}
NARROW_FLAGS = ["--actor-sizes", "8", "--critic-width", "8", "--batch-size", "16"]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOYS))
    monkeypatch.setitem(
        AGENTS, "toy", Entry("toy_agent", "a toy", online="ONLINE", logged="LOGGED")
    )
    monkeypatch.setitem(REPRESENTATIONS, "toy", "toy_representation:Toy")


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """Random actions of the probe: a file that names it, and one that names no environment."""
    path = tmp_path / "random.hdf5"
    words = f"--policy random --steps 400 --out {path} --quiet"
    assert main(["data", "collect", PROBE, *words.split()]) == 0
    return path


def everything(run: Path) -> dict[str, bytes]:
    """What was learned, and what was said of it."""
    saved = checkpoint.load(run / "checkpoint", pytest.fail)
    assert saved is not None
    arrays = {name: array.tobytes() for name, array in saved.arrays.items()}
    return arrays | {"metrics": (run / "metrics.jsonl").read_bytes()}


def trained(words: list[str], kind: type, stop: int, tmp_path: Path, stopped_before) -> Path:
    """A run, after it was found that one that is stopped and resumed ends with the same bits."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main(["train", *words, *OFTEN, "--run-dir", str(whole)]) == 0
    with stopped_before(kind, stop):
        code = main(["train", *words, *OFTEN, "--run-dir", str(broken)])
        assert code == 128 + signal.SIGTERM
    assert main(["resume", str(broken), "--quiet"]) == 0
    assert everything(broken) == everything(whole)
    return broken


def printed(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def evaluated(run: Path | str, capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    capsys.readouterr()
    assert main(["evaluate", str(run), *words]) == 0
    return printed(capsys)


# The agent


def test_the_agent_on_the_command_line(tmp_path: Path, stopped_before, capsys):
    words = f"{PROBE} --agent toy --steps 300 --evaluate-every 100 --temperature 0.05".split()
    run = trained(words, OnlineRun, 130, tmp_path, stopped_before)
    found = evaluated(run, capsys, "--episodes", "20")
    assert (found["agent"], found["step"]) == ("toy", 300)
    random = evaluated(PROBE, capsys, "--policy", "random", "--episodes", "20")
    assert found["return"] > random["return"] / 4  # returns are errors, so below zero
    config = json.loads((run / "config.json").read_bytes())
    assert config["settings"] == {"temperature": 0.05, "learning_rate": 0.3}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"toy_loss", "simulator_steps"} < rows[0].keys()
    assert main(["agents"]) == 0
    assert "a toy" in capsys.readouterr().out
    assert main(["train", "--agent", "toy", PROBE, "--discount", "0.9"]) == 2  # it has none
    assert "discount" in capsys.readouterr().err


def test_the_agent_on_logged_data(tmp_path: Path, logged: Path, stopped_before, capsys):
    words = f"{logged} --agent toy --steps 300 --evaluate-every 100".split()
    run = trained(words, OfflineRun, 130, tmp_path, stopped_before)
    found = evaluated(run, capsys, "--episodes", "20")
    random = evaluated(PROBE, capsys, "--policy", "random", "--episodes", "20")
    assert found["return"] > random["return"] / 4
    # It has neither a discount nor a critic, and is estimated all the same.
    estimated = evaluated(run, capsys, "--data", str(logged), "--fqe-updates", "20")
    assert (estimated["agent"], estimated["discount"]) == ("toy", 0.99)
    assert np.isfinite(estimated["estimated_value"])


def test_the_agent_where_there_is_no_environment(tmp_path: Path, logged: Path):
    """Then an evaluation is what agent and data can say, which of this agent is nothing."""
    words = f"{logged} --task none --agent toy --steps 40 --evaluate-every 20".split()
    run = tmp_path / "run"
    assert main(["train", *words, *OFTEN, "--run-dir", str(run)]) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row for row in rows if row["kind"] == "estimate"] == [
        {"step": step, "kind": "estimate", "updates": step} for step in (20, 40)
    ]


@pytest.mark.parametrize("source", ["environment", "data"])
def test_the_agent_in_python(source: str, tmp_path: Path, logged: Path):
    given = PROBE if source == "environment" else logged
    model = Model(given, "toy", seed=1, learning_rate=0.2).learn(200)
    observation = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    action, _ = model.predict(observation, deterministic=True)
    assert (np.diff(action[:, 0]) > 0).all()
    assert model.evaluate(5)["return"] > -0.2
    model.save(tmp_path / "saved")
    data = {} if source == "environment" else {"data": logged}
    again = Model.load(tmp_path / "saved", **data)
    assert again.config == model.config
    np.testing.assert_array_equal(again.predict(observation, deterministic=True)[0], action)
    for each in (model, again):
        each.learn(30)
    for here, there in zip(model.run.state.agent, again.run.state.agent, strict=True):
        np.testing.assert_array_equal(here, there)
    with pytest.raises(InputError, match="toy has no q_value"):
        model.q_value(observation, observation)
    with pytest.raises(InputError, match="toy has no temperature"):
        _ = model.temperature  # the agent's setting of this name is none of a ratio
    with pytest.raises(InputError, match="kind ToyState cannot be exported"):
        model.export(tmp_path / "policy.npz")


def test_an_agent_learns_only_from_what_its_line_says(monkeypatch, capsys):
    monkeypatch.setitem(AGENTS, "toy", Entry("toy_agent", "a toy", online="ONLINE"))
    assert main(["train", "random.hdf5", "--agent", "toy"]) == 2
    assert "agent is 'toy': to learn from logged data choose one of" in capsys.readouterr().err


# The representation


def test_the_representation_on_the_command_line(tmp_path: Path, stopped_before, capsys):
    words = f"{PROBE} --agent ctrl-ucb-m --representation toy --steps 120 --evaluate-every 60"
    words += " --learning-starts 40 --feature-dim 6 --bonus-scale 1 --refresh-every 30"
    run = trained([*words.split(), *NARROW_FLAGS], OnlineRun, 77, tmp_path, stopped_before)
    assert evaluated(run, capsys, "--episodes", "1")["step"] == 120
    config = json.loads((run / "config.json").read_bytes())
    chosen = {"kind": "toy", "feature_dim": 6, "toy_rate": 0.1}
    assert config["settings"]["representation"] == chosen
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"toy_loss", "td_loss", "bonus"} < rows[0].keys()
    assert "nce_loss" not in rows[0]
    # What only another representation has is no setting beside it.
    arguments = [PROBE, "--representation", "toy", "--temperature", "0.2"]
    assert main(["train", *arguments]) == 2
    assert "temperature" in capsys.readouterr().err
    assert main(["train", PROBE, "--representation", "tyo"]) == 2
    said = capsys.readouterr().err
    assert "representation is 'tyo': choose one of contrastive, successor, gaussian," in said
    assert "latent, toy" in said


def test_the_representation_on_logged_data(tmp_path: Path, logged: Path, stopped_before):
    words = f"{logged} --agent ctrl-lcb --representation toy --steps 30 --evaluate-every 15"
    words += " --representation-updates 60 --behaviour-updates 20 --behaviour-sizes 8"
    words += " --bonus-kernel 16 0.5"
    run = trained([*words.split(), *NARROW_FLAGS], OfflineRun, 95, tmp_path, stopped_before)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [row["toy_loss"] for row in rows if row["kind"] == "representation"]
    assert losses[-1] < losses[0]


def test_the_representation_in_python(tmp_path: Path):
    settings = {"learning_starts": 40, "bonus_scale": 1.0, "feature_dim": 6, **NARROW}
    model = Model(PROBE, "ctrl-ucb-m", representation="toy", **settings).learn(80)
    pair = np.zeros((3, 1), np.float32), np.linspace(-1, 1, 3, dtype=np.float32)[:, None]
    assert model.phi(*pair).shape == (3, 6)
    assert (model.bonus(*pair) > 0).all()
    with pytest.raises(InputError, match="representation Toy has no density"):
        model.density_ratio(*pair, pair[0])
    model.save(tmp_path / "saved")
    again = Model.load(tmp_path / "saved")
    assert type(again.config.settings.representation).__name__ == "Toy"
    for name in ("phi", "bonus", "q_value"):
        np.testing.assert_array_equal(getattr(again, name)(*pair), getattr(model, name)(*pair))
