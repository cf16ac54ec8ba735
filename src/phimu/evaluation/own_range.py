"""`phimu.evaluate`: episodes of any policy, which sees and does what the environment says."""

from typing import Any

import numpy as np

from phimu.environments.task import Task, open_task
from phimu.evaluation.episodes import Evaluation
from phimu.evaluation.episodes import evaluate as evaluate_inside
from phimu.inputs import rows_of


def evaluate(policy: Any, task: Any, episodes: int = 10, seed: int = 0) -> Evaluation:
    """Run `episodes` episodes of a Gymnasium id or environment; one seed, same starts.

    `policy` is a function from an observation to an action, both as the environment has them, or an
    object with `predict`, such as a model, which is then asked for its mode.
    """
    opened = task if isinstance(task, Task) else open_task(task)
    done = opened.env.action_space.shape or ()

    def act(observation: np.ndarray) -> np.ndarray:
        own = opened.observations.own(observation)
        if hasattr(policy, "predict"):
            action = policy.predict(own, deterministic=True)[0]
        else:
            action = policy(own)
        rows = rows_of("action", np.asarray(action)[None], done, kind=opened.action_range.kind)
        return opened.action_range.inward(rows)[0]

    return evaluate_inside(act, opened, episodes, seed)
