"""PPO of Stable-Baselines3 or TRPO of sb3-contrib: `python -I their_on_policy.py JOB.json`.

It prints returns and speed as JSON. It runs in a virtual environment without phimu, so it imports
nothing of phimu.
"""

import importlib
import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def settings_of(job: dict[str, Any]) -> dict[str, Any]:
    """Our sizes under their names."""
    sizes = job["sizes"]
    shared = {
        "n_steps": sizes["batch_size"] // sizes["envs"],
        "batch_size": sizes["batch_size"] // sizes["minibatches"],
        "gamma": sizes["discount"],
        "gae_lambda": sizes["gae_lambda"],
        "learning_rate": sizes["critic_learning_rate"],
        "device": "cpu",
        "seed": job["seed"],
    }
    if job["agent"] == "ppo":
        return shared | {
            "n_epochs": sizes["epochs"],
            "clip_range": sizes["ratio_clip"],
            "max_grad_norm": sizes["gradient_clip"],
        }
    return shared | {
        "target_kl": sizes["max_kl"],
        "cg_damping": sizes["damping"],
        "cg_max_steps": sizes["cg_iterations"],
        "n_critic_updates": sizes["critic_epochs"],
    }


def measure(job: dict[str, Any]) -> dict[str, Any]:
    common = "stable_baselines3.common."
    make = importlib.import_module(common + "env_util").make_vec_env
    vectors = importlib.import_module(common + "vec_env")
    evaluate = importlib.import_module(common + "evaluation").evaluate_policy

    def environments(count: int, seed: int, training: bool) -> Any:
        made = make(job["task"], n_envs=count, seed=seed)
        return vectors.VecNormalize(made, training=training, norm_reward=False)

    kind = getattr(importlib.import_module(job["module"]), job["class"])
    training = environments(job["sizes"]["envs"], job["seed"], True)
    model = kind("MlpPolicy", training, **settings_of(job))
    ticks: list[float] = []  # one per step of all environments

    def tick(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
        ticks.append(time.perf_counter())
        return True

    model.learn(job["steps"], callback=tick)
    end = time.perf_counter()
    warm = job["warm"] * model.n_steps
    steps = (len(ticks) - warm) * job["sizes"]["envs"]
    others = environments(1, 1_000, False)
    vectors.sync_envs_normalization(model.env, others)
    returns, _ = evaluate(model, others, n_eval_episodes=job["episodes"], deterministic=True)
    last = [each["r"] for each in list(model.ep_info_buffer)[-10:]]
    return {
        "version": importlib.metadata.version(job["package"]),
        "evaluation": float(returns),
        "training": float(sum(last) / len(last)) if last else 0.0,
        # The last update of the rounds that are not timed is over before this tick.
        "steps_per_second": steps / (end - ticks[warm]),
    }


if __name__ == "__main__":
    file = Path(sys.argv[1])
    os.chdir(file.parent)  # where MuJoCo may leave its log
    print(json.dumps(measure(json.loads(file.read_text()))))
