"""The Python of README.md and of the tutorials runs, at tiny size, a page from top to bottom."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import phimu.model
from phimu.settings import names, override

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
SIZES = {"sizes": (16,), "width": 16, "dim": 16, "updates": 20}  # by how a setting's name ends
OTHERS = {"batch_size": 32, "learning_starts": 50, "negatives": 16, "covariance_sample": 64}
# Lines that need a package which may not be here.
OPTIONAL = {".frame()": "pandas", ".onnx": "onnx"}


def blocks(path: Path) -> list[str]:
    """With a hundred of everything that there are thousands of."""
    found = re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    return [_shortened(text) for text in found]


def _shortened(text: str) -> str:
    text = re.sub(r"updates=\d+_000", "updates=20", text)
    text = re.sub(r"\b\d+_000\b", "100", text)
    text = re.sub(r"(\w+)=\.\.\.", r'\1=arrays["\1"]', text)  # arrays that a reader has
    lines = text.splitlines()
    for word, package in OPTIONAL.items():
        if importlib.util.find_spec(package) is None:
            lines = [line for line in lines if word not in line]
    return "\n".join(lines)


def _arrays() -> dict[str, np.ndarray]:
    """Two episodes of Pendulum-v1 under random torques."""
    env = gymnasium.make("Pendulum-v1")
    env.action_space.seed(0)
    rows = []
    for seed in range(2):
        observation, truncated = env.reset(seed=seed)[0], False
        while not truncated:
            action = env.action_space.sample()
            following, reward, terminated, truncated, _ = env.step(action)
            rows.append((observation, action, reward, terminated, truncated, following))
            observation = following
    columns = "observation", "action", "reward", "terminated", "truncated", "next_observation"
    return {
        name: np.array(each) for name, each in zip(columns, zip(*rows, strict=True), strict=True)
    }


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models whose networks, batches and phases are tiny."""
    full = phimu.model.preset_of

    def shrunk(*asked: Any) -> Any:
        chosen = full(*asked)
        own = names(chosen)
        sized = {n: x for n in own for end, x in SIZES.items() if n.endswith(f"_{end}")}
        return override(chosen, sized | {n: x for n, x in OTHERS.items() if n in own})

    monkeypatch.setattr(phimu.model, "preset_of", shrunk)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "path",
    [PAGES[0], *(pytest.param(path, marks=pytest.mark.thorough) for path in PAGES[1:])],
    ids=lambda path: path.stem,
)
def test_python_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    arrays = _arrays()
    few = {f"{name}s": arrays[name][:5] for name in ("observation", "action", "next_observation")}
    there: dict[str, Any] = {"arrays": arrays, "observation": arrays["observation"][0], **few}
    found = blocks(path)
    assert found
    for text in found:
        exec(compile(text, path.name, "exec"), there)  # noqa: S102 (it is our own text)
