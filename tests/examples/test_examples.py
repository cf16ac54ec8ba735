"""Every script of examples/ runs, at a size that proves only that; and the notebook does."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import phimu

ROOT = Path(__file__).parents[2] / "examples"
TINY = {
    "actor_sizes": (8,),
    "critic_width": 8,
    "batch_size": 8,
    "feature_dim": 8,
    "feature_sizes": (8,),
    "negatives": 16,
}
ONLINE = TINY | {"learning_starts": 20, "buffer_size": 200}
LOGGED = TINY | {"behaviour_sizes": (8,), "behaviour_updates": 20, "representation_updates": 20}
# As the same settings on a command line.
FLAGS = [
    *("--actor-sizes", "8", "--critic-width", "8", "--batch-size", "8", "--feature-dim", "8"),
    *("--feature-sizes", "8", "--negatives", "16", "--learning-starts", "20"),
    *("--buffer-size", "200", "--evaluation-episodes", "1", "--log-every", "10"),
]
SCRIPTS = {
    "train_and_watch",
    "own_environment",
    "logged_data",
    "features_only",
    "sweep_on_ray",
    "theorem",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_script_is_tested_and_short() -> None:
    assert {path.stem for path in ROOT.glob("*.py")} == SCRIPTS
    for path in ROOT.glob("*.py"):
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        assert 20 <= len(lines) <= 40, path.name
        assert f"python examples/{path.name}" in path.read_text()


def test_train_and_watch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script("train_and_watch").main(60, tmp_path / "run", 0.2, *FLAGS)
    assert "finished  step 60/60" in capfd.readouterr().out


def test_own_environment() -> None:
    assert script("own_environment").main(40, **ONLINE).keys() == {"before", "after"}


def test_logged_data() -> None:
    assert script("logged_data").main(20, rows=200, **LOGGED)["return"] < 0


def test_features_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script("features_only").main(20, rows=500, out=tmp_path / "features.png")
    assert (tmp_path / "features.png").read_bytes().startswith(b"\x89PNG")
    assert "the density is largest at" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna", reason="the extra sweep is not installed")
    if importlib.util.find_spec("ray") is not None:
        pytest.skip("it would look for a Ray cluster")
    fixed = ["actor_sizes=8", "critic_width=8", "learning_starts=20", "evaluation_episodes=1"]
    assert script("sweep_on_ray").main(40, 1, tmp_path / "sweeps", *fixed) == 0
    said = capsys.readouterr().out
    assert "Ray is not installed" in said
    assert "best      phimu train Pendulum-v1 --agent sac" in said


def test_the_theorem() -> None:
    assert script("theorem").main(3) < 1e-12


@pytest.mark.slow
def test_the_notebook_of_the_maze(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is committed it has no outputs; executed, it draws three pictures."""
    nbformat = pytest.importorskip("nbformat", reason="the notebook's tools are not installed")
    nbclient = pytest.importorskip("nbclient", reason="the notebook's tools are not installed")
    pytest.importorskip("ipykernel", reason="the notebook's tools are not installed")
    notebook = nbformat.read(ROOT / "maze.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    monkeypatch.setenv("PHIMU_EXAMPLE_STEPS", "60")
    monkeypatch.setenv("PHIMU_EXAMPLE_TINY", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(next(iter(phimu.__path__))).parent))
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    pictures = [
        output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 3
