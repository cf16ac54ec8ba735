"""phi as a map: its directions against NumPy's covariance, and the command on tiny runs."""

from pathlib import Path

import numpy as np
import pytest

from phimu import Ctrl, Sac
from phimu.cli import main
from phimu.reports.phi_map import phi_figure, phi_map, project

# Those of tests/test_queries.py.
TINY = {
    "actor_sizes": (8,),
    "critic_width": 8,
    "batch_size": 8,
    "feature_dim": 8,
    "feature_sizes": (8,),
    "negatives": 16,
    "learning_starts": 20,
    "buffer_size": 200,
}


def test_the_map_has_the_directions_of_largest_variance() -> None:
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6)) + 3.0
    points, shares = project(phi)
    variances = np.linalg.eigvalsh(np.cov(phi.T))[::-1]
    np.testing.assert_allclose(points.var(axis=0, ddof=1), variances[:2])
    np.testing.assert_allclose(shares, variances[:2] / variances.sum())
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_array_equal(project(phi).points, points)
    assert project(phi[:, :1]).points.shape == (500, 2)


def test_a_run_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Ctrl("Pendulum-v1", **TINY, bonus_scale=1.0).learn(40)
    model.save(tmp_path / "run")
    out = tmp_path / "phi.svg"
    assert main(["phi", str(tmp_path / "run"), "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    rows = model.run.replay.latest(40)
    found = phi_map(model.run, "ctrl-ucb-m", rows.observation, rows.action)
    assert found.doubt is not None
    without = tmp_path / "without.svg"
    phi_figure(without, found._replace(doubt=None), "no bonus")
    assert len(out.read_bytes()) > 1.5 * len(without.read_bytes())


def test_what_has_no_phi_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = {key: TINY[key] for key in ("actor_sizes", "critic_width", "learning_starts")}
    Sac("Pendulum-v1", **small).learn(30).save(tmp_path / "sac")
    assert main(["phi", str(tmp_path / "sac"), "--out", str(tmp_path / "phi.png")]) == 2
    assert "sac has no phi to draw: name a run of an agent" in capsys.readouterr().err
    assert main(["phi", str(tmp_path / "sac"), "--out", "phi.txt"]) == 2
    assert main(["phi", str(tmp_path / "none")]) == 2
    assert "is not a run directory" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_on_logged_data_is_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(61, 3)), axis=0).astype(np.float32)
    arrays = {
        "observation": walk[:-1],
        "action": rng.uniform(-1, 1, (60, 1)).astype(np.float32),
        "reward": rng.normal(size=60).astype(np.float32),
        "next_observation": walk[1:],
        "terminated": np.zeros(60, bool),
        "truncated": np.arange(60) % 20 == 19,
    }
    np.savez(tmp_path / "walk.npz", **arrays)
    run = tmp_path / "run"
    words = "--agent ctrl-lcb --preset small --steps 20 --quiet --batch-size 8 --actor-sizes 8"
    words += " --critic-width 8 --feature-dim 8 --feature-sizes 8 --negatives 16 --task none"
    words += " --behaviour-sizes 8 --behaviour-updates 20 --representation-updates 20"
    source = str(tmp_path / "walk.npz")
    assert main(["train", source, *words.split(), "--run-dir", str(run)]) == 0
    out = tmp_path / "phi.png"
    assert main(["phi", str(run), "--out", str(out), "--rows", "40"]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
