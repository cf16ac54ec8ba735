"""The offline loop: phases of updates on a dataset that lies on the device."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phimu.agents import protocol
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Schedule
from phimu.data.device_set import DeviceSet
from phimu.data.logged import LoggedDataset
from phimu.data.rows import split
from phimu.errors import InputError
from phimu.normalisation import Acting
from phimu.runs import checkpoint
from phimu.runs.progress import Stretch
from phimu.training.learner import Learner, LearnerState
from phimu.training.memory import keep_freed_memory
from phimu.training.streams import UPDATE, check_seed, key
from phimu.types import Act, Metrics, Spec

ESTIMATED_ON = 4_096  # observations of the dataset, evenly spread
SECONDS = 0.5  # about what a compiled call takes: signals and progress wait for its end

_AS_IT_COMES = nullcontext()


def preparation(agent: Any) -> int:
    """Updates of all phases but the policy's."""
    return sum(phase.updates for phase in protocol.phases(agent)[:-1])


class OfflineRun:
    """An agent learning from a set; without one it can only act and be asked."""

    stride = 1  # what is due is never passed

    def __init__(
        self,
        agent: Any,
        spec: Spec,
        schedule: Schedule,
        seed: int,
        data: LoggedDataset | None = None,
    ):
        check_seed(seed)
        if data is not None and data.spec != spec:
            raise InputError(
                f"{data.name} has observations of {data.spec.observation_dim} and actions of "
                f"{data.spec.action_dim} numbers, the run was trained on {spec.observation_dim} "
                f"and {spec.action_dim}: name another dataset."
            )
        keep_freed_memory()  # before the first use of JAX, whose threads would get arenas
        self.agent, self.spec, self.schedule, self.seed = agent, spec, schedule, seed
        self.learner = Learner(agent, spec, schedule, seed)
        self.step = 0  # updates of all phases
        self._together = 1  # updates in a call
        self._begun: tuple[Phase, DeviceSet] | None = None  # a phase and its columns
        self._set: DeviceSet | None = None
        if data is not None:
            self._set = DeviceSet(data.transitions, spec, schedule.batch_size)
            self.learner.normalise_by(data.transitions.observation)

    @property
    def state(self) -> LearnerState:
        return self.learner.state

    @property
    def metrics(self) -> Metrics:
        return self.learner.metrics

    @property
    def preparation(self) -> int:
        return preparation(self.agent)

    def _phase_of(self, update: int) -> tuple[Phase, int]:
        """The phase of this update, and its number in it; the last phase has no end."""
        *before, last = protocol.phases(self.agent)
        for phase in before:
            if update < phase.updates:
                return phase, update
            update -= phase.updates
        return last._replace(updates=0), update

    @property
    def clock(self) -> int:
        """What the schedule counts: updates of the phase."""
        return self._phase_of(self.step - 1)[1] + 1

    @property
    def kind(self) -> str:
        """Of the rows of metrics: "train" is the policy's."""
        phase, _ = self._phase_of(self.step - 1)
        return phase.name if phase.updates else "train"

    @property
    def stretch(self) -> Stretch:
        """The phase of the last update."""
        phase, done = self._phase_of(self.step - 1)
        end = self.step - 1 - done + phase.updates
        return Stretch(phase.name, end if phase.updates else None)

    def advance(
        self,
        until: int,
        beginning: Callable[[], AbstractContextManager[None]] = nullcontext,
        whole: AbstractContextManager[Any] = _AS_IT_COMES,
    ) -> None:
        """Some updates, up to what is due next; `beginning` can break off what they begin with.

        `whole` keeps KeyboardInterrupt out of what must not be left half done.
        """
        if self._set is None:
            raise InputError("This run has no data to learn from: name its set again.")
        phase, done = self._phase_of(self.step)
        since = phase.since_begin(done)
        if self._begun is None or not since:
            self._begun = None  # frees the columns of the phase before
            with beginning():
                columns: Any = self.learner.begin(
                    phase.name, self._set, self.step - since, columns_only=since > 0
                )
            self._begun = phase, columns
        count = min(self._together, until - self.step, *self._until_due(phase, done))
        began = time.monotonic()
        with whole:
            self.step += self.learner.learn_from(phase.name, self._begun[1], self.step, count)
        self.check()
        if time.monotonic() - began < SECONDS / 2 and count == self._together:
            self._together *= 2

    def _until_due(self, phase: Phase, done: int) -> list[int]:
        """How many updates there are until something else comes first."""
        schedule = self.schedule
        every = schedule.log_every, schedule.checkpoint_every, schedule.evaluate_every
        left = [n - done % n for n in (*every, phase.begin_every) if n]
        return [*left, phase.updates - done] if phase.updates else left

    def check(self) -> None:
        """NotFinite with its batch if a number in the last update was not finite."""
        if self._begun is None or all(np.isfinite(x) for x in self.metrics.values()):
            return
        phase, data = self._begun
        drawn = protocol.draw(self.agent, phase.name, data, key(self.seed, UPDATE, self.step - 1))
        raise self.learner.fault(drawn, self.step)

    def policy(self) -> Act:
        return self.learner.mode()

    def next_observations(self) -> tuple[np.ndarray, np.ndarray]:
        """Those of the set, which has no random trajectories apart."""
        if self._set is None:
            raise InputError("This run has no data to integrate over: name its set again.")
        stored = self._set.next_observations
        return stored, stored[:0]

    def estimates(self) -> dict[str, float]:
        """What the set says of the policy, on some of its observations: estimates, not returns."""
        if self._set is None:
            raise InputError("This run has no data to estimate from: name its set again.")
        found = _estimates(self.agent, self.state, self.learner.acting, self._set)
        return {name: float(value) for name, value in found.items()}

    def facts(self) -> dict[str, float]:
        """What a row of metrics says besides them."""
        return {"updates": self.clock}

    def save(self, directory: Path, **more: Any) -> None:
        """Everything but the set, which has its file, and what a phase computes of it."""
        checkpoint.save(directory, self.step, self.learner.arrays(), more)

    def close(self) -> None:
        """There is nothing to close."""

    def restore(self, saved: checkpoint.Checkpoint, say: Callable[[str], Any]) -> None:
        del say  # nothing here that a machine could repeat otherwise
        self.learner.restore(saved.arrays)
        self.step = saved.step
        self._begun = None


@partial(jax.jit, static_argnums=0)
def _estimates(agent: Any, state: LearnerState, acting: Acting, data: DeviceSet) -> Metrics:
    index = jnp.arange(0, len(data), max(1, len(data) // ESTIMATED_ON))
    batch = split(data.rows[index], data.spec)
    action = acting.act(batch.observation, key(0, UPDATE, 0), True)
    seen = state.normaliser(batch.observation)
    found = {}
    if hasattr(agent, "q_value"):
        found["estimated_value"] = jnp.mean(agent.q_value(state.agent, seen, action))
    if hasattr(agent, "penalty"):
        for name, taken in (("data", batch.action), ("policy", action)):
            found[f"penalty_{name}"] = jnp.mean(agent.penalty(state.agent, seen, taken))
    return found
