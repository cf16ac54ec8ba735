"""The online loop: act, store, learn. One object holds everything a checkpoint has to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from phimu.agents import protocol
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Schedule
from phimu.data.replay import Replay
from phimu.environments.task import Task
from phimu.errors import InputError
from phimu.runs import checkpoint
from phimu.settings import walk
from phimu.training.devices import check_sizes
from phimu.training.learner import Learner
from phimu.training.memory import keep_freed_memory
from phimu.training.streams import BATCH, RESET, WARM_UP, check_seed, stream
from phimu.types import Act, Drawn, Metrics

MOST = 32  # updates in a compiled call: their batches are in memory at once
SHARED = ("batch_size", "negatives")  # what several devices divide among themselves


class OnlineRun:
    """An agent learning in a task: `advance` is one step of the environment."""

    kind = "train"  # of the rows of metrics

    def __init__(self, agent: Any, task: Task, schedule: Schedule, seed: int, devices: int = 1):
        check_seed(seed)
        if schedule.collection is None:
            raise InputError("This schedule collects nothing: it is for logged data.")
        settings = {field.name: value for part in (agent, schedule) for field, value in walk(part)}
        check_sizes(devices, {name: settings[name] for name in SHARED if name in settings})
        keep_freed_memory()  # before the first use of JAX, whose threads would get arenas
        self.agent, self.task, self.schedule, self.seed = agent, task, schedule, seed
        self.collection = schedule.collection
        self.learner = Learner(agent, task.spec, schedule, seed, devices)
        capacity, warm_up = self.collection.buffer_size, self.collection.learning_starts
        self.replay = Replay(task.spec, capacity, warm_up, schedule.batch_size)
        self.step = self.updates = self.episodes = 0
        self._simulated = 0  # simulator steps of all episodes but the open one
        self.returns: list[float] = []  # of the last episodes, for the progress line
        self._saved: tuple[Path, checkpoint.Saved] | None = None
        self._observation = np.zeros(task.spec.observation_dim, np.float32)
        self._actions: list[np.ndarray] = []  # of the open episode
        self._return = 0.0
        self._prepared: dict[int, Drawn] = {}  # of the next update, by its number
        self._begin_episode()

    def advance(self, *_: Any) -> None:
        """A step needs none of what many updates at once do: an end, and leave to break off."""
        action = self._action()
        next_observation, reward, terminated, truncated = self.task.step(action)
        self.replay.add(self._observation, action, reward, next_observation, terminated, truncated)
        self._observation = next_observation
        self._actions.append(action)
        self._return += reward
        self.step += 1
        collection = self.collection
        if self.step >= collection.learning_starts and self.step % collection.train_freq == 0:
            self._learn()
            self._prepare()
        if terminated or truncated:
            self.returns = [*self.returns[-9:], self._return]
            self.episodes += 1
            self._simulated += self.task.simulator_steps
            self._begin_episode()

    @property
    def state(self) -> Any:
        return self.learner.state

    @property
    def metrics(self) -> Metrics:
        return self.learner.metrics

    @property
    def simulator_steps(self) -> int:
        """`step` counts decisions; where actions are repeated, the simulator has gone further."""
        return self._simulated + self.task.simulator_steps

    def policy(self) -> Act:
        self.check()
        return self.learner.mode()

    def _action(self) -> np.ndarray:
        if self.step < self.collection.learning_starts:
            rng = stream(self.seed, WARM_UP, self.step)
            return rng.uniform(-1, 1, self.task.spec.action_dim).astype(np.float32)
        action = self.learner.act(self._observation, self.step)
        self.check()  # the action depends on the last update, so that one is over
        return action

    def check(self) -> None:
        """Wait for the last update; NotFinite with its batch if a number in it was not finite."""
        self.learner.check(self.step)

    def _learn(self) -> None:
        """A round of updates: of each phase so many, and then of the next."""
        phases = protocol.phases(self.agent)
        counts = [phase.updates or self.collection.gradient_steps for phase in phases]
        rounds = self.updates // sum(counts)
        for phase, count in zip(phases, counts, strict=True):
            self._learn_phase(phase, rounds * count, count)

    def _learn_phase(self, phase: Phase, done: int, count: int) -> None:
        """Updates from number `done` of the phase on, in one compiled call where none begins it."""
        room, end = min(count, MOST), done + count
        while done < end:
            since = phase.since_begin(done)
            together = min(
                room, end - done, phase.begin_every - since if phase.begin_every else room
            )
            drawn = [self._draw(phase, self.updates + number) for number in range(together)]
            self.check()
            if not since:
                self.learner.begin(phase.name, self.replay, self.updates)
            self.learner.learn(phase.name, self.updates, drawn, room)
            self.updates += together
            done += together

    def _prepare(self) -> None:
        """Draw the next batch while the update computes, so without the transition to come.

        Where several transitions come in between, as `train_freq` may say, it is drawn when due: a
        run that is resumed half-way could not draw it again from the buffer as it was.
        """
        self._prepared = {}
        if self.updates and self.collection.train_freq == 1:
            first = protocol.phases(self.agent)[0]
            self._prepared = {self.updates: self._draw(first, self.updates)}

    def _draw(self, phase: Phase, update: int) -> Drawn:
        if update in self._prepared:
            return self._prepared.pop(update)
        return protocol.draw(self.agent, phase.name, self.replay, stream(self.seed, BATCH, update))

    def _begin_episode(self) -> None:
        seed = int(stream(self.seed, RESET, self.episodes).integers(2**31))
        self._observation = self.task.reset(seed)
        self._actions = []
        self._return = 0.0

    @property
    def clock(self) -> int:
        return self.step

    def facts(self) -> dict[str, float]:
        """What a row of metrics says besides them."""
        return self.recent_return() | {"simulator_steps": self.simulator_steps}

    def recent_return(self) -> dict[str, float]:
        """Mean return of the last ten episodes, once there is one."""
        return {"return": float(np.mean(self.returns))} if self.returns else {}

    def save(self, directory: Path, **more: Any) -> None:
        """Everything as one checkpoint, with `more` facts; the open episode as its actions."""
        self.check()
        actions = np.array(self._actions, np.float32).reshape(-1, self.task.spec.action_dim)
        facts = {
            "updates": self.updates,
            "episodes": self.episodes,
            "simulated": self._simulated,
            "returns": self.returns,
        }
        home = directory.resolve()
        last = self._saved[1] if self._saved and self._saved[0] == home else None
        arrays = self.learner.arrays() | {"open_episode": actions}
        written = checkpoint.save(directory, self.step, arrays, facts | more, self.replay, last)
        self._saved = home, written

    def restore(self, saved: checkpoint.Checkpoint, say: Callable[[str], Any]) -> None:
        """Continue from a checkpoint, replaying the open episode's actions from its seed."""
        self.learner.restore(saved.arrays)
        saved.restore_replay(self.replay)
        self._saved = saved.directory.resolve(), checkpoint.Saved(saved.step, saved.segments)
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
