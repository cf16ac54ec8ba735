"""Environments as a user gives them: an id, a function that makes one, or one that is there.

What is said of one that is there is enough to have it again: its id and options, or else that it
must be given once more. A copy is made of the same classes with the same arguments.
"""

import inspect
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from phimu.environments.making import quietly_made
from phimu.environments.task import Task, open_task
from phimu.environments.vector import open_tasks
from phimu.errors import InputError

Source = str | gymnasium.Env | VectorEnv | Callable[[], gymnasium.Env]
ANOTHER = "an environment, or a function that makes one"

# (id, the options with which it makes the environment, what it is where these two do not make it)
Described = tuple[str, dict[str, Any], str | None]


class Given(NamedTuple):
    """An environment, or several side by side, and how to have another one."""

    tasks: list[Task]
    described: Described
    again: Callable[[], Task]
    made: bool = True  # by us, so that they are ours to close
    copied: bool = False  # from its parts, and so perhaps not well

    def once_more(self) -> "Given":
        """Another one of the same kind."""
        return self._replace(tasks=[self.again()], made=True, copied=not self.made)

    def close(self) -> None:
        """Those that we made."""
        for task in self.tasks if self.made else ():
            task.close()


def given(source: Source, count: int = 1, **options: Any) -> Given:
    """`count` of them; `options` go to the constructor of an id."""
    if isinstance(source, str):
        tasks = open_tasks(source, count, **options)
        return Given(tasks, (source, options, None), lambda: open_task(source, **options))
    if isinstance(source, gymnasium.Env | VectorEnv) or not callable(source):
        tasks = open_tasks(source, count, **options)
        return Given(tasks, _alike(tasks), lambda: _copied(tasks), made=False)
    if options:
        raise InputError(
            f"{', '.join(options)} can be given only with a task id; pass them on in the function "
            "that makes the environment instead."
        )
    tasks = [open_task(source()) for _ in range(count)]
    return Given(tasks, _alike(tasks), lambda: open_task(source()))


def _alike(tasks: list[Task]) -> Described:
    """What is true of all of them."""
    first, *others = (describe(task.env) for task in tasks)
    unlike = [other for other in others if other != first]
    if not unlike:
        return first
    name, options, what = first
    return name, {}, f"{what or f'{name} {options}'} and others beside it"


def describe(env: gymnasium.Env) -> Described:
    """What the configuration of a run says of it."""
    spec, around = env.spec, _wrappers(env)
    text = "(".join(type(each).__name__ for each in (*around, env.unwrapped)) + ")" * len(around)
    if spec is None:
        return type(env.unwrapped).__name__, {}, text
    registered = gymnasium.registry.get(spec.id)
    if registered is not None and _plain(env, spec, registered):
        options = _options(spec, registered)
        if options is not None:
            return spec.id, options, None
    return spec.id, {}, f"{text} of {spec.id}"


def _options(spec: Any, registered: Any) -> dict[str, Any] | None:
    """What `gymnasium.make` takes besides the id, if it can be written down."""
    usual = {"render_mode": spec.kwargs.get("render_mode"), **registered.kwargs}
    try:
        options = {k: v for k, v in spec.kwargs.items() if k not in usual or usual[k] != v}
        if json.loads(json.dumps(options)) != options:
            return None
    except (TypeError, ValueError):  # an array, or what else JSON has no word for
        return None
    if spec.max_episode_steps != registered.max_episode_steps:
        options["max_episode_steps"] = spec.max_episode_steps or -1  # -1 stands for no limit
    return options


def _plain(env: gymnasium.Env, spec: Any, registered: Any) -> bool:
    """Whether it has the wrappers that `gymnasium.make` gives it, and no other."""
    if spec.additional_wrappers != registered.additional_wrappers:
        return False
    of_make = (PassiveEnvChecker, OrderEnforcing, TimeLimit)
    found = [type(each) for each in _wrappers(env) if type(each) in of_make]
    return len(set(found)) == len(found)  # a second time limit is another environment


def _copied(tasks: list[Task]) -> Task:
    first = tasks[0].env
    if any(describe(task.env) != describe(first) for task in tasks):
        raise InputError(
            f"The environments differ, so that none stands for all: give {ANOTHER}, as env."
        )
    return open_task(copy_of(first))


def _wrappers(env: gymnasium.Env) -> list[gymnasium.Wrapper]:
    """From the outermost inwards."""
    found = []
    while isinstance(env, gymnasium.Wrapper):
        found.append(env)
        env = env.env
    return found


def copy_of(env: gymnasium.Env) -> gymnasium.Env:
    """The same classes with the same arguments, or InputError where these are not known."""
    spec = env.unwrapped.spec
    if spec is None:
        raise InputError(
            f"{type(env.unwrapped).__name__} has no Gymnasium id, so it cannot be made again: give "
            f"{ANOTHER}, as env."
        )
    wrappers = _wrappers(env)[::-1]
    arguments = [_arguments(each, spec.id) for each in wrappers]
    copy = quietly_made(spec)
    first = len(_wrappers(copy))  # an entry point may wrap what it makes
    try:
        for wrapper, named in list(zip(wrappers, arguments, strict=True))[first:]:
            kind: Any = type(wrapper)
            copy = kind(copy, **named)
    except TypeError as error:  # it recorded the arguments of a class that it inherits from
        copy.close()
        raise InputError(
            f"{kind.__name__} around {spec.id} cannot be made again ({error}): give {ANOTHER}, as "
            "env."
        ) from error
    return copy


def _arguments(wrapper: gymnasium.Wrapper, name: str) -> dict[str, Any]:
    """What it was constructed with besides the environment."""
    if isinstance(wrapper, RecordConstructorArgs):
        return {each: value for each, value in wrapper._saved_kwargs.items() if each != "env"}
    taken = list(inspect.signature(type(wrapper)).parameters.values())
    if len(taken) == 1 and taken[0].kind is not inspect.Parameter.VAR_KEYWORD:
        return {}
    raise InputError(
        f"{type(wrapper).__name__} around {name} does not record what it was constructed with "
        f"(gymnasium.utils.RecordConstructorArgs), so it cannot be made again: give {ANOTHER}, as "
        "env."
    )
