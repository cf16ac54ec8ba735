"""Whether a policy can act in an environment, and whether a copy of one is the same."""

import numpy as np

from phimu.action_range import Actions
from phimu.environments.given import ANOTHER, Given
from phimu.environments.task import Task
from phimu.errors import InputError
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun
from phimu.types import Batch, Spec

REPEATED = 100  # steps of the last episode that a copy must repeat


def fitting(found: Given, run: OnlineRun | OfflineRun, actions: Actions) -> Given:
    """What is given, if the policy of this run can act in it; InputError if not."""
    try:
        for task in found.tasks:
            _refuse(task, found.copied, run, actions)
    except InputError:
        found.close()
        raise
    return found


def _refuse(task: Task, copied: bool, run: OnlineRun | OfflineRun, actions: Actions) -> None:
    why = _another_space(task, run.learner.spec, actions)
    if isinstance(run, OnlineRun):
        if any(task.env.unwrapped is seat.task.env.unwrapped for seat in run.seats):
            raise InputError(
                f"That {task.name} is the one that the model learns in, whose episode this would "
                f"break off: give {ANOTHER}."
            )
        if copied and not why and not _nondeterministic(run.task):
            why = _another_course(task, run)
            why = why and f"a copy is not the same as the one that the model learns in: {why}"
    if why:
        raise InputError(f"{task.name} cannot be used ({why}): give {ANOTHER}, as env.")


def _another_space(task: Task, spec: Spec, actions: Actions) -> str:
    if task.spec[:2] != spec[:2]:
        return (
            f"its observations and actions have {task.spec.observation_dim} and "
            f"{task.spec.action_dim} numbers, not {spec.observation_dim} and {spec.action_dim}"
        )
    there = task.action_range
    if not there.fits(actions):
        return f"its actions lie in {there}, those of the policy in {actions}"
    return ""


def _nondeterministic(task: Task) -> bool:
    """Whether it says so; then no episode can be compared."""
    return task.env.spec is not None and task.env.spec.nondeterministic


def _another_course(copy: Task, run: OnlineRun) -> str:
    """In what a copy does not repeat the run's last episode from its seed and actions.

    What the run's own environment has become since it was made shows there: by hand, or by wrappers
    that learn from what passes through them. These also change the copy, by the second time.
    """
    last = run.last_episode(REPEATED)
    if last is None:
        return ""
    return _deviation(copy, *last) or _deviation(copy, *last)


def _deviation(task: Task, seed: int, rows: Batch) -> str:
    """From an episode of this seed and these rows."""
    if not np.array_equal(task.reset(seed), rows.observation[0]):
        return "it begins an episode elsewhere from the same seed"
    for step, action in enumerate(rows.action):
        observation, reward, *_ = task.step(action)
        if np.float32(reward) != rows.reward[step]:
            return f"in step {step + 1} of an episode it pays {reward:g}, not {rows.reward[step]:g}"
        if not np.array_equal(observation, rows.next_observation[step]):
            return f"it is elsewhere after step {step + 1} of an episode"
    return ""
