"""The wheel, installed with pip into an empty environment and used there as a newcomer would."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
# What would let the test session's own packages, settings or thread limits into the other one.
OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "XLA_FLAGS", "PJRT_NPROC", "OMP_NUM_THREADS")


def run(*command: str | Path, cwd: Path) -> tuple[str, float]:
    """What a command prints, and how much processor time it takes."""
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in OURS and not name.startswith("JAX_")
    }
    own["XDG_CACHE_HOME"] = str(cwd / "cache")  # nothing compiled beforehand
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=own, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr[-2_000:]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, used


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an environment that has the wheel and what it needs, and nothing else."""
    hatchling = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is missing")
    home = tmp_path_factory.mktemp("newcomer")
    (wheel,) = hatchling.WheelBuilder(str(ROOT)).build(directory=str(home / "dist"))
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    pip = [home / "venv" / "bin" / "python", "-m", "pip", "-q", "install"]
    lock = ["--require-hashes", "-r", str(ROOT / "requirements.lock")]
    # The versions of the lock, so that a release of somebody else's is not what fails here.
    got = subprocess.run([*pip, *lock], cwd=home, capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"no package index can be reached: {got.stderr[-300:]}")
    # With its dependencies, which are there: a wheel that asks for more than the lock has fails.
    subprocess.run([*pip, "--no-index", wheel], cwd=home, check=True)
    return home


def test_help_is_instant(empty: Path) -> None:
    phimu = empty / "venv" / "bin" / "phimu"
    run(phimu, "--help", cwd=empty)  # Python compiles what it imports
    said, seconds = min((run(phimu, "--help", cwd=empty) for _ in range(5)), key=lambda x: x[1])
    assert "phimu demo" in said
    assert seconds < 0.3


def test_it_is_the_installed_one(empty: Path) -> None:
    python = empty / "venv" / "bin" / "python"
    said, _ = run(python, "-c", "import phimu; print(phimu.__file__)", cwd=empty)
    assert Path(said.strip()).is_relative_to(empty / "venv")


def test_the_quick_demo(empty: Path) -> None:
    """Processor time, compilation included, for other work on the machine does not count in it."""
    said, seconds = run(empty / "venv" / "bin" / "phimu", "demo", "--quick", cwd=empty)
    assert seconds < 60
    (scores,) = (empty / "runs").rglob("scores.json")
    (picture,) = (empty / "runs").rglob("heatmap.png")
    assert str(picture.relative_to(empty)) in said
    assert picture.stat().st_size > 10_000
    assert json.loads(scores.read_text())["total_variation_free"] < 0.5
