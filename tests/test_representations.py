"""The representations that `--representation` takes, from the command line and in Python."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from phimu import Model
from phimu.cli import main
from phimu.errors import InputError
from phimu.runs import checkpoint
from phimu.training.online import OnlineRun

PROBE = "phimu/probe-MatchObservation-v0"
NARROW = {
    "feature_dim": 6,
    "feature_sizes": (8,),
    "reward_sizes": (8,),
    "actor_sizes": (8,),
    "critic_width": 8,
    "batch_size": 16,
    "learning_starts": 40,
}
LOSSES = {
    "successor": "successor_loss",
    "gaussian": "nce_loss",
    "spectral": "spectral_loss",
    "score": "score_loss",
}
AGENTS = {
    "successor": "deep-sf",
    "gaussian": "spede",
    "spectral": "speder",
    "score": "diff-sr",
    "latent": "lv-rep",
}
NO_DENSITY = {
    "successor": "SuccessorFeatures",
    "score": "ScoreMatching",
    "latent": "LatentVariable",
}


def flags(settings):
    for name, value in settings.items():
        yield "--" + name.replace("_", "-")
        yield from map(str, value if isinstance(value, tuple) else (value,))


def arrays(run: Path) -> dict[str, bytes]:
    saved = checkpoint.load(run / "checkpoint", pytest.fail)
    assert saved is not None
    return {name: array.tobytes() for name, array in saved.arrays.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOSSES)
def test_ctrl_with_another_phi_on_the_command_line(
    name: str, tmp_path: Path, stopped_before, capsys
):
    """Trained, stopped, resumed to the bit, evaluated."""
    words = f"{PROBE} --agent ctrl-ucb-m --representation {name} --steps 80 --evaluate-every 40"
    words += " --evaluation-episodes 1 --checkpoint-every 20 --log-every 20 --quiet"
    words = ["train", *words.split(), *flags(NARROW), "--run-dir"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*words, str(whole)]) == 0
    with stopped_before(OnlineRun, 67):
        assert main([*words, str(broken)]) == 128 + signal.SIGTERM
    assert main(["resume", str(broken), "--quiet"]) == 0
    assert arrays(broken) == arrays(whole)
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert {LOSSES[name], "reward_loss", "td_loss"} < rows[-2].keys() | rows[-1].keys()
    assert main(["evaluate", str(broken), "--episodes", "1"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["step"] == 80


@pytest.mark.parametrize("name", LOSSES)
def test_its_agent_in_python(name: str, tmp_path: Path):
    """Asked, saved, loaded, and learning on as if it had not been."""
    model = Model(PROBE, AGENTS[name], **NARROW).learn(60)
    pair = np.zeros((3, 1), np.float32), np.linspace(-1, 1, 3, dtype=np.float32)[:, None]
    assert model.phi(*pair).shape == (3, 6)
    following = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    if name in NO_DENSITY:
        asked = (
            lambda: model.density_ratio(*pair, following),
            lambda: model.log_z(*pair),
            lambda: model.mu(following),
            lambda: model.temperature,
            model.base_measure,
        )
        for ask in asked:
            with pytest.raises(InputError, match=f"{NO_DENSITY[name]} has no density"):
                ask()
    else:
        base = model.base_measure()
        ratios = model.density_ratio(*pair, base.points)
        np.testing.assert_allclose(ratios @ base.weights, 1.0, rtol=1e-5)
        assert model.mu(following).shape == (5, 6)
        with pytest.raises(InputError, match="has no temperature"):
            _ = model.temperature
    model.save(tmp_path / "saved")
    again = Model.load(tmp_path / "saved")
    assert again.config == model.config
    for each in (model, again):
        each.learn(20)
    for query in ("phi", "q_value"):
        np.testing.assert_array_equal(getattr(again, query)(*pair), getattr(model, query)(*pair))
