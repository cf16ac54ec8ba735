"""Collection of datasets at about the speed of the simulator, and the policies that collect."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from phimu.collection.dense_policy import DenseChoice, DensePolicy, SamplingPolicy, from_acting
from phimu.data.logged import Transitions
from phimu.data.replay import Replay
from phimu.environments.task import Task
from phimu.errors import InputError, at_least
from phimu.runs import checkpoint
from phimu.runs.config import RunConfig
from phimu.runs.progress import Progress
from phimu.runs.stopping import Stop
from phimu.training.learner import Learner
from phimu.training.streams import COLLECT, check_seed, stream
from phimu.types import Spec


def collect(
    task: Task,
    policy: SamplingPolicy,
    steps: int,
    seed: int,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Transitions:
    """Exactly `steps` transitions: the last episode is cut. More begin with the same episodes."""
    at_least(1, steps=steps)
    check_seed(seed)
    replay, stop = Replay(task.spec, steps, 0), stop or Stop()
    episode, over, total = -1, True, 0.0  # the reward of all episodes
    for step in range(steps):
        stop.check()
        if over:
            episode += 1
            rng = stream(seed, COLLECT, episode)
            observation = task.reset(int(rng.integers(2**31)))
        action = policy(observation, rng)
        following, reward, terminated, truncated = task.step(action)
        replay.add(observation, action, reward, following, terminated, truncated)
        observation, over, total = following, terminated or truncated, total + reward
        if progress is not None:
            progress.update(step + 1, {"return": total / (episode + 1)} if over else {})
    return _transitions(replay, range(steps))


def policy_of_run(
    config: RunConfig, saved: checkpoint.Checkpoint, spec: Spec
) -> DensePolicy | DenseChoice:
    """The actor of a checkpoint; the replay buffer stays on the disk."""
    learner = Learner(config.settings, spec, config.schedule, config.seed)
    learner.restore(saved.arrays)
    collection = config.schedule.collection
    return from_acting(learner.acting, collection.uniform_mix if collection else 0.0)


def replay_of_run(
    config: RunConfig, saved: checkpoint.Checkpoint, spec: Spec, until: int | None = None
) -> Transitions:
    """What the replay buffer holds, oldest first, of the run's first `until` steps."""
    collection = config.schedule.collection
    if collection is None:
        raise InputError(f"{config.task} is a dataset: a run on logged data has no replay.")
    replay = Replay(spec, collection.buffer_size, collection.learning_starts)
    saved.restore_replay(replay)
    held = replay.spans()["rows"]
    wanted = held if until is None else range(held.start, min(held.stop, until))
    if not wanted:
        raise InputError(
            f"until is {until}, but the buffer holds the steps from {held.start:,} to "
            f"{held.stop:,}: give a larger one."
        )
    return _transitions(replay, wanted, collection.envs)


def first_step_at(rows: Iterable[Mapping[str, Any]], wanted: float) -> int:
    """The step of the first evaluation in a run's log whose mean return is at least `wanted`."""
    found = [(row["return"], row["step"]) for row in rows if row["kind"] == "evaluation"]
    for mean, step in found:
        if mean >= wanted:
            return int(step)
    best = f"the best is {max(found)[0]:,.5g}" if found else "there is none"
    raise InputError(
        f"until_return is {wanted:g}, but no evaluation of the run has that ({best}): train it "
        "longer, or give less."
    )


def _transitions(replay: Replay, span: range, envs: int = 1) -> Transitions:
    """A part of a buffer as a dataset, one environment after the other; open episodes are cut."""
    columns = replay.columns("rows", span)
    turns = [np.flatnonzero((np.array(span) - env) % envs == 0) for env in range(envs)]
    rows = {name: column[np.concatenate(turns)] for name, column in columns.items()}
    rows["action"] = np.clip(rows["action"], -1.0, 1.0)  # as the environment took them
    terminated = rows.pop("terminated") > 0
    truncated = (rows.pop("truncated") > 0) & ~terminated
    last = np.cumsum([len(turn) for turn in turns if len(turn)]) - 1
    truncated[last] = ~terminated[last]
    episode = np.append(0, np.cumsum((terminated | truncated)[:-1])).astype(np.int32)
    return Transitions(**rows, terminated=terminated, truncated=truncated, episode=episode)
