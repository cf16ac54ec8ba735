"""The online loop: act, store, learn. One object holds everything a checkpoint has to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from phimu.agents.ctrl_ucb import CtrlUcb
from phimu.agents.presets import Agent, Schedule
from phimu.data.replay import Replay
from phimu.environments.task import Task
from phimu.errors import InputError
from phimu.runs import checkpoint
from phimu.training.devices import check_sizes
from phimu.training.learner import FINITE, Data, Learner, act, update
from phimu.training.memory import keep_freed_memory
from phimu.training.streams import BATCH, REFRESH, RESET, WARM_UP, stream
from phimu.types import Act, Metrics

__all__ = ["FINITE", "OnlineRun", "act", "update"]

MOST = 32  # updates in a compiled call: their batches are in memory at once


class OnlineRun:
    """An agent learning in a task: `advance` is one step of the environment."""

    def __init__(self, agent: Agent, task: Task, schedule: Schedule, seed: int, devices: int = 1):
        if not 0 <= seed < 2**31:
            raise InputError(f"seed is {seed}: give a number from 0 to 2147483647.")
        sizes = {"batch_size": schedule.batch_size}
        if isinstance(agent, CtrlUcb):
            sizes["negatives"] = agent.noise.negatives
        check_sizes(devices, sizes)
        keep_freed_memory()  # before the first use of JAX, whose threads would get arenas
        self.agent, self.task, self.schedule, self.seed = agent, task, schedule, seed
        self.learner = Learner(agent, task.spec, seed, devices)
        self.replay = Replay(task.spec, schedule.buffer_size, schedule.learning_starts)
        self.step = self.updates = self.episodes = 0
        self._simulated = 0  # simulator steps of all episodes but the open one
        self.returns: list[float] = []  # of the last episodes, for the progress line
        self._saved: tuple[Path, checkpoint.Saved] | None = None
        self._observation = np.zeros(task.spec.observation_dim, np.float32)
        self._actions: list[np.ndarray] = []  # of the open episode
        self._return = 0.0
        self._prepared: dict[int, Data] = {}  # of the next update, by its number
        self._begin_episode()

    def advance(self) -> None:
        action = self._action()
        next_observation, reward, terminated, truncated = self.task.step(action)
        self.replay.add(self._observation, action, reward, next_observation, terminated)
        self._observation = next_observation
        self._actions.append(action)
        self._return += reward
        self.step += 1
        if self.step >= self.schedule.learning_starts and self.step % self.schedule.train_freq == 0:
            self._learn(self.schedule.gradient_steps)
        if terminated or truncated:
            self.returns = [*self.returns[-9:], self._return]
            self.episodes += 1
            self._simulated += self.task.simulator_steps
            self._begin_episode()

    @property
    def state(self) -> Any:
        """Of the agent."""
        return self.learner.state

    @state.setter
    def state(self, state: Any) -> None:
        self.learner.state = state

    @property
    def metrics(self) -> Metrics:
        """Of the last update."""
        return self.learner.metrics

    @property
    def simulator_steps(self) -> int:
        """`step` counts decisions; where actions are repeated, the simulator has gone further."""
        return self._simulated + self.task.simulator_steps

    def policy(self) -> Act:
        """The mode action of the agent as it is now."""
        self.check()
        acting = self.state.acting
        return lambda o: np.asarray(act(self.agent, True, acting, o, self.seed, 0))

    def _action(self) -> np.ndarray:
        if self.step < self.schedule.learning_starts:
            rng = stream(self.seed, WARM_UP, self.step)
            return rng.uniform(-1, 1, self.task.spec.action_dim).astype(np.float32)
        action = self.learner.act(self._observation, self.step)
        self.check()  # the action depends on the last update, so that one is over
        return action

    def check(self) -> None:
        """Wait for the last update; NotFinite with its batch if a number in it was not finite."""
        self.learner.check(self.step)

    def _learn(self, count: int) -> None:
        """So many updates, in one compiled call where no refresh of the covariance is between."""
        room = min(count, MOST)
        while count:
            together = min(room, count, self._until_refresh())
            several = [self._data(self.updates + number) for number in range(together)]
            self.check()
            self._refresh_if_due()
            if room == 1:
                self.learner.learn(self.updates, several[0])
            else:
                self.learner.learn_several(self.updates, several, room)
            self.updates += together
            count -= together
        self._prepare()

    def _prepare(self) -> None:
        """Draw the next batch while the update computes, so without the transition to come.

        Where several transitions come in between, as `train_freq` may say, it is drawn when due: a
        run that is resumed half-way could not draw it again from the buffer as it was.
        """
        if self.updates and self.schedule.train_freq == 1:
            self._prepared = {self.updates: self._draw(self.updates)}

    def _data(self, update: int) -> Data:
        return self._prepared.pop(update, None) or self._draw(update)

    def _draw(self, update: int) -> Data:
        """A batch, and the noise that goes with it."""
        rng = stream(self.seed, BATCH, update)
        data: Data = [self.replay.sample_rows(self.schedule.batch_size, rng)]
        if isinstance(self.agent, CtrlUcb):
            data.append(
                self.agent.noise.draw(
                    lambda n: self.replay.sample_next(n, rng),
                    lambda n: self.replay.sample_random_next(n, rng),
                )
            )
        return data

    def _until_refresh(self) -> int:
        """How many updates there are before the next refresh but one that is due now."""
        if not isinstance(self.agent, CtrlUcb) or not self.agent.confidence.bonus_scale:
            return MOST
        every = self.agent.confidence.refresh_every
        return every - self.updates % every

    def _refresh_if_due(self) -> None:
        """Estimate the covariance of the bonus anew, now and then."""
        agent = self.agent
        if not isinstance(agent, CtrlUcb) or not agent.confidence.bonus_scale:
            return
        if self.updates % agent.confidence.refresh_every == 0:
            rng = stream(self.seed, REFRESH, self.updates)
            pairs = self.replay.sample_pairs(agent.confidence.covariance_sample, rng)
            self.state = agent.refresh(self.state, *pairs, len(self.replay))

    def _begin_episode(self) -> None:
        seed = int(stream(self.seed, RESET, self.episodes).integers(2**31))
        self._observation = self.task.reset(seed)
        self._actions = []
        self._return = 0.0

    @property
    def clock(self) -> int:
        """What the schedule counts."""
        return self.step

    kind = "train"  # of the rows of metrics

    def facts(self) -> dict[str, float]:
        """What a row of metrics says besides them."""
        return self.recent_return() | {"simulator_steps": self.simulator_steps}

    def recent_return(self) -> dict[str, float]:
        """Mean return of the last ten episodes, once there is one."""
        return {"return": float(np.mean(self.returns))} if self.returns else {}

    def save(self, directory: Path, **more: Any) -> None:
        """Everything as one checkpoint, with `more` facts; the open episode as its actions."""
        self.check()
        arrays = {f"agent/{k}": v for k, v in checkpoint.flatten(self.state).items()}
        arrays |= {f"metrics/{k}": np.asarray(v) for k, v in self.metrics.items()}
        actions = np.array(self._actions, np.float32).reshape(-1, self.task.spec.action_dim)
        facts = {
            "updates": self.updates,
            "episodes": self.episodes,
            "simulated": self._simulated,
            "returns": self.returns,
        }
        home = directory.resolve()
        last = self._saved[1] if self._saved and self._saved[0] == home else None
        arrays["open_episode"] = actions
        written = checkpoint.save(directory, self.step, arrays, facts | more, self.replay, last)
        self._saved = home, written

    def restore(self, saved: checkpoint.Checkpoint, say: Callable[[str], Any]) -> None:
        """Continue from a checkpoint, replaying the open episode's actions from its seed."""
        self.state = restore_agent(self.state, saved)
        saved.restore_replay(self.replay)
        self._saved = saved.directory.resolve(), checkpoint.Saved(saved.step, saved.segments)
        metrics = checkpoint.below("metrics/", saved.arrays)
        self.learner.metrics = {name: jnp.asarray(value) for name, value in metrics.items()}
        self.step = saved.step
        try:
            self.updates, self.episodes, self._simulated = (
                int(saved.facts[name]) for name in ("updates", "episodes", "simulated")
            )
            self.returns = [float(value) for value in saved.facts["returns"]]
            open_episode = saved.arrays["open_episode"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"The checkpoint in {saved.directory} was written by another program ({error!r})."
            ) from error
        self._prepare()
        self._begin_episode()
        for action in open_episode:
            self._observation, reward, *_ = self.task.step(action)
            self._actions.append(action)
            self._return += reward
        if self._actions:
            last = self.replay.rows.next_observation[(self.replay.added - 1) % self.replay.capacity]
            if not np.array_equal(self._observation, last):
                say(
                    f"{self.task.name} did not repeat its open episode from the same seed and "
                    "actions, so this run is not a bit-exact continuation."
                )


def restore_agent(template: Any, saved: checkpoint.Checkpoint) -> Any:
    """The agent's part of a checkpoint."""
    return checkpoint.restore(template, checkpoint.below("agent/", saved.arrays))
