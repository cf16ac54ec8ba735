"""Every task goes on in the middle of an episode, from its seed and actions, to the bit."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import phimu.environments  # noqa: F401 (registers the ids)
from phimu.agents import preset
from phimu.environments.task import open_task
from phimu.runs import checkpoint
from phimu.settings import override
from phimu.training.online import OnlineRun

FEW = ("mbbl/HopperET-v0",)
OURS = [name for name in gymnasium.registry if name.split("/")[0] in ("phimu", "mbbl", "dmc")]
TINY = {"actor_sizes": (4,), "critic_width": 4, "buffer_size": 200, "learning_starts": 1_000}


def fresh(name: str) -> OnlineRun:
    """Random actions only: what is asked here is of the environment."""
    settings, schedule = override(preset("sac", "small"), TINY)
    return OnlineRun(settings, open_task(name), schedule, seed=3)


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.faults) for name in OURS)]
)
def test_restored_in_mid_episode_to_the_bit(name: str, tmp_path: Path) -> None:
    package = {"mbbl": "mujoco", "dmc": "dm_control"}.get(name.split("/")[0])
    if package:
        pytest.importorskip(package, reason=f"{package} is not installed")
    run = fresh(name)
    for _ in range(37):
        run.advance()
    run.save(tmp_path)
    for _ in range(40):
        run.advance()
    saved = checkpoint.load(tmp_path, pytest.fail)
    assert saved is not None
    again = fresh(name)
    again.restore(saved, pytest.fail)  # it would say that the episode did not repeat itself
    for _ in range(40):
        again.advance()
    for column, expected in zip(again.replay.rows, run.replay.rows, strict=True):
        np.testing.assert_array_equal(column, expected)
    assert again.returns == run.returns
    assert (again.episodes, again.simulator_steps) == (run.episodes, run.simulator_steps)
    for each in (run, again):
        each.task.close()
