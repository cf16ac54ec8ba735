"""Environments from their ids: what goes wrong with `gymnasium.make` becomes one sentence each."""

import contextlib
import difflib
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import gymnasium
from gymnasium import error
from gymnasium.envs.registration import EnvSpec, load_env_creator

from phimu.errors import InputError

# Which of our extras brings a package, where Gymnasium's own advice would miss our pins.
_EXTRAS = {"mujoco": "mujoco", "dm_control": "dmc", "Box2D": "box2d"}
# How the entry points of environments with Gymnasium's MuJoCo models begin.
_WITH_GYMNASIUM_MODELS = ("gymnasium.envs.mujoco", "phimu.environments.mbbl.bodies")


def imported(task: str) -> str:
    """The id alone, once the module that may stand before it has registered it."""
    module, _, name = task.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
    except ImportError as missing:
        raise InputError(
            f"task {task!r} asks for the module {module!r}, which cannot be imported ({missing}); "
            f"install it, or run where Python finds it."
        ) from missing
    return name


def make(task: str, kwargs: dict[str, Any]) -> gymnasium.Env:
    """`gymnasium.make`, whose many exceptions become one sentence each."""
    name = imported(task)
    _check_options(task, name, kwargs)
    try:
        return quietly_made(name, **kwargs)
    except (error.DependencyNotInstalled, ImportError) as missing:
        raise InputError(_how_to_install(task, missing)) from missing
    except error.Error as unknown:
        if name in gymnasium.registry:
            raise
        raise InputError(_unknown(task, name)) from unknown
    except TypeError as refused:
        unexpected = re.search(r"unexpected keyword argument '(\w+)'", str(refused))
        if unexpected is None or unexpected[1] not in kwargs:
            raise
        raise InputError(_unaccepted(task, name, unexpected[1])) from refused


def quietly_made(task: str | EnvSpec, **kwargs: Any) -> gymnasium.Env:
    """`gymnasium.make`, without what MuJoCo's compiler says of Gymnasium's models."""
    spec = gymnasium.registry.get(task) if isinstance(task, str) else task
    theirs = spec is not None and str(spec.entry_point).startswith(_WITH_GYMNASIUM_MODELS)
    with quiet_model_compiler() if theirs else contextlib.nullcontext():
        return gymnasium.make(task, **kwargs)


@contextlib.contextmanager
def quiet_model_compiler() -> Iterator[None]:
    """Drop what MuJoCo's compiler says of the model files of Gymnasium and of the Control Suite.

    Nobody here can act on it, and MuJoCo would leave a MUJOCO_LOG.TXT in the working directory.
    Warnings of the simulation itself come later and are kept.
    """
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _unknown(task: str, name: str) -> str:
    close = difflib.get_close_matches(name, list(gymnasium.registry), n=3, cutoff=0.6)
    meant = f"it may mean {' or '.join(close)}, or " if close else ""
    return (
        f"task {task!r} is not a registered Gymnasium id; {meant}"
        f"if it is your own, give the module that registers it too, as in my_module:My-v0."
    )


def _how_to_install(task: str, missing: Exception) -> str:
    cause = missing if isinstance(missing, ImportError) else missing.__cause__
    package = (getattr(cause, "name", None) or "").split(".")[0]
    if not package:  # an entry point that only says where its environment went
        return f"task {task!r} cannot be opened: {missing}"
    advice = re.findall(r"`(pip install [^`]*)`", str(missing))
    if package in _EXTRAS:
        advice = [f'pip install "phimu[{_EXTRAS[package]}]"']
    command = " && ".join(advice) or f"pip install {package}"
    return f"task {task!r} needs the package {package}; to get it, run: {command}"


def _check_options(task: str, name: str, given: dict[str, Any]) -> None:
    """Refuse a text where the constructor has a number by default: it would fail in mid-episode."""
    if not given or name not in gymnasium.registry:
        return
    try:
        parameters = _parameters(name)
    except (ImportError, error.Error):
        return  # of which `gymnasium.make` will say more
    for option, value in given.items():
        default = parameters[option].default if option in parameters else None
        if isinstance(default, int | float) and not _numeric(value):
            raise InputError(
                f"option {option} is {value!r}, but {task} has a number there, by default "
                f"{default}: give one."
            )


def _numeric(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _parameters(name: str) -> dict[str, inspect.Parameter]:
    """What the constructor of a registered environment takes by name."""
    entry_point = gymnasium.spec(name).entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    found = inspect.signature(creator).parameters if creator else {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {each: parameter for each, parameter in found.items() if parameter.kind in named}


def _unaccepted(task: str, name: str, argument: str) -> str:
    accepted = _parameters(name)
    known = f"its own arguments are {', '.join(accepted)}" if accepted else "it has no arguments"
    return f"task {task!r} does not accept {argument!r}; {known}."
