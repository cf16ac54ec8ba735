"""What README.md tells a newcomer to install is what its commands need."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What a command of the block needs besides phimu itself: a pattern of it, and the extra.
NEEDS = {
    r"mbbl/|Hopper-v|HalfCheetah-v": "mujoco",
    r"dmc/": "dmc",
    r"\.hdf5": "offline",
    r"minari:": "minari",
    r"--video": "video",
    r"Pendulum-v1.*--video": "classic",
    r"--tensorboard": "tensorboard",
    r"--wandb": "wandb",
    r"--ray": "ray",
}


@pytest.fixture(scope="module")
def block() -> str:
    text = (ROOT / "README.md").read_text()
    (found,) = re.findall(r"^```\n(pip install .*?)^```", text, re.DOTALL | re.MULTILINE)
    return found


def test_the_block_installs_what_it_uses(block: str) -> None:
    (extras,) = re.findall(r"pip install '\.\[([\w,]+)\]'", block)
    commands = re.sub(r"#.*", "", block)
    needed = {extra for pattern, extra in NEEDS.items() if re.search(pattern, commands)}
    assert needed
    assert set(extras.split(",")) == needed


def test_every_extra_that_is_named_is_there(block: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first = block.splitlines()[0]
    named = re.findall(r"\[([\w,]+)\]", first)[0].split(",")
    named += first.partition("others:")[2].replace(" ", "").split(",")
    assert set(named) <= set(project["optional-dependencies"])
    assert {"dmc", "ray", "gpu", "all"} < set(named)


def test_every_command_of_the_block_is_there(block: str) -> None:
    from phimu.cli import COMMANDS

    used = set(re.findall(r"^phimu (\w+)", block, re.MULTILINE))
    assert len(used) > 8
    assert used <= set(COMMANDS)
