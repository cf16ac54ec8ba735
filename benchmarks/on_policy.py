"""Our PPO and TRPO against those of Stable-Baselines3 and sb3-contrib, in turns.

`python benchmarks/on_policy.py` trains each on Pendulum-v1 and Hopper-v5 with the same sizes and
steps, a round per seed, and installs the others into a virtual environment in your cache directory,
some gigabytes, when it is first run; `--venv DIR` takes one that has them already.

What differs: theirs has one step size for policy and value, one gradient norm for both networks,
and standardises advantages per minibatch; their line search shrinks by 0.8, ours by 0.5.

`python benchmarks/on_policy.py JOB.json` is one of ours; it prints JSON.
"""

import json
import sys
import time
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, NamedTuple

import jax

import their_on_policy
from command import run_peers
from phimu.agents import preset
from phimu.environments.task import open_task
from phimu.environments.vector import open_tasks
from phimu.errors import InputError
from phimu.evaluation.episodes import evaluate
from phimu.settings import names, override
from phimu.speed.loop import run_child
from phimu.training.online import OnlineRun
from venvs import python_of

# In this order: Stable-Baselines3 would take any other torch.
REQUIREMENTS = (
    ("torch==2.13.0",),
    ("stable-baselines3", "sb3-contrib", "gymnasium[classic-control,mujoco]", "mujoco>=3.17,<4"),
)
VENV = "on-policy"
TASKS = ("Pendulum-v1", "Hopper-v5")
PEERS = {  # agent -> package, module, class
    "ppo": ("stable-baselines3", "stable_baselines3", "PPO"),
    "trpo": ("sb3-contrib", "sb3_contrib", "TRPO"),
}
# Of both sides, under our names.
SIZES: dict[str, Any] = {
    "envs": 8,
    "batch_size": 2_048,
    "epochs": 10,
    "minibatches": 32,
    "ratio_clip": 0.2,
    "gradient_clip": 0.5,
    "actor_learning_rate": 3e-4,
    "actor_epsilon": 1e-5,
    "critic_learning_rate": 3e-4,
    "critic_epochs": 10,
    "critic_minibatches": 32,
    "discount": 0.99,
    "gae_lambda": 0.95,
    "max_kl": 0.01,
    "damping": 0.1,
    "cg_iterations": 10,
}
OF_TRPO = {"critic_learning_rate": 1e-3}
EPISODES = 10  # of an evaluation
WARM = 2  # rounds that are not timed: they compile


class OnPolicySpeed(NamedTuple):
    """One agent on one task: returns over the seeds, and of several rounds the quickest."""

    name: str
    task: str
    evaluation: float  # mean return at the end, with the mean action
    evaluation_std: float  # over the seeds
    training: float  # mean return of the last episodes
    steps_per_second: float
    ours_over_it: float  # our steps a second over its


def on_policy_speeds(venv: Path, rounds: int, steps: int) -> list[OnPolicySpeed]:
    """Each agent on each task: ours, then theirs as installed in `venv`."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for seed in range(rounds):
        for task in TASKS:
            for agent in PEERS:
                job = job_of(agent, task, steps, seed)
                # To and fro, so that nobody always comes first on a machine that grows slower.
                for whose in ("ours", "theirs")[:: -1 if seed % 2 else 1]:
                    several = found.setdefault((task, agent, whose), [])
                    several.append(run_child(_command(whose, venv), job))
    order = [(task, agent, w) for task in TASKS for agent in PEERS for w in ("ours", "theirs")]
    best = {key: max(each["steps_per_second"] for each in found[key]) for key in order}
    return [_row(key, found[key], best[key], best[*key[:2], "ours"]) for key in order]


def job_of(agent: str, task: str, steps: int, seed: int) -> dict[str, Any]:
    package, module, name = PEERS[agent]
    sizes = SIZES | (OF_TRPO if agent == "trpo" else {})
    whole = max(WARM + 1, steps // sizes["batch_size"]) * sizes["batch_size"]
    about = {"agent": agent, "package": package, "module": module, "class": name}
    run = {"task": task, "seed": seed, "steps": whole, "episodes": EPISODES, "warm": WARM}
    return about | run | {"sizes": sizes}


def _command(whose: str, venv: Path) -> list[str]:
    if whose == "ours":
        return [sys.executable, __file__]
    return [str(python_of(venv)), "-I", their_on_policy.__file__]


def _row(
    key: tuple[str, str, str], several: list[dict[str, Any]], best: float, ours: float
) -> OnPolicySpeed:
    task, agent, whose = key
    name = f"phimu {agent}" if whose == "ours" else f"{PEERS[agent][0]} {several[0]['version']}"
    returns = [each["evaluation"] for each in several]
    training = mean(each["training"] for each in several)
    return OnPolicySpeed(name, task, mean(returns), pstdev(returns), training, best, ours / best)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    chosen = preset(job["agent"], "small")
    own = names(chosen)
    changes = {name: value for name, value in job["sizes"].items() if name in own}
    settings, schedule = override(chosen, changes)
    tasks = open_tasks(job["task"], job["sizes"]["envs"])
    run = OnlineRun(settings, tasks, schedule, job["seed"])

    def seconds_until(step: int) -> float:
        begin = time.perf_counter()
        while run.step < step:
            run.advance()
        jax.block_until_ready(run.metrics)
        return time.perf_counter() - begin

    warm = job["warm"] * schedule.batch_size
    seconds_until(warm)
    taken = seconds_until(job["steps"])
    summary = evaluate(run.policy(), open_task(job["task"]), job["episodes"], seed=1_000).summary()
    return {
        "evaluation": summary["return"],
        "training": run.recent_return().get("return", 0.0),
        "steps_per_second": (job["steps"] - warm) / taken,
    }


if __name__ == "__main__":
    if not (len(sys.argv) == 2 and sys.argv[1].endswith(".json")):
        asked = __doc__, "on_policy", VENV, REQUIREMENTS, on_policy_speeds
        sys.exit(run_peers(*asked, rounds=3, steps=100_000))
    try:
        print(json.dumps(measure(json.loads(Path(sys.argv[1]).read_text()))))
    except InputError as error:
        sys.exit(str(error))
