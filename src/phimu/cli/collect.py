"""`phimu data collect`, `join` and `replay`: offline sets from policies, from sets, from runs."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from phimu.cli.arguments import THREADS, call
from phimu.cli.train import task_options
from phimu.environments.task import Task, open_task
from phimu.errors import InputError, Stopped
from phimu.training.collect import collect as run_policy
from phimu.training.collect import load_checkpoint, policy_of_run, replay_of_run
from phimu.training.dense_policy import SamplingPolicy, from_npz, random_actions
from phimu.training.files import fingerprint
from phimu.training.progress import Progress
from phimu.training.session import load_config
from phimu.training.sets import Layout, check_out, origin_of, save_set
from phimu.training.stopping import stop_requests

RECIPE = """\

The kinds of set that D4RL has, from runs of your own (Hopper-v4 as the example):
  random         phimu data collect Hopper-v4 --policy random --steps 1000000 --out random.hdf5
  medium         phimu train Hopper-v4 --agent sac --steps 300000 --run-dir medium
                   (stop at about a third of an expert's return; the same command goes on)
                 phimu data collect Hopper-v4 --policy medium --steps 1000000 --out medium.hdf5
  medium-replay  phimu data replay medium --out medium_replay.hdf5
  expert         phimu train Hopper-v4 --agent sac --steps 3000000 --run-dir expert
                 phimu data collect Hopper-v4 --policy expert --steps 1000000 --out expert.hdf5
  medium-expert  phimu data join medium.hdf5 expert.hdf5 --out medium_expert.hdf5
"""


def collect(arguments: list[str]) -> None:
    call(_collect, arguments, "phimu data collect")


def replay(arguments: list[str]) -> None:
    call(_replay, arguments, "phimu data replay")


class _Actor(NamedTuple):
    task: Task
    policy: SamplingPolicy
    words: str


def _collect(
    task: Annotated[str, tyro.conf.Positional],
    policy: str,
    steps: int,
    out: Path,
    seed: int = 0,
    mode: bool = False,
    layout: Layout = "d4rl",
    gzip: bool = False,
    option: tuple[str, ...] = (),
    quiet: bool = False,
    threads: Annotated[int | None, tyro.conf.arg(help=THREADS)] = None,
) -> None:
    """Run a policy and write what it did as an offline set.

    Prints one line of JSON: steps, episodes, mean and standard deviation of the return of the
    episodes that ended by themselves, steps per second, sha256 of the file.

    Args:
        task: a Gymnasium id, such as Hopper-v4.
        policy: a run directory of phimu train, an .npz of dense layers, or the word random.
        steps: how many transitions; the last episode is cut there, as by a time limit.
        out: the file to write; with --layout minari a directory. FILE.sha256 goes beside a file.
        seed: of episode starts and actions; the same seed gives the same file.
        mode: take the most likely action instead of a sampled one.
        layout: d4rl is one HDF5 file with the columns of D4RL's v2 sets; minari is a directory
            that Minari loads.
        gzip: compress; smaller, and slower to write and read.
        option: constructor arguments of the task, as name=value; by default the run's own.
        quiet: show no progress.
    """
    del threads  # they were set before anything was imported
    check_out(out, layout)
    actor = _actor(task, policy, mode, task_options(option))
    began = time.perf_counter()
    with Progress(steps, 0, quiet) as progress, stop_requests() as stop:
        try:
            rows, returns = run_policy(actor.task, actor.policy, steps, seed, progress, stop)
        except Stopped as stopped:
            raise Stopped(stopped.number, "nothing was written.") from None
        seconds = time.perf_counter() - began
        origin = origin_of(actor.task, task, out, actor.words, seed)
        digest = save_set(out, rows, origin, layout, gzip)
    actor.task.close()
    facts = {"out": str(out), "steps": steps, "episodes": int(rows.episode[-1]) + 1}
    speed = {"steps_per_second": round(steps / seconds, 1)}
    print(json.dumps(facts | _scores(task, returns) | speed | {"sha256": digest}))


def _actor(task_id: str, policy: str, mode: bool, options: dict[str, Any]) -> _Actor:
    """The task, who acts in it, and who that is in words."""
    how = "mode actions" if mode else "sampled actions"
    path = Path(policy)
    if policy == "random":
        if mode:
            raise InputError("mode is for trained policies: random actions have none.")
        task = open_task(task_id, **options)
        return _Actor(task, random_actions(task.spec), "uniformly random actions")
    if path.is_dir():
        config = load_config(path)
        saved = load_checkpoint(path, _say)
        task = open_task(task_id, **(options or config.task_options))
        dense = policy_of_run(config, saved, task.spec)
        words = f"{config.agent} at step {saved.step} of seed {config.seed} on {config.task}"
    else:
        task = open_task(task_id, **options)
        dense = from_npz(path, task.spec)
        words = f"{path.name} (sha256 {fingerprint(path)['sha256']})"
        if dense.log_std is None:
            how = "mode actions, as the file has no log_std"
    return _Actor(task, dense.mode if mode else dense, f"{words}, {how}")


def _scores(task: str, returns: np.ndarray) -> dict[str, float | None]:
    if not len(returns):
        return {"return": None}
    return {"return": float(returns.mean()), "return_std": float(returns.std())}


def _replay(
    run: Annotated[Path, tyro.conf.Positional],
    out: Path,
    until: int | None = None,
    layout: Layout = "d4rl",
    gzip: bool = False,
) -> None:
    """Write the replay buffer of a run's last checkpoint as an offline set (medium-replay).

    Prints one line of JSON: steps, episodes, sha256 of the file.

    Args:
        run: a run directory of phimu train.
        out: the file to write; with --layout minari a directory. FILE.sha256 goes beside a file.
        until: leave out what the run did after this step.
        layout: d4rl is one HDF5 file with the columns of D4RL's v2 sets; minari is a directory
            that Minari loads.
        gzip: compress; smaller, and slower to write and read.
    """
    check_out(out, layout)
    config = load_config(run)
    saved = load_checkpoint(run, _say)
    task = open_task(config.task, **config.task_options)
    rows = replay_of_run(config, saved, task.spec, until)
    words = f"replay buffer of {config.agent}, seed {config.seed}, to step {until or saved.step}"
    digest = save_set(out, rows, origin_of(task, config.task, out, words), layout, gzip)
    task.close()
    facts = {"out": str(out), "steps": len(rows.reward), "episodes": int(rows.episode[-1]) + 1}
    print(json.dumps(facts | {"sha256": digest}))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
