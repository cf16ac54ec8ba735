"""How fast PETS plans, beside the matrix products of its plans alone.

`python benchmarks/planning.py` prints a row per planner, by processor time, which neighbours on the
machine hardly change. Run it on one core (`taskset -c 0`); it takes about a minute.
"""

import itertools
import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import phimu.environments  # noqa: F401  (registers the tasks)
from phimu.agents.pets import CEM, RS, Pets
from phimu.environments.task import open_task
from phimu.types import Spec

TASKS = ("mbbl/HalfCheetah-v0", "mbbl/CartPole-v0")


def planners() -> dict[str, Pets]:
    small, mbbl, original = (CEM[name].settings for name in ("small", "mbbl", "original"))
    changing = replace(small.planner, propagation="ts_1", particles=5)
    return {
        "mbbl, one iteration": replace(mbbl, planner=replace(mbbl.planner, iterations=1)),
        "original, one iteration": replace(
            original, planner=replace(original.planner, iterations=1)
        ),
        "small": small,
        "small, ts_1": replace(small, planner=changing),
        "small, random shooting": RS["small"].settings,
    }


def seconds(call: Any, *arguments: Any, repeats: int = 3) -> float:
    """Of the processor, per call; waited for at the end alone, for to wait costs time as well."""
    found = jax.block_until_ready(call(*arguments))
    began = time.process_time()
    for _ in range(repeats):
        found = call(*arguments)
    jax.block_until_ready(found)
    return (time.process_time() - began) / repeats


def products(agent: Pets, spec: Spec) -> tuple[float, float]:
    """(GFLOP, seconds) of the products of one step of all candidates."""
    planner, networks = agent.planner, agent.dynamics.ensemble_size
    each = 1 if planner.propagation == "expectation" else planner.particles // networks
    rows, outputs = planner.candidates * each, 2 * spec.observation_dim
    sizes = (spec.observation_dim + spec.action_dim, *agent.dynamics.model_sizes, outputs)
    work = took = 0.0
    for inputs, outputs in itertools.pairwise(sizes):
        x, weight = jnp.ones((networks, rows, inputs)), jnp.ones((networks, inputs, outputs))
        took += seconds(jax.jit(jnp.matmul), x, weight, repeats=30)
        work += 2e-9 * networks * rows * inputs * outputs
    return work, took


def main() -> None:
    for task, (name, agent) in itertools.product(TASKS, planners().items()):
        spec = open_task(task).spec
        policy = agent.policy(agent.init(spec, jax.random.PRNGKey(0)))
        plan = jax.jit(lambda policy, observation: policy.mode(observation))
        took = seconds(plan, policy, jnp.ones(spec.observation_dim))
        work, alone = products(agent, spec)
        search = agent.planner.iterations if agent.planner.optimiser == "cem" else 1
        steps = search * agent.planner.plan_horizon
        print(
            f"{task:22} {name:24} {1e3 * took:8.1f} ms {steps * work / took:6.1f} GFLOP/s, "
            f"products alone {work / alone:6.1f}: {steps * alone / took:.2f} of it",
            flush=True,
        )


if __name__ == "__main__":
    main()
