"""At tiny size: the block of commands in README.md, and every training of README.md and docs/."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from phimu.agents import AGENTS, preset, protocol
from phimu.cli import main
from phimu.settings import names, override

sys.path.insert(0, str(Path(__file__).parent))
import test_documented_commands

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
PHI = "--feature-dim 8 --feature-sizes 8 --negatives 4"
TINY = f"--actor-sizes 8 --critic-width 8 --batch-size 8 --evaluation-episodes 1 {PHI}"
ONLINE = f"{TINY} --learning-starts 50 --evaluate-every 200 --covariance-sample 20"
FIRST = "--representation-updates 10 --behaviour-updates 10 --behaviour-sizes 8"
SEARCHED = "--set critic_width=8 actor_sizes=8 learning_starts=50 evaluation_episodes=1"
# What makes a command quick, by how it begins: flags that are added to it, or stand in for its own.
SMALLER = {
    "train d4rl:": f"--steps 20 {TINY} {FIRST}",
    "train --help": "",
    "train": f"--steps 400 {ONLINE}",
    "resume": "--steps 500",
    "evaluate": "--episodes 2",
    "watch": "--once",
    "sweep": f"--steps 200 --trials 2 {SEARCHED}",
    "data collect": "--steps 500 --policy random",
}
# Minutes long; their own tests (test_cli_theory.py, speed/) run them in parts.
LONG = ("theory", "bench")


def commands() -> list[list[str]]:
    text = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"^```\n(pip install .*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for line in block.splitlines() if line.startswith("phimu ")]
    lines.sort(key=lambda line: line.startswith("phimu data show"))  # of a file that one writes
    return [shlex.split(line, comments=True)[1:] for line in lines]


def shrunk(words: list[str], run: str) -> list[str]:
    line = " ".join(words)
    smaller = next((flags for begin, flags in SMALLER.items() if line.startswith(begin)), "")
    added = shlex.split(smaller)
    for flag in [word for word in added if word.startswith("--") and word in words]:
        at = words.index(flag)
        words = words[:at] + words[at + 2 :]
    stand_in = {"RUN": run, "FILE": "hopper.hdf5"}
    found = [stand_in.get(word, word) for word in words]
    return [*(str(next(Path().glob(word))) if "*" in word else word for word in found), *added]


def test_the_block_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("mujoco", "h5py", "imageio_ffmpeg", "optuna"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    run = "runs/gymnasium/Pendulum-v1/ctrl-ucb-m/*/seed-0"
    told = commands()
    assert len(told) > 15
    for words in told:
        if words[0] in LONG:
            continue
        asked = shrunk(words, run)
        try:
            code = main(asked)
        except SystemExit as left:  # --help
            code = left.code or 0
        out = capsys.readouterr()
        assert code == 0, f"phimu {shlex.join(asked)}: {out.err[-500:]}"
    for made in ("pendulum.mp4", "curves.png", "phi.png", "hopper.hdf5"):
        assert Path(made).stat().st_size > 0


# What makes any agent small: settings by how their names end, and by name.
ENDINGS = {"sizes": "8", "width": "8", "dim": "8", "updates": "10"}
SETTINGS = {
    "batch_size": "32",
    "learning_starts": "50",
    "train_freq": "50",
    "evaluate_every": "100",
    "evaluation_episodes": "1",
    "negatives": "4",
    "covariance_sample": "20",
    "ensemble_size": "2",
    "epochs": "2",
    "plan_horizon": "2",
    "candidates": "20",
    "elites": "4",
    "iterations": "2",
    "policy_steps": "5",
    "chains": "8",
    "imagined_horizon": "3",
}
ELSEWHERE = {"carts:Cart-v0"}  # a module that the reader writes; the tutorial's test has it


def trainings() -> list[str]:
    known = [line for line in test_documented_commands.commands() if line.startswith("train ")]
    return [line for line in known if shlex.split(line)[1] not in {*ELSEWHERE, "--help"}]


def value(words: list[str], flag: str, default: str) -> str:
    return words[words.index(flag) + 1] if flag in words else default


def small(words: list[str]) -> list[str]:
    """The same training with small networks and few of everything, on data that is there."""
    words = ["d4rl:hopper.hdf5" if word.startswith("d4rl:") else word for word in words]
    words = ["Pendulum-v1" if word == "TASK" else word for word in words]
    agent, logged = value(words, "--agent", "ctrl-ucb-m"), words[1].startswith("d4rl:")
    first = next(iter(AGENTS[agent].presets(logged)))
    chosen: Any = preset(agent, value(words, "--preset", first), logged)
    if "--representation" in words:
        chosen = override(chosen, {"representation": value(words, "--representation", "")})
    asked = {}
    known = set(names(chosen))
    if any(phase.on_policy for phase in protocol.phases(chosen.settings)):
        known.remove("train_freq")  # it learns after every batch_size steps
    for name in sorted(known):
        ending = next((x for end, x in ENDINGS.items() if name.endswith(f"_{end}")), None)
        number = SETTINGS.get(name, ending)
        if number is not None and f"--{name.replace('_', '-')}" not in words:
            asked[f"--{name.replace('_', '-')}"] = number
    if "--steps" in words:
        at = words.index("--steps")
        words = words[:at] + words[at + 2 :]
    added = [word for pair in asked.items() for word in pair]
    return [*words, *added, "--steps", "20" if logged else "120", "--quiet"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small set in it."""
    pytest.importorskip("h5py")
    pytest.importorskip("mujoco")
    where = tmp_path_factory.mktemp("reader")
    collect = "data collect Hopper-v4 --policy random --steps 300 --out"
    assert main([*collect.split(), str(where / "hopper.hdf5")]) == 0
    return where


@pytest.mark.parametrize("line", trainings())
def test_a_training_of_the_docs(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    asked = small(shlex.split(line))
    assert main(asked) == 0, f"phimu {shlex.join(asked)}"
