"""The border between agents and Gymnasium: flat float32 observations, actions in [-1, 1].

One of finitely many actions is a one-hot vector to agents and an integer to the environment.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from phimu.action_range import Choices
from phimu.environments.making import imported, make
from phimu.environments.spaces import Flattening, actions_of
from phimu.errors import EnvironmentFault, InputError, blame_environment
from phimu.types import Known, TaskSpec

_STEP = ("observation", "reward", "terminated", "truncated", "info")
_NO_SUITE = "gymnasium"  # of ids without a namespace
# Those that `gymnasium.make` puts around an environment.
_HARMLESS = (PassiveEnvChecker, OrderEnforcing, TimeLimit)
_LARGEST = float(np.finfo(np.float32).max)  # of a reward: the replay buffer is float32


class Task:
    """One environment as agents see it; every number that crosses the border is checked."""

    def __init__(self, env: gymnasium.Env, name: str, suite: str) -> None:
        self.env = env
        self.name = name
        self.suite = suite
        self._actions = env.action_space
        self.action_range = actions_of(env.action_space, name)
        self.observations = Flattening(env.observation_space, name)
        discrete = isinstance(self.action_range, Choices)
        sizes = TaskSpec(self.observations.size, self.action_range.size, discrete)
        self.spec = sizes.knowing(_known(env))
        self._steps = 0  # in this episode, for messages
        self.simulator_steps = 0  # in this episode; more than those where actions are repeated

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Begin an episode; [observation_dim] float32."""
        self._steps = self.simulator_steps = 0
        try:
            given = self.env.reset(seed=None if seed is None else int(seed))
        except Exception as error:
            blame_environment(error, f"{self.name} raised {_what(error)} in its reset.")
            raise
        observation, _ = self._unpacked("reset", given, ("observation", "info"))
        return self._flat(observation)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """(observation [observation_dim], reward, terminated, truncated); the action as agents
        see it: in [-1, 1], or one-hot."""
        self._steps += 1
        chosen = self.to_env_action(action)
        try:
            given = self.env.step(chosen)
        except Exception as error:
            where = f"in step {self._steps} of the episode"
            blame_environment(error, f"{self.name} raised {_what(error)} {where}.")
            raise
        observation, reward, terminated, truncated, info = self._unpacked("step", given, _STEP)
        self.simulator_steps = info.get("simulator_steps", self._steps)
        number = self._number(reward)
        return self._flat(observation), number, bool(terminated), bool(truncated)

    def to_env_action(self, action: np.ndarray) -> np.ndarray | int:
        """An action [action_dim] as the environment wants it: scaled, clipped, shaped; of several
        to choose from, the number of the largest."""
        flat = np.asarray(action, dtype=np.float64).reshape(-1)
        if flat.size != self.spec.action_dim:
            raise InputError(
                f"action has {flat.size} numbers, but {self.name} takes {self.spec.action_dim}."
            )
        if not np.isfinite(flat).all():
            raise InputError(
                f"action{_first_bad(flat)} {self._when()}; the policy must return finite actions."
            )
        scaled = self.action_range.outward(flat)
        if self.spec.discrete:
            return int(scaled)
        return scaled.astype(self._actions.dtype).reshape(self._actions.shape)

    def close(self) -> None:
        self.env.close()

    def _unpacked(self, call: str, given: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
        if not isinstance(given, tuple) or len(given) != len(names):
            got = f"{len(given)} things" if isinstance(given, tuple) else type(given).__name__
            raise EnvironmentFault(
                f"{call} of {self.name} returned {got}; it must return {', '.join(names)}."
            )
        return given

    def _number(self, reward: Any) -> float:
        """A reward, if it is one finite number."""
        if not isinstance(reward, float | int) and np.ndim(reward):
            raise EnvironmentFault(
                f"reward has shape {np.shape(reward)} {self._when()}; "
                f"the environment must return one number, such as float(reward[0])."
            )
        try:
            number = float(reward)
        except (TypeError, ValueError):
            number = math.nan
        if not abs(number) <= _LARGEST:
            raise EnvironmentFault(
                f"reward is {reward} {self._when()}; "
                f"the environment must return finite float32 rewards."
            )
        return number

    @property
    def note(self) -> str | None:
        """What is done to its observations, where a user may not expect it."""
        if self.observations.plain:
            return None
        kind = type(self.observations.space).__name__
        return (
            f"{self.name} has {kind} observations: they are flattened to {self.observations.size} "
            "numbers, as gymnasium.wrappers.FlattenObservation does."
        )

    @property
    def time_limit(self) -> int | None:
        """The most steps of an episode, as far as the environment declares it."""
        env = self.env
        while isinstance(env, gymnasium.Wrapper):  # one without an id has no spec to say so
            if isinstance(env, gymnasium.wrappers.TimeLimit):
                return env._max_episode_steps
            env = env.env
        return None if self.env.spec is None else self.env.spec.max_episode_steps

    def _flat(self, observation: Any) -> np.ndarray:
        """A float32 copy (environments may reuse their arrays), if it is finite and of the size."""
        if self.observations.plain:
            with np.errstate(over="ignore"):  # what overflows is reported below, by its index
                flat = np.array(observation, dtype=np.float32).reshape(-1)
        else:
            flat = self._flattened(observation)
        if flat.size != self.spec.observation_dim:
            raise EnvironmentFault(
                f"observation has {flat.size} numbers {self._when()}, but its observation_space "
                f"says {self.spec.observation_dim}; the two must agree."
            )
        if not np.isfinite(flat).all():
            raise EnvironmentFault(
                f"observation{_first_bad(flat)} {self._when()}; "
                f"the environment must return finite float32 observations."
            )
        return flat

    def _flattened(self, observation: Any) -> np.ndarray:
        try:
            return self.observations.flat(observation)
        except (KeyError, TypeError, ValueError) as error:
            raise EnvironmentFault(
                f"observation is not of its observation_space ({_what(error)}) {self._when()}; "
                "the two must agree."
            ) from error

    def _when(self) -> str:
        moment = f"after step {self._steps}" if self._steps else "at the reset"
        return f"{moment} of the episode in {self.name}"


def open_task(task: str | gymnasium.Env, **kwargs: Any) -> Task:
    """From an id (Pendulum-v1, my_module:My-v0) and constructor arguments, or an environment."""
    if isinstance(task, str):
        env = make(task, kwargs)
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
    suite = "custom" if env.spec is None else env.spec.namespace or _NO_SUITE
    try:
        return Task(env, name, suite)
    except InputError:
        if env is not task:  # we made it, so nobody else can close it
            env.close()
        raise


def suite_of(task: str) -> str:
    """Of a Gymnasium id; it is not opened, so what it is simulated with need not be installed."""
    spec = gymnasium.registry.get(imported(task))
    if spec is None:
        opened = open_task(task)  # Gymnasium knows more names than it lists, or says what is wrong
        opened.close()
        return opened.suite
    return spec.namespace or _NO_SUITE


def _known(env: gymnasium.Env) -> Known | None:
    """What an environment says of its own reward, unless a wrapper may have changed that."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env) not in _HARMLESS:
            return None
        env = env.env
    return getattr(env, "known", None)


def _what(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__} ({text.splitlines()[0]})" if text else type(error).__name__


def _first_bad(values: np.ndarray) -> str:
    index = int(np.flatnonzero(~np.isfinite(values))[0])
    return f"[{index}] is {values[index]}"
