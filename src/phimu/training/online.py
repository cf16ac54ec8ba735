"""The online loop: act, store, learn. One object holds everything a checkpoint has to."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
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
from phimu.runs.progress import WHOLE, Stretch
from phimu.settings import walk
from phimu.training.devices import check_sizes
from phimu.training.learner import Learner
from phimu.training.memory import keep_freed_memory
from phimu.training.seat import Seat, reset_seed
from phimu.training.streams import BATCH, WARM_UP, check_seed, stream
from phimu.types import Act, Batch, Drawn, Metrics

MOST = 32  # updates in a compiled call: their batches are in memory at once
SHARED = ("batch_size", "negatives", "starts")  # what several devices divide among themselves
_AS_IT_COMES = nullcontext()


class OnlineRun:
    """An agent learning in a task: `advance` is one step of its environment, or of each of them."""

    kind = "train"  # of the rows of metrics

    def __init__(
        self,
        agent: Any,
        task: Task | Sequence[Task],
        schedule: Schedule,
        seed: int,
        devices: int = 1,
    ):
        check_seed(seed)
        if schedule.collection is None:
            raise InputError("This schedule collects nothing: it is for logged data.")
        settings = {field.name: value for part in (agent, schedule) for field, value in walk(part)}
        check_sizes(devices, {name: settings[name] for name in SHARED if name in settings})
        keep_freed_memory()  # before the first use of JAX, whose threads would get arenas
        tasks = [task] if isinstance(task, Task) else list(task)
        self.collection = schedule.collection
        if len(tasks) != self.collection.envs:
            raise InputError(
                f"envs is {self.collection.envs}, but {len(tasks)} environments were given."
            )
        self.round_steps = protocol.round_steps(agent, schedule)
        self.agent, self.task, self.schedule, self.seed = agent, tasks[0], schedule, seed
        self.learner = Learner(agent, self.task.spec, schedule, seed, devices)
        capacity, warm_up = self.collection.buffer_size, self.collection.learning_starts
        self.replay = Replay(self.task.spec, capacity, warm_up, schedule.batch_size, len(tasks))
        self.step = self.updates = self.episodes = 0
        self._simulated = 0  # simulator steps of all episodes but the open ones
        self.returns: list[float] = []  # of the last episodes, for the progress line
        self._saved: tuple[Path, checkpoint.Saved] | None = None
        self._prepared: dict[int, Drawn] = {}  # of the next update, by its number
        self.seats = [Seat(each, number) for number, each in enumerate(tasks)]
        self._reopen()

    @property
    def stride(self) -> int:
        """By how much an advance brings the step on."""
        return len(self.seats)

    def advance(self, *_: Any, whole: AbstractContextManager[Any] = _AS_IT_COMES) -> None:
        """One step of every environment, and what is learned after it.

        If an environment raises, the run is as it was before the step. `whole` keeps
        KeyboardInterrupt out of what must not be left half done. A step needs none of what many
        updates at once do: an end, and leave to break off.
        """
        self._reopen()
        actions = self._actions()
        steps = [seat.step(action) for seat, action in zip(self.seats, actions, strict=True)]
        with whole:
            for seat, action, step in zip(self.seats, actions, steps, strict=True):
                self._record(seat, action, *step)
            self._learn_round()

    def _reopen(self, say: Callable[[str], Any] = warnings.warn) -> None:
        """Bring every environment to where its open episode is."""
        for number, seat in enumerate(self.seats):
            if seat.astray:
                last = (self.replay.added - self.stride + number) % self.replay.capacity
                seat.reopen(self.seed, self.replay.rows.next_observation[last], say)

    def _record(
        self,
        seat: Seat,
        action: np.ndarray,
        next_observation: np.ndarray,
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> None:
        self.replay.add(seat.observation, action, reward, next_observation, terminated, truncated)
        seat.record(action, next_observation, reward, terminated or truncated)
        self.step += 1
        if seat.astray:
            self.returns = [*self.returns[-9:], seat.total]
            self.episodes += 1
            self._simulated += seat.simulated
            seat.begin(self.stride - 1 + self.episodes)  # the next number that no other has

    def _learn_round(self) -> None:
        """The rounds of updates that are due after these steps, as many as one at a time had."""
        first = max(self.step - self.stride + 1, self.collection.learning_starts)
        due = self.step // self.round_steps - (first - 1) // self.round_steps
        if due > 0:
            self._learn(due)
            self._prepare()

    @property
    def state(self) -> Any:
        return self.learner.state

    @property
    def metrics(self) -> Metrics:
        return self.learner.metrics

    @property
    def simulator_steps(self) -> int:
        """`step` counts decisions; where actions are repeated, the simulator has gone further."""
        return self._simulated + sum(seat.simulated for seat in self.seats)

    def policy(self) -> Act:
        self.check()
        return self.learner.mode()

    def next_observations(self) -> tuple[np.ndarray, np.ndarray]:
        """Those that the replay buffer holds, and those of the warm-up's random trajectories."""
        replay = self.replay
        return replay.rows.next_observation[: len(replay)], replay.random_next[: replay.added]

    def _actions(self) -> np.ndarray:
        """One for each environment: [envs, action_dim]."""
        if self.step < self.collection.learning_starts:
            spec = self.task.spec
            each = (stream(self.seed, WARM_UP, self.step + n) for n in range(self.stride))
            return np.stack([spec.random_action(rng).astype(np.float32) for rng in each])
        if self.stride == 1:
            actions = self.learner.act(self.seats[0].observation, self.step)[None]
        else:
            seen = np.stack([seat.observation for seat in self.seats])
            actions = self.learner.act(seen, self.step)
        self.check()  # the actions depend on the last update, so that one is over
        return actions

    def check(self) -> None:
        """Wait for the last update; NotFinite with its batch if a number in it was not finite."""
        self.learner.check(self.step)

    def _learn(self, due: int) -> None:
        """So many rounds of updates: of each phase so many, and then of the next."""
        phases = protocol.phases(self.agent)
        counts = [phase.updates or self.collection.gradient_steps for phase in phases]
        # Rounds of one phase are one long round, of as many updates as can be due at once.
        most = -(-self.stride // self.round_steps) if len(phases) == 1 else 1
        while due > 0:
            together, rounds = min(due, most), self.updates // sum(counts)
            for phase, count in zip(phases, counts, strict=True):
                room = min(most * count, MOST)
                self._learn_phase(phase, rounds * count, together * count, room)
            due -= together

    def _learn_phase(self, phase: Phase, done: int, count: int, room: int) -> None:
        """Updates from number `done` of the phase on, in one compiled call where none begins it."""
        end = done + count
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
        if self.updates and self.round_steps == 1:
            first = protocol.phases(self.agent)[0]
            self._prepared = {self.updates: self._draw(first, self.updates)}

    def _draw(self, phase: Phase, update: int) -> Drawn:
        if update in self._prepared:
            return self._prepared.pop(update)
        return protocol.draw(self.agent, phase.name, self.replay, stream(self.seed, BATCH, update))

    def move_to(self, tasks: Sequence[Task]) -> None:
        """Go on in other environments with new episodes; the open ones were cut."""
        for number, seat in enumerate(self.seats):
            if seat.actions:
                self.replay.cut(number)
                self._saved = None  # which may have held that row uncut
                self.episodes += 1
                self._simulated += seat.simulated
                seat.begin(self.stride - 1 + self.episodes)
        self.seats = [Seat(task, old.episode) for task, old in zip(tasks, self.seats, strict=True)]
        self.task = tasks[0]
        self._prepare()
        self._reopen()

    def last_episode(self, most: int) -> tuple[int, Batch] | None:
        """The seed of the last episode of the first environment, and its first rows.

        At most `most`; None where the replay buffer does not hold all of them.
        """
        last = self.seats[0].last_episode
        if last is None or last[1] * self.stride > len(self.replay):
            return None
        episode, steps = last
        rows = self.replay.latest_of(0, steps)
        return reset_seed(self.seed, episode), Batch(*(column[:most] for column in rows))

    @property
    def clock(self) -> int:
        return self.step

    @property
    def stretch(self) -> Stretch:
        """What the last step was a part of; random actions take no time beside those learned."""
        starts = self.collection.learning_starts
        return WHOLE if self.step >= starts else Stretch("warm-up", starts)

    def facts(self) -> dict[str, float]:
        """What a row of metrics says besides them."""
        return self.recent_return() | {"simulator_steps": self.simulator_steps}

    def recent_return(self) -> dict[str, float]:
        """Mean return of the last ten episodes, once there is one."""
        return {"return": float(np.mean(self.returns))} if self.returns else {}

    def close(self) -> None:
        for seat in self.seats:
            seat.task.close()

    def save(self, directory: Path, **more: Any) -> None:
        """Everything as one checkpoint, with `more` facts; open episodes as their actions."""
        self.check()
        open_episodes = [action for seat in self.seats for action in seat.actions]
        actions = np.array(open_episodes, np.float32).reshape(-1, self.task.spec.action_dim)
        facts: dict[str, Any] = {
            "updates": self.updates,
            "episodes": self.episodes,
            "simulated": self._simulated,
            "returns": self.returns,
        }
        if self.stride > 1:
            facts["open"] = [(seat.episode, len(seat.actions)) for seat in self.seats]
        home = directory.resolve()
        last = self._saved[1] if self._saved and self._saved[0] == home else None
        arrays = self.learner.arrays() | {"open_episode": actions}
        written = checkpoint.save(directory, self.step, arrays, facts | more, self.replay, last)
        self._saved = home, written

    def restore(self, saved: checkpoint.Checkpoint, say: Callable[[str], Any]) -> None:
        """Continue from a checkpoint, replaying the actions of open episodes from their seeds."""
        self.learner.restore(saved.arrays)
        saved.restore_replay(self.replay)
        self._saved = saved.directory.resolve(), checkpoint.Saved(saved.step, saved.segments)
        self.step = saved.step
        try:
            self.updates, self.episodes, self._simulated = (
                int(saved.facts[name]) for name in ("updates", "episodes", "simulated")
            )
            self.returns = [float(value) for value in saved.facts["returns"]]
            actions = saved.arrays["open_episode"]
            ends = saved.facts.get("open", [(self.episodes, len(actions))])
            for seat, (episode, length) in zip(self.seats, ends, strict=True):
                seat.begin(int(episode))
                seat.actions, actions = list(actions[:length]), actions[length:]
                seat.astray = True
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"The checkpoint in {saved.directory} was written by another program ({error!r})."
            ) from error
        self._prepare()
        self._reopen(say)
