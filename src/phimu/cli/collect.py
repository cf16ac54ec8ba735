"""`phimu data collect`, `join`, `cut` and `replay`: datasets from policies, others, runs."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from phimu.cli.arguments import THREADS, command
from phimu.cli.train import task_options
from phimu.collection.collect import collect as run_policy
from phimu.collection.collect import first_step_at, policy_of_run, replay_of_run
from phimu.collection.dense_policy import SamplingPolicy, from_npz, random_actions
from phimu.collection.sets import Layout, check_out, env_spec, joined, origin_of, save_set
from phimu.data.logged import Transitions
from phimu.data.sets.cutting import Bound, box, cut_out
from phimu.data.sets.opening import open_set
from phimu.data.sets.scores import normalised_score
from phimu.data.sets.writing import Origin
from phimu.environments.task import Task, open_task
from phimu.errors import InputError, Stopped
from phimu.runs import checkpoint
from phimu.runs.config import load_config
from phimu.runs.directory import RunDirectory
from phimu.runs.files import fingerprint
from phimu.runs.log import read_metrics
from phimu.runs.progress import Progress
from phimu.runs.stopping import stop_requests
from phimu.session import say


@dataclass(frozen=True)
class Target:
    """Where a dataset goes."""

    out: Path
    """The .hdf5 file to write, with its checksum as FILE.sha256 beside it; with --layout minari a
    directory. What exists is never overwritten."""
    layout: Layout = "d4rl"
    """d4rl: one HDF5 file with the columns of D4RL's v2 datasets; minari: a directory that Minari
    loads."""
    gzip: bool = False
    """Compress: smaller, and slower to write and to read."""

    def save(self, rows: Transitions, origin: Origin) -> dict[str, Any]:
        """Write it; what is in it, for the line of JSON that is printed."""
        digest = save_set(self.out, rows, origin, self.layout, self.gzip)
        returns = np.bincount(rows.episode, rows.reward)
        mean = float(returns.mean())
        return {
            "out": str(self.out),
            "steps": len(rows.reward),
            "episodes": len(returns),
            "return": mean,
            "return_std": float(returns.std()),
            "score": None if origin.task is None else normalised_score(origin.task, mean),
            "sha256": digest,
        }


@command("phimu data collect", tyro.conf.OmitArgPrefixes)
def collect(
    task: Annotated[str, tyro.conf.Positional],
    policy: str,
    steps: int,
    target: Target,
    seed: int = 0,
    mode: bool = False,
    option: tuple[str, ...] = (),
    quiet: bool = False,
    threads: Annotated[int | None, tyro.conf.arg(help=THREADS)] = None,
) -> None:
    """Run a policy and write what it did as a dataset.

    Prints one line of JSON: steps, episodes, mean and standard deviation of their returns,
    D4RL's normalised score where the task has one, sha256, steps per second.

    docs/data-collection.md says how to make each kind of dataset that D4RL has: of a run that is
    stopped early (medium), of one trained to the end (expert), of both (`phimu data join`), of a
    replay buffer (`phimu data replay`), or with --policy random.

    Args:
        task: a Gymnasium id, such as Hopper-v4.
        policy: a run directory of phimu train, an .npz of dense layers (docs/data-collection.md
            has its names), or the word random.
        steps: how many transitions; the last episode is cut there, as by a time limit.
        seed: of episode starts and actions; the same seed gives the same file.
        mode: take the most likely action instead of a sampled one.
        option: constructor arguments of the task, as name=value; by default the run's own.
        quiet: show no progress.
    """
    del threads  # they were set before anything was imported
    check_out(target.out, target.layout)
    opened, actor, words = _actor(task, policy, mode, task_options(option))
    began = time.perf_counter()
    with Progress(steps, 0, quiet) as progress, stop_requests() as stop:
        progress.line(f"Collecting {target.out}: {words}")
        try:
            rows = run_policy(opened, actor, steps, seed, progress, stop)
        except Stopped as stopped:
            raise Stopped(stopped.number, "nothing was written.") from None
        speed = steps / (time.perf_counter() - began)
        facts = target.save(rows, origin_of(opened, target.out, words, seed))
    opened.close()
    print(json.dumps(facts | {"steps_per_second": round(speed, 1)}))


def _actor(
    task_id: str, policy: str, mode: bool, options: dict[str, Any]
) -> tuple[Task, SamplingPolicy, str]:
    """The task, who acts in it, and who that is in words."""
    path = Path(policy)
    if policy == "random":
        if mode:
            raise InputError("mode is for trained policies: random actions have none.")
        task = open_task(task_id, **options)
        return task, random_actions(task.spec), "uniformly random actions"
    if path.is_dir():
        config = load_config(path)
        saved = checkpoint.load_last(path, say)
        task = open_task(task_id, **(options or config.task_options))
        trained = open_task(config.task, **config.task_options)
        dense = policy_of_run(config, saved, trained.spec)
        trained.close()
        if trained.spec != task.spec:
            raise InputError(
                f"policy is {path}, which was trained on {config.task}, of other sizes than "
                f"{task_id}: collect in a task like its own."
            )
        words = f"{config.agent} on {config.task}, seed {config.seed}, step {saved.step}"
    else:
        task = open_task(task_id, **options)
        dense = from_npz(path, task.spec)
        words = f"{path.name} with sha256 {fingerprint(path)['sha256']}"
    samples = dense.samples and not mode
    how = "sampled actions" if samples else "mode actions"
    return task, dense.mode if mode else dense, f"{words}, {how}"


@command("phimu data join", tyro.conf.OmitArgPrefixes)
def join(sets: Annotated[tuple[str, ...], tyro.conf.Positional], target: Target) -> None:
    """Write several datasets of one task as one, one after the other.

    `phimu data join medium.hdf5 expert.hdf5 --out medium_expert.hdf5` is D4RL's medium-expert.
    Prints one line of JSON, as collect does.

    Args:
        sets: two or more, each as any other command takes it.
    """
    check_out(target.out, target.layout)
    rows, origin = joined([open_set(name) for name in sets], target.out)
    if target.layout == "minari" and origin.task is not None:  # its metadata have the environment
        origin = replace(origin, env_spec=env_spec(open_task(origin.task)))
    print(json.dumps(target.save(rows, origin)))


@command("phimu data cut", tyro.conf.OmitArgPrefixes)
def cut(
    source: Annotated[str, tyro.conf.Positional], within: tuple[str, ...], target: Target
) -> None:
    """Write a dataset without all rows that start or end in a region of the observations.

    What a careful policy does where the data says nothing can then be compared with what the whole
    dataset says. Prints one line of JSON, as collect does.

    Args:
        source: a dataset, as any other command takes it.
        within: the region, as COMPONENT:LOW:HIGH of the observation, all of which must hold:
            --within 0:8:12 1:13:17 is where the first lies between 8 and 12, the second between
            13 and 17.
    """
    check_out(target.out, target.layout)
    data = open_set(source)
    bounds = [_bound(text, data.spec.observation_dim) for text in within]
    found = cut_out(data, box(bounds), target.out.stem)
    words = f"{data.name} with sha256 {data.sha256} without {' '.join(within)}"
    origin = Origin(data.task, target.out.stem, words, data.action_range)
    if target.layout == "minari" and origin.task is not None:  # its metadata have the environment
        origin = replace(origin, env_spec=env_spec(open_task(origin.task)))
    facts = target.save(found.transitions, origin)
    print(json.dumps(facts | {"cut": len(data) - len(found)}))


def _bound(text: str, size: int) -> Bound:
    try:
        component, low, high = text.split(":")
        bound = int(component), float(low), float(high)
    except ValueError:
        raise InputError(f"within is {text!r}: write it as COMPONENT:LOW:HIGH.") from None
    if not (0 <= bound[0] < size and bound[1] < bound[2]):
        raise InputError(
            f"within is {text!r}: give a component from 0 to {size - 1}, and LOW below HIGH."
        )
    return bound


@command("phimu data replay", tyro.conf.OmitArgPrefixes)
def replay(
    run: Annotated[Path, tyro.conf.Positional],
    target: Target,
    until: int | None = None,
    until_return: float | None = None,
) -> None:
    """Write the replay buffer of a run's last checkpoint as a dataset (medium-replay).

    Prints one line of JSON, as collect does.

    Args:
        run: a run directory of phimu train.
        until: leave out what the run did after this step.
        until_return: leave out what it did after the first evaluation with this mean return: that
            of the medium policy, for medium-replay.
    """
    check_out(target.out, target.layout)
    config = load_config(run)
    if until_return is not None:
        if until is not None:
            raise InputError("until and until_return are two ends: give one of them.")
        until = first_step_at(read_metrics(RunDirectory(run).metrics), until_return)
    saved = checkpoint.load_last(run, say)
    task = open_task(config.task, **config.task_options)
    rows = replay_of_run(config, saved, task.spec, until)
    end = saved.step if until is None else min(until, saved.step)
    words = f"replay buffer of {config.agent} on {config.task}, seed {config.seed}, to step {end}"
    print(json.dumps(target.save(rows, origin_of(task, target.out, words))))
    task.close()
