"""What a model can be asked: for an action, and more; each word means the same for every model.

With f = exp(<phi, mu> / temperature), or f = <phi, mu> for the linear ratio, the learned transition
is P(s'|s,a) = p(s') f / Z, and

    density_ratio = f / Z = P(s'|s,a) / p(s'),    log_z = log Z = log E_p f.

p, the base measure, is what s' was told apart from: next observations of the replay buffer mixed
with those of random trajectories, or those of the dataset. Expectations are over at most
`base_measure.POINTS` of them.

Observations are batches as the environment or data has them, and so are actions: in its own range,
as `predict` gives them; integers [B] where they are discrete. Observations of a Dict or a Tuple may
be given as a vector environment has them, or flat.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from phimu.action_range import Actions
from phimu.agents.protocol import BY_REPRESENTATION, answers
from phimu.errors import InputError
from phimu.inputs import rows_of
from phimu.representation.seam import density
from phimu.runs.config import RunConfig
from phimu.session import Run
from phimu.training.base_measure import BaseMeasure, base_measure
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun

# What a query is called where it is asked, if not as the agent calls it.
_ASKED = {"log_ratio": "density_ratio", "behaviour_log_density": "behaviour"}
PAIRS = 4_096  # at a time where each is compared with all points of the base measure, for memory


class Queries:
    """Of a model: it has a configuration and a run."""

    config: RunConfig
    run: Run
    _base: tuple[int, BaseMeasure] | None = None  # and the step that it is of
    _calls = 0  # of `predict`

    def predict(
        self,
        observation: np.ndarray,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """The action for one observation or a batch, in the range of the environment or data.

        Of discrete actions it is an integer, or integers [B].
        """
        del episode_start
        run, (shape, of_action) = self.run, self._shapes
        given = np.asarray(self._flat(observation), np.float32)
        batched = given.shape[1:] == shape
        if not batched and given.shape != shape:
            raise InputError(
                f"observation has shape {given.shape}: give {shape}, or a batch of them."
            )
        kind = run.task.env.action_space.dtype if isinstance(run, OnlineRun) else np.float32
        if batched and not len(given):
            return np.zeros((0, *of_action), kind), state
        self._calls += 1
        flat = given.reshape(-1, math.prod(shape))
        if deterministic:
            actions = run.learner.mode()(flat)
        else:
            actions = run.learner.act(flat, self._calls, mixed=False)
        if not np.isfinite(actions).all():
            raise InputError(
                "The action is not finite, for the observation or a weight of the policy is not."
            )
        own = self.action_range.outward(actions).astype(kind).reshape(-1, *of_action)
        return (own if batched else own[0]), state

    def phi(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The features phi(s, a) that the planner reads: [B, d]."""
        return self._of_pairs("phi", observation, action)

    def mu(self, next_observation: np.ndarray) -> np.ndarray:
        """mu(s'): [K, d]. Of the linear ratio it has a mean of one under p."""
        self._check("mu")
        return self._ask("mu", self._next(next_observation))

    @property
    def temperature(self) -> float:
        """Of the exponential ratio; the linear one has none."""
        self._check("temperature")
        return float(self._ask("temperature"))

    def density_ratio(
        self, observation: np.ndarray, action: np.ndarray, next_observation: np.ndarray
    ) -> np.ndarray:
        """P(s'|s,a) / p(s') of every pair [B] with every next observation [K]: [B, K].

        Its mean over s' of the base measure is one.
        """
        self._check("log_ratio")
        pairs, following = self._pairs(observation, action), self._next(next_observation)
        return np.exp(self._log_ratio(pairs, following) - self._log_z(pairs)[:, None])

    def log_z(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """log Z(s, a): [B]; 0 where the learned ratio has a mean of one without being divided."""
        self._check("log_ratio")
        return self._log_z(self._pairs(observation, action))

    def base_measure(self) -> BaseMeasure:
        """p(s') as weighted points: those that `log_z` and `density_ratio` integrate over.

        The same until the model learns on, also after it was saved and loaded.
        """
        self._check("log_ratio")
        if self._base is None or self._base[0] != self.run.step:
            self._base = self.run.step, base_measure(self.run)
        return self._base[1]

    def bonus(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """CTRL-UCB's exploration bonus: [B]."""
        return self._elliptical("bonus", observation, action)

    def penalty(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """CTRL-LCB's elliptical penalty: [B]."""
        return self._elliptical("penalty", observation, action)

    def q_value(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Q(s, a), the smaller of the twins: [B]."""
        return self._of_pairs("q_value", observation, action)

    def behaviour(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """log b(a|s), the log density of the cloned behaviour policy: [B].

        It is per unit of the action's own range, whose outermost thousandth counts as its border.
        """
        logs = self._of_pairs("behaviour_log_density", observation, action)
        return logs - np.float32(self.action_range.log_volume)

    def estimates(self) -> dict[str, float]:
        """The critic's value of the policy and the penalties, on the data: no episode is run."""
        if not isinstance(self.run, OfflineRun):
            raise InputError("estimates are for models that learn from data: use evaluate.")
        return self.run.estimates()

    @property
    def action_range(self) -> Actions:
        """What actions lie in: that of the environment, or of the data."""
        if isinstance(self.run, OnlineRun):
            return self.run.task.action_range
        if self.config.dataset is None:
            raise TypeError("a run on logged data has the facts of its dataset")
        return self.config.dataset.action_range

    @property
    def _shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of an observation and of an action."""
        if isinstance(self.run, OnlineRun):
            task = self.run.task
            return task.observations.shape, task.env.action_space.shape or ()
        spec = self.run.learner.spec
        return (spec.observation_dim,), (spec.action_dim,)

    def _pairs(self, observation: Any, action: Any) -> tuple[np.ndarray, np.ndarray]:
        """Both [B, .]; the actions in [-1, 1] or one-hot, as agents see them."""
        of_observation, of_action = self._shapes
        states = rows_of("observation", self._flat(observation), of_observation)
        ends = self.action_range
        actions = rows_of("action", action, of_action, len(states), ends.kind)
        return states, ends.inward(actions).astype(np.float32)

    def _next(self, next_observation: Any) -> np.ndarray:
        return rows_of("next_observation", self._flat(next_observation), self._shapes[0])

    def _flat(self, observation: Any) -> Any:
        """What an environment shows in another form than an array, as one."""
        if not isinstance(self.run, OnlineRun):
            return observation
        return self.run.task.observations.as_array(observation)

    def _of_pairs(self, name: str, observation: Any, action: Any) -> np.ndarray:
        self._check(name)
        return self._ask(name, *self._pairs(observation, action))

    def _elliptical(self, name: str, observation: Any, action: Any) -> np.ndarray:
        self._check(name)
        run = self.run
        if run.agent.confidence.bonus_scale == 0:
            raise InputError(
                f"bonus_scale is 0 in this model, so its {name} is 0 everywhere: make one with "
                "bonus_scale=1.0, for example."
            )
        if isinstance(run, OfflineRun) and run.step <= run.preparation:
            raise InputError(
                f"The {name} is measured from the data once the policy is learned: learn first."
            )
        return self._ask(name, *self._pairs(observation, action))

    def _log_ratio(self, pairs: tuple[np.ndarray, ...], following: np.ndarray) -> np.ndarray:
        return np.asarray(self._ask("log_ratio", *pairs, following), np.float64)

    def _log_z(self, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        base, found = self.base_measure(), [np.zeros(0)]
        for start in range(0, len(pairs[0]), PAIRS):
            some = tuple(each[start : start + PAIRS] for each in pairs)
            found.append(base.log_mean_exp(partial(self._log_ratio, some)))
        return np.concatenate(found)

    def _ask(self, name: str, *arrays: np.ndarray) -> np.ndarray:
        if arrays and not len(arrays[0]):  # nothing of one row's answer: of its other sizes
            one = [np.zeros((1, *each.shape[1:]), np.float32) for each in arrays[:2]]
            return self.run.learner.query(name, *one, *arrays[2:])[:0]
        return self.run.learner.query(name, *arrays)

    def _check(self, name: str) -> None:
        """InputError where the agent has no such thing."""
        agent = self.run.agent
        if not answers(agent, name):
            raise InputError(f"{self.config.agent} has no {_ASKED.get(name, name)}.")
        if name in BY_REPRESENTATION and not callable(getattr(agent, name, None)):
            density(agent.representation)
