"""PPO and TRPO of others: what is compared, without their libraries."""

import pytest

import on_policy
import their_on_policy
from phimu.agents import preset
from phimu.settings import names

SCRIPT = """echo '{"version": "2.7", "evaluation": -300.0, "training": -400.0,'\\
' "steps_per_second": 500.0}'"""


def test_each_agent_stands_beside_its_peer_on_each_task(monkeypatch, fake_venv):
    jobs, run_child = [], on_policy.run_child

    def child(command, job):
        if "-I" in command:
            return run_child(command, job)
        jobs.append(job)
        found = {"evaluation": -100.0 * job["seed"], "training": 1.0}
        return found | {"steps_per_second": 1_000.0 + job["seed"]}

    monkeypatch.setattr(on_policy, "run_child", child)
    rows = on_policy.on_policy_speeds(fake_venv(SCRIPT), rounds=2, steps=10_000)
    assert [row.name for row in rows] == [
        *("phimu ppo", "stable-baselines3 2.7", "phimu trpo", "sb3-contrib 2.7")
    ] * 2
    assert rows[0][1:] == ("Pendulum-v1", -50.0, 50.0, 1.0, 1_001.0, 1.0)
    assert rows[1][1:] == ("Pendulum-v1", -300.0, 0.0, -400.0, 500.0, 1_001 / 500)
    assert {job["steps"] for job in jobs} == {8_192}  # whole rounds


@pytest.mark.parametrize("agent", on_policy.PEERS)
def test_both_sides_have_the_same_sizes(agent):
    job = on_policy.job_of(agent, "Pendulum-v1", 10_000, 0)
    assert set(names(preset(agent, "small"))) & set(job["sizes"])
    theirs = their_on_policy.settings_of(job)
    assert (theirs["n_steps"], theirs["batch_size"]) == (256, 64)
    assert theirs["learning_rate"] == job["sizes"]["critic_learning_rate"]
    chosen = preset(agent, "small").settings
    assert (chosen.actor_sizes, chosen.critic.critic_sizes) == ((64, 64), (64, 64))  # MlpPolicy's


@pytest.mark.parametrize("agent", on_policy.PEERS)
def test_ours_is_trained_evaluated_and_timed(agent):
    sizes = {"envs": 2, "batch_size": 32, "minibatches": 2, "critic_minibatches": 2}
    job = {"agent": agent, "task": "phimu/probe-MatchObservation-v0", "seed": 0, "sizes": sizes}
    found = on_policy.measure(job | {"steps": 128, "warm": 1, "episodes": 3})
    assert found["steps_per_second"] > 0
    assert -1 < found["evaluation"] <= 0
    assert -3 < found["training"] <= 0
