"""The offline loop: phases of updates on a set that lies on the device, many in a compiled call."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from phimu.agents.offline_presets import OfflineSchedule
from phimu.data.device_set import DeviceSet
from phimu.data.logged import OfflineSet
from phimu.data.replay import split
from phimu.errors import InputError, NotFinite
from phimu.normalisation import Acting
from phimu.runs import checkpoint
from phimu.training.learner import act
from phimu.training.memory import keep_freed_memory
from phimu.training.streams import INIT, UPDATE, key
from phimu.types import Act, Metrics, Spec

ESTIMATED_ON = 4_096  # observations of the set, evenly spread
SECONDS = 0.5  # about what a compiled call takes: signals and progress wait for its end


class OfflineAgent(Protocol):
    """What the loop needs of an agent."""

    @property
    def phases(self) -> tuple[tuple[str, int], ...]:
        """Name and updates of each; the last is the policy's and goes on as long as asked."""

    def init(self, spec: Spec, key: jax.Array) -> Any: ...

    def begin(self, phase: str, state: Any, data: DeviceSet) -> tuple[Any, DeviceSet]:
        """What is computed once, before a phase and again where one is resumed in its midst."""

    def learn(
        self, phase: str, state: Any, data: DeviceSet, key: jax.Array
    ) -> tuple[Any, Metrics]: ...

    def act(
        self, acting: Acting, observation: jax.Array, key: jax.Array, deterministic: bool
    ) -> jax.Array: ...


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def updates(
    agent: Any, phase: str, state: Any, data: DeviceSet, seed: int, step: int, count: int
) -> tuple[Any, Metrics, jax.Array]:
    """`count` updates from number `step` on: the state, the last one's metrics, how many were made.

    The first whose metrics are not finite is the last. `count` is no constant, so that all calls
    of a phase are one program.
    """

    def one(step: jax.Array, state: Any) -> tuple[Any, Metrics]:
        return agent.learn(phase, state, data, key(seed, UPDATE, step))

    def body(carried: Any) -> Any:
        state, _, done = carried
        return *one(step + done, state), done + 1

    def going_on(carried: Any) -> jax.Array:
        _, metrics, done = carried
        return (done < count) & jnp.all(jnp.isfinite(jnp.stack(list(metrics.values()))))

    _, metrics = jax.eval_shape(one, jnp.int32(0), state)
    blank = {name: jnp.zeros(x.shape, x.dtype) for name, x in metrics.items()}
    return jax.lax.while_loop(going_on, body, (state, blank, jnp.int32(0)))


def preparation(agent: OfflineAgent) -> int:
    """Updates of all phases but the policy's."""
    return sum(count for _, count in agent.phases[:-1])


