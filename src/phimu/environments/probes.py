"""Environments with known answers: each isolates one thing an agent can get wrong.

If an agent fails several, the first in this file is the one to look at. Q is the value without any
entropy term.
"""

from typing import Any

import gymnasium
import numpy as np

from phimu.environments.checks import Reset, Step


class Probe(gymnasium.Env):
    """One number to observe and one to choose, both in [-1, 1]; the first observation is 0."""

    metadata = {"render_modes": []}  # noqa: RUF012
    action_space: gymnasium.Space

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.first = 0.0  # this episode's first observation, or the last of several
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.first, self.steps = self.draw(), 0
        return _observation(self.first), {}

    def draw(self) -> float:
        """The first observation of an episode."""
        return 0.0


class ConstantReward(Probe):
    """One step, reward 1. Answer: Q = 1. Isolates the value loss and its optimiser."""

    def step(self, action: np.ndarray) -> Step:
        return _observation(0.0), 1.0, True, False, {}


class ObservationReward(Probe):
    """One step, observation -1 or 1, reward = observation. Answer: Q(s, a) = s.

    Isolates the path of observations through replay and critic.
    """

    def draw(self) -> float:
        return float(2 * self.np_random.integers(2) - 1)

    def step(self, action: np.ndarray) -> Step:
        return _observation(self.first), self.first, True, False, {}


class DelayedReward(Probe):
    """Two steps, observation 0 then 1, reward 0 then 1. Answer: Q(0) = discount, Q(1) = 1.

    Isolates bootstrapping. The last observation is 0 again, so an agent that bootstraps past
    termination finds Q(1) = 1 / (1 - discount^2).
    """

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        last = self.steps == 2
        return _observation(0.0 if last else 1.0), float(last), last, False, {}


class ActionReward(Probe):
    """One step, reward -(a - 0.5)^2. Answer: the best action is 0.5, where Q = 0.

    Isolates the policy loss and its sign.
    """

    def step(self, action: np.ndarray) -> Step:
        return _observation(0.0), -((float(action[0]) - 0.5) ** 2), True, False, {}


class MatchObservation(Probe):
    """One step, observation uniform in [-1, 1], reward -(a - s / 2)^2. Answer: a = s / 2, Q = 0.

    Isolates a policy or critic that ignores, or mixes up across the batch, what it observes.
    """

    def draw(self) -> float:
        return float(np.float32(self.np_random.uniform(-1.0, 1.0)))  # the reward is of what is seen

    def step(self, action: np.ndarray) -> Step:
        reward = -((float(action[0]) - self.first / 2) ** 2)
        return _observation(self.first), reward, True, False, {}


class TimeLimit(Probe):
    """Ten steps of observation 0 and reward 1, then truncated. Answer: Q = 1 / (1 - discount).

    Isolates time limits taken for ends: an agent that does not bootstrap there finds about
    5.3 at discount 0.9 instead of 10. With `terminated` the first step ends it, and Q = 1.
    """

    def __init__(self, terminated: bool = False, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.terminated = terminated

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        truncated = not self.terminated and self.steps == 10
        return _observation(0.0), 1.0, self.terminated, truncated, {}


class ChooseObservation(Probe):
    """Ten steps that show -1, 0 or 1; the action is one of these integers and pays 1 if the same.

    Answer: a = s, Q(s, a) = [a = s] + discount / (1 - discount). Isolates one-hot actions, integers
    that do not begin at 0, and sums over actions in place of a sample.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gymnasium.spaces.Discrete(3, start=-1)

    def draw(self) -> float:
        return float(self.np_random.integers(-1, 2))

    def step(self, action: int) -> Step:
        self.steps += 1
        reward, self.first = float(action == self.first), self.draw()
        return _observation(self.first), reward, False, self.steps == 10, {}


def _observation(value: float) -> np.ndarray:
    return np.array([value], dtype=np.float32)
