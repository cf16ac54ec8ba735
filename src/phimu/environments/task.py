"""The border between agents and Gymnasium: flat float32 observations, actions in [-1, 1]."""

import contextlib
import difflib
import importlib
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Box

from phimu.errors import InputError
from phimu.types import Spec

# Which of our extras brings a package, where Gymnasium's own advice would miss our pins.
_EXTRAS = {"mujoco": "mujoco", "dm_control": "dmc"}
# How the entry points of environments with Gymnasium's MuJoCo models begin.
_WITH_GYMNASIUM_MODELS = ("gymnasium.envs.mujoco", "phimu.environments.mbbl.bodies")

_LARGEST = float(np.finfo(np.float32).max)  # of a reward: the replay buffer is float32


class Task:
    """One environment as agents see it; every number that crosses the border is checked."""

    def __init__(self, env: gymnasium.Env, name: str, suite: str) -> None:
        self.env = env
        self.name = name
        self.suite = suite
        self._actions = _action_space(env, name)
        observations = _observation_space(env, name)
        self.spec = Spec(math.prod(observations.shape), math.prod(self._actions.shape))
        self.action_low = self._actions.low.reshape(-1).astype(np.float64)  # [action_dim]
        self.action_high = self._actions.high.reshape(-1).astype(np.float64)
        self._middle = self.action_low / 2 + self.action_high / 2
        self._half_width = self.action_high / 2 - self.action_low / 2
        self._steps = 0  # in this episode, for messages
        self.simulator_steps = 0  # in this episode; more than those where actions are repeated

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Begin an episode; [observation_dim] float32."""
        observation, _ = self.env.reset(seed=None if seed is None else int(seed))
        self._steps = self.simulator_steps = 0
        return self._flat(observation)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """(observation [observation_dim], reward, terminated, truncated); the action in [-1, 1]."""
        self._steps += 1
        observation, reward, terminated, truncated, info = self.env.step(self.to_env_action(action))
        self.simulator_steps = info.get("simulator_steps", self._steps)
        reward = float(reward)
        if not abs(reward) <= _LARGEST:
            raise InputError(
                f"reward is {reward} {self._when()}; "
                f"the environment must return finite float32 rewards."
            )
        return self._flat(observation), reward, bool(terminated), bool(truncated)

    def to_env_action(self, action: np.ndarray) -> np.ndarray:
        """An action in [-1, 1]^action_dim as the environment wants it: scaled, clipped, shaped."""
        flat = np.asarray(action, dtype=np.float64).reshape(-1)
        if flat.size != self.spec.action_dim:
            raise InputError(
                f"action has {flat.size} numbers, but {self.name} takes {self.spec.action_dim}."
            )
        if not np.isfinite(flat).all():
            raise InputError(
                f"action{_first_bad(flat)} {self._when()}; the policy must return finite actions."
            )
        scaled = self._middle + self._half_width * flat
        # Two ufuncs take half the time of np.clip.
        scaled = np.minimum(np.maximum(scaled, self.action_low), self.action_high)
        return scaled.astype(self._actions.dtype).reshape(self._actions.shape)

    def close(self) -> None:
        self.env.close()

    def _flat(self, observation: Any) -> np.ndarray:
        """A float32 copy (environments may reuse their arrays), if it is finite and of the size."""
        with np.errstate(over="ignore"):  # what overflows is reported below, by its index
            flat = np.array(observation, dtype=np.float32).reshape(-1)
        if flat.size != self.spec.observation_dim:
            raise InputError(
                f"observation has {flat.size} numbers {self._when()}, but its observation_space "
                f"says {self.spec.observation_dim}; the two must agree."
            )
        if not np.isfinite(flat).all():
            raise InputError(
                f"observation{_first_bad(flat)} {self._when()}; "
                f"the environment must return finite float32 observations."
            )
        return flat

    def _when(self) -> str:
        moment = f"after step {self._steps}" if self._steps else "at the reset"
        return f"{moment} of the episode in {self.name}"


def open_task(task: str | gymnasium.Env, **kwargs: Any) -> Task:
    """From an id (Pendulum-v1, my_module:My-v0) and constructor arguments, or an environment."""
    if isinstance(task, str):
        env = _make(task, kwargs)
    elif not isinstance(task, gymnasium.Env):
        raise InputError(
            f"task must be a Gymnasium id or a gymnasium.Env, not a {type(task).__qualname__}."
        )
    elif kwargs:
        raise InputError(
            f"{', '.join(kwargs)} can be given only with a task id; "
            f"pass them to your environment's constructor instead."
        )
    else:
        env = task
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    suite = "custom" if env.spec is None else env.spec.namespace or "gymnasium"
    try:
        return Task(env, name, suite)
    except InputError:
        if env is not task:  # we made it, so nobody else can close it
            env.close()
        raise


def _make(task: str, kwargs: dict[str, Any]) -> gymnasium.Env:
    """`gymnasium.make`, whose many exceptions become one sentence each."""
    module, _, name = task.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
    except ImportError as missing:
        raise InputError(
            f"task {task!r} asks for the module {module!r}, which cannot be imported ({missing}); "
            f"install it, or run where Python finds it."
        ) from missing
    spec = gymnasium.registry.get(name)
    theirs = spec is not None and str(spec.entry_point).startswith(_WITH_GYMNASIUM_MODELS)
    try:
        with quiet_model_compiler() if theirs else contextlib.nullcontext():
            return gymnasium.make(name, **kwargs)
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


def _unaccepted(task: str, name: str, argument: str) -> str:
    entry_point = gymnasium.spec(name).entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    accepted = [
        parameter.name
        for parameter in (inspect.signature(creator).parameters.values() if creator else ())
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    known = f"its own arguments are {', '.join(accepted)}" if accepted else "it has no arguments"
    return f"task {task!r} does not accept {argument!r}; {known}."


def _action_space(env: gymnasium.Env, name: str) -> Box:
    space = env.action_space
    needs = "phimu needs a bounded Box action space of floats"
    if not isinstance(space, Box):
        raise InputError(f"{needs}, but {name} has {space}; choose a task with continuous actions.")
    if not np.issubdtype(space.dtype, np.floating) or not space.shape or 0 in space.shape:
        raise InputError(f"{needs}, but {name} has {space}; wrap it to take a vector of floats.")
    if not space.is_bounded("both"):
        raise InputError(
            f"{needs}, but {name} has {space}; bound it with gymnasium.wrappers.RescaleAction or "
            f"give its action_space finite low and high."
        )
    return space


def _observation_space(env: gymnasium.Env, name: str) -> Box:
    space = env.observation_space
    if not isinstance(space, Box):
        raise InputError(
            f"phimu needs a Box observation space, but {name} has {space}; "
            f"wrap it in gymnasium.wrappers.FlattenObservation."
        )
    if 0 in space.shape:
        raise InputError(
            f"phimu needs a Box observation space with something to see, but {name} has {space}."
        )
    return space


def _first_bad(values: np.ndarray) -> str:
    index = int(np.flatnonzero(~np.isfinite(values))[0])
    return f"[{index}] is {values[index]}"