class OfflineRun:
    """An agent learning from a set: `advance` is some updates, never past something that is due.

    Without a set it is what a checkpoint says, to act and to be asked.
    """

    def __init__(
        self,
        agent: OfflineAgent,
        spec: Spec,
        schedule: OfflineSchedule,
        seed: int,
        data: OfflineSet | None = None,
    ):
        if not 0 <= seed < 2**31:
            raise InputError(f"seed is {seed}: give a number from 0 to 2147483647.")
        if data is not None and data.spec != spec:
            raise InputError(
                f"{data.name} has observations of {data.spec.observation_dim} and actions of "
                f"{data.spec.action_dim} numbers, the run was trained on {spec.observation_dim} "
                f"and {spec.action_dim}: name another set."
            )
        keep_freed_memory()  # before the first use of JAX, whose threads would get arenas
        self.agent, self.spec, self.schedule, self.seed = agent, spec, schedule, seed
        self.state: Any = agent.init(spec, key(seed, INIT, 0))
        self.metrics: Metrics = {}  # of the last update
        self.step = 0  # updates of all phases
        self._together = 1  # updates in a call
        self._begun: tuple[str, DeviceSet] | None = None  # a phase and its columns
        self._set: DeviceSet | None = None
        if data is not None:
            self._set = DeviceSet(data.transitions, spec, schedule.batch_size)

    @property
    def preparation(self) -> int:
        return preparation(self.agent)

    def _phase_of(self, update: int) -> tuple[str, int, int | None]:
        """The phase of this update, its number in it, and how many there are, if that is set."""
        for name, count in self.agent.phases[:-1]:
            if update < count:
                return name, update, count
            update -= count
        return self.agent.phases[-1][0], update, None

    @property
    def clock(self) -> int:
        """What the schedule counts: updates of the phase."""
        return self._phase_of(self.step - 1)[1] + 1

    @property
    def kind(self) -> str:
        """Of the rows of metrics: "train" is the policy's."""
        name, _, count = self._phase_of(self.step - 1)
        return "train" if count is None else name

    def advance(
        self, until: int, beginning: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """Some updates, at most to step `until` and to what is due next.

        What a phase computes first may take minutes; `beginning` may break that off.
        """
        phase, due = self._next(until)
        if self._set is None:
            raise InputError("This run has no data to learn from: name its set again.")
        if self._begun is None or self._begun[0] != phase:
            self._begun = None  # frees the columns of the phase before
            with beginning():
                state, columns = self.agent.begin(phase, self.state, self._set)
            self.state, self._begun = state, (phase, columns)
        count = min(self._together, due)
        began = time.monotonic()
        data = self._begun[1]
        self.state, metrics, made = updates(
            self.agent, phase, self.state, data, self.seed, self.step, count
        )
        self.metrics = metrics
        self.step += int(made)  # waits for them
        self.check()
        if time.monotonic() - began < SECONDS / 2 and count == self._together:
            self._together *= 2

    def _next(self, until: int) -> tuple[str, int]:
        """The phase of the next update, and how many there are until something is due."""
        phase, done, count = self._phase_of(self.step)
        schedule = self.schedule
        every = (schedule.log_every, schedule.checkpoint_every, schedule.evaluate_every)
        left = [n - done % n for n in every if n] + [until - self.step]
        return phase, min(left if count is None else [*left, count - done])

    def check(self) -> None:
        """NotFinite with its batch if a number in the last update was not finite."""
        bad = {name: float(x) for name, x in self.metrics.items() if not np.isfinite(x)}
        if not bad or self._set is None:
            return
        drawn = self._set.sample(key(self.seed, UPDATE, self.step - 1))
        raise NotFinite(
            f"{', '.join(f'{name} is {x}' for name, x in bad.items())} at step {self.step:,}: "
            "lower the learning rates or scale the reward.",
            {name: np.asarray(column) for name, column in drawn.batch._asdict().items()},
        )

    def policy(self) -> Act:
        """The mode action of the agent as it is now."""
        acting = self.state.acting
        return lambda o: np.asarray(act(self.agent, True, acting, o, self.seed, 0))

    def estimates(self) -> dict[str, float]:
        """What the set says of the policy, on some of its observations: estimates, not returns."""
        if self._set is None:
            raise InputError("This run has no data to estimate from: name its set again.")
        found = _estimates(self.agent, self.state, self._set)
        return {name: float(value) for name, value in found.items()}

    def facts(self) -> dict[str, float]:
        """What a row of metrics says besides them."""
        return {"updates": self.clock}

    def save(self, directory: Path, **more: Any) -> None:
        """Everything but the set, which has its file, and what a phase computes of it."""
        arrays = {f"agent/{k}": v for k, v in checkpoint.flatten(self.state).items()}
        arrays |= {f"metrics/{k}": np.asarray(v) for k, v in self.metrics.items()}
        checkpoint.save(directory, self.step, arrays, more)

    def restore(self, saved: checkpoint.Checkpoint, say: Callable[[str], Any]) -> None:
        del say  # nothing here that a machine could repeat otherwise
        self.state = checkpoint.restore(self.state, checkpoint.below("agent/", saved.arrays))
        metrics = checkpoint.below("metrics/", saved.arrays)
        self.metrics = {name: jnp.asarray(value) for name, value in metrics.items()}
        self.step = saved.step
        self._begun = None


@partial(jax.jit, static_argnums=0)
def _estimates(agent: Any, state: Any, data: DeviceSet) -> Metrics:
    index = jnp.arange(0, len(data), max(1, len(data) // ESTIMATED_ON))
    batch = split(data.rows[index], data.spec)
    action = agent.act(state.acting, batch.observation, key(0, UPDATE, 0), True)
    found = {"estimated_value": jnp.mean(agent.q_value(state, batch.observation, action))}
    if hasattr(agent, "penalty"):
        for name, taken in (("data", batch.action), ("policy", action)):
            found[f"penalty_{name}"] = jnp.mean(agent.penalty(state, batch.observation, taken))
    return found
