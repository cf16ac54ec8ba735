"""Several environments side by side, each a `Task` of its own.

Gymnasium's vector environments step all or none. A run that is resumed brings each one alone to
where its episode was, so it steps them one by one itself.
"""

from typing import Any

import gymnasium
from gymnasium.vector import SyncVectorEnv, VectorEnv

from phimu.environments.task import Task, open_task
from phimu.errors import InputError


def open_tasks(
    source: str | gymnasium.Env | VectorEnv, count: int = 1, **options: Any
) -> list[Task]:
    """`count` times a Gymnasium id, one environment, or those of a SyncVectorEnv."""
    if isinstance(source, VectorEnv):
        if not isinstance(source, SyncVectorEnv):
            raise InputError(
                f"env is a {type(source).__name__}: give a gymnasium.vector.SyncVectorEnv without "
                "wrappers around it (inside of it they are welcome), or an id and envs=N."
            )
        if count not in (1, source.num_envs):
            raise InputError(f"envs is {count}, but the vector environment has {source.num_envs}.")
        tasks = [open_task(env, **options) for env in source.envs]
    elif isinstance(source, str) or count == 1:
        tasks = [open_task(source, **options) for _ in range(count)]
    else:
        raise InputError(
            f"envs is {count}, but env is one environment: give its Gymnasium id, a "
            f"gymnasium.vector.SyncVectorEnv of {count}, or envs=1."
        )
    return tasks
