"""The table of tasks against the tasks themselves."""

import gymnasium
import pytest

from phimu.environments.catalogue import catalogue
from phimu.environments.task import open_task

ENTRIES = {entry.task: entry for entry in catalogue()}


def seconds(env):
    """Simulated time in a decision, asked of each kind of environment in its own way."""
    env = env.unwrapped
    if hasattr(env, "physics"):
        env.reset(seed=0)
        before = env.physics.data.time
        env.step(env.action_space.sample())
        return env.physics.data.time - before
    if hasattr(env, "simulator"):
        env.reset(seed=0)
        env.step(env.action_space.sample())
        return env.simulator.data.time
    return env.maze.time_interval if hasattr(env, "maze") else env.row.time_interval


def test_every_registered_task_is_listed():
    ours = {
        name
        for name, spec in gymnasium.registry.items()
        if spec.namespace in ("phimu", "mbbl", "dmc") and "probe" not in name
    }
    assert set(ENTRIES) == ours


@pytest.mark.parametrize("task", ENTRIES)
def test_sizes_are_those_of_the_task(task):
    entry = ENTRIES[task]
    if task.startswith("dmc/"):
        pytest.importorskip("dm_control", reason="the extra dmc is not installed")
    elif task.startswith("mbbl/"):
        pytest.importorskip("mujoco", reason="the extra mujoco is not installed")
    opened = open_task(task)
    assert opened.spec[:2] == (entry.observation_dim, entry.action_dim)
    horizon = getattr(opened.env.unwrapped, "horizon", opened.env.spec.max_episode_steps)
    assert horizon == entry.horizon
    assert seconds(opened.env) == pytest.approx(entry.seconds, rel=1e-6)


def test_the_paper_has_ten_and_six_scored_tasks():
    scored = [task for task, entry in ENTRIES.items() if "ctrl_ucb_m" in entry.scores]
    assert [sum(task.startswith(s) for task in scored) for s in ("mbbl/", "dmc/")] == [10, 6]
    assert ENTRIES["mbbl/HopperET-v0"].scores["ctrl_ucb_m"] == (2910.6, 323.1)
    assert ENTRIES["mbbl/SHumanoidET-v0"].scores["sac"] == (843.6, 313.1)
    assert ENTRIES["dmc/walker-run-sparse-v0"].scores["sac"] == (311.5, 361.4)
    assert set(ENTRIES["dmc/hopper-hop-v0"].scores) == {"random", "sac", "ctrl_ucb_m"}
