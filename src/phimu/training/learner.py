"""The compiled side of a run: an agent's state, how it acts, and any number of updates a call.

The same program serves an environment, whose batches the host draws from replay, and logged data,
whose batches are drawn inside it.
"""

import contextlib
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding

from phimu.agents import protocol
from phimu.agents.schedule import Schedule
from phimu.data.device_set import DeviceSet
from phimu.data.rows import split
from phimu.errors import NotFinite
from phimu.normalisation import Acting, AsIs, Normaliser, RunningNormaliser, normalise_batch
from phimu.runs import checkpoint
from phimu.training.devices import on_first, placement
from phimu.training.streams import ACT, INIT, REFRESH, UPDATE, key, stream
from phimu.types import Act, Drawn, Feed, Metrics, Spec, Store


class LearnerState(NamedTuple):
    normaliser: Normaliser
    agent: Any


class Program(NamedTuple):
    """What a compiled call is compiled for."""

    agent: Any
    phase: str
    tree: Any  # of the state's leaves
    spec: Spec
    bfloat16: bool
    running: bool  # whether the normaliser learns from each batch
    whole: NamedSharding | None  # where the state lies, if there are several devices

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Products within it take bfloat16 operands if asked; weights and sums stay float32."""
        return jax.default_matmul_precision("bfloat16") if self.bfloat16 else _AS_IS

    def update(self, state: LearnerState, drawn: Drawn, key: jax.Array) -> Any:
        """One update: what the run does to observations, then the agent's own."""
        batch, seen = split(drawn.rows, self.spec), state.normaliser
        later = seen
        if self.running:
            later = seen.include(batch.observation.reshape(-1, self.spec.observation_dim))
        if not protocol.on_policy(self.agent, self.phase):
            seen = later
        others = {name: seen(observation) for name, observation in drawn.others.items()}
        feed = Feed(normalise_batch(seen, batch), others, drawn.columns)
        with self.precision():
            agent, metrics = self.agent.update(self.phase, state.agent, feed, key)
        return LearnerState(later, agent), metrics


_AS_IS = contextlib.nullcontext()

# The compiled calls take the leaves of a tree. To flatten and rebuild a state of a hundred arrays
# in its nested modules for every call takes as long as the call.


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def updates(
    program: Program, room: int, leaves: Any, source: Any, seed: int, step: int, count: int
) -> tuple[Any, Metrics, jax.Array, jax.Array]:
    """`count` updates from number `step` on.

    It gives the leaves, the last update's metrics, how many updates were made, and whether all
    their metrics are finite: one flag, which the host reads when it has to wait anyway.

    `source` is a store on the device, or what the host has drawn: for one update, or stacked for
    up to `room`. The first update whose metrics are not finite is the last. `count` is no
    constant, so that calls of every length are one program.
    """

    def one(done: jax.Array, state: Any) -> tuple[Any, Metrics]:
        own = key(seed, UPDATE, step + done)
        if isinstance(source, DeviceSet):
            drawn = protocol.draw(program.agent, program.phase, source, own)
        elif room == 1:
            drawn = source
        else:
            drawn = jax.tree.map(lambda stacked: stacked[done], source)
        return program.update(state, drawn, own)

    def body(carried: Any) -> Any:
        state, _, done = carried
        return *one(done, state), done + 1

    def going_on(carried: Any) -> jax.Array:
        _, metrics, done = carried
        return (done < count) & all_finite(metrics)

    state: Any = jax.tree.unflatten(program.tree, leaves)
    if room == 1:
        state, metrics = one(jnp.int32(0), state)
        made = jnp.int32(1)
    else:
        _, shapes = jax.eval_shape(one, jnp.int32(0), state)
        blank = {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}
        state, metrics, made = jax.lax.while_loop(going_on, body, (state, blank, jnp.int32(0)))
    leaves = jax.tree.leaves(state)
    if program.whole is not None:
        leaves = with_sharding_constraint(leaves, program.whole)
    return leaves, metrics, made, all_finite(metrics)


def all_finite(metrics: Metrics) -> jax.Array:
    return jnp.all(jnp.isfinite(jnp.stack(list(metrics.values()))))


@partial(jax.jit, static_argnums=(0, 1, 2))
def act(
    tree: Any,
    discrete: bool,
    uniform_mix: float,
    leaves: Any,
    observation: Any,
    seed: int,
    step: int,
) -> Any:
    """Sampled actions for observations [..., D], some of them uniformly random."""
    own = key(seed, ACT, step)
    action = jax.tree.unflatten(tree, leaves).act(observation, own, False)
    if not uniform_mix:
        return action
    for_choice, for_uniform = jax.random.split(jax.random.fold_in(own, 1))
    if discrete:
        count = action.shape[-1]
        which = jax.random.randint(for_uniform, action.shape[:-1], 0, count)
        uniform = jax.nn.one_hot(which, count)
    else:
        uniform = jax.random.uniform(for_uniform, action.shape, minval=-1.0, maxval=1.0)
    chosen = jax.random.bernoulli(for_choice, uniform_mix, action.shape[:-1])
    return jnp.where(chosen[..., None], uniform, action)


@jax.jit
def mode(acting: Acting, observation: Any) -> jax.Array:
    """The most likely actions for observations [..., D]."""
    return acting.act(observation, jax.random.PRNGKey(0), True)


@partial(jax.jit, static_argnums=(0, 1))
def query(agent: Any, name: str, state: LearnerState, *arrays: Any) -> jax.Array:
    """One of an agent's queries, on observations as the environment gives them.

    The second of `arrays` is the action, if there is one; the others are observations.
    """
    seen = state.normaliser
    inputs = (each if place == 1 else seen(each) for place, each in enumerate(arrays))
    return protocol.answer(agent, name, state.agent, *inputs)


class Learner:
    """An agent's state between compiled calls, on one device or in copies on several."""

    def __init__(self, agent: Any, spec: Spec, schedule: Schedule, seed: int, devices: int = 1):
        self.agent, self.spec, self.seed, self._place = agent, spec, seed, placement(devices)
        self.metrics: Metrics = {}  # of the last updates
        # Of the last call: how many updates it made, whether they were finite, what they drew.
        self._unchecked: tuple[jax.Array, jax.Array, list[Drawn]] | None = None
        collects = schedule.collection
        self._uniform_mix = 0.0 if collects is None else collects.uniform_mix
        wanted = schedule.normalise_observations
        seen = RunningNormaliser(spec.observation_dim) if wanted else AsIs()
        # What is known of a task is of its observations as they are.
        sizes = Spec(*spec) if wanted else spec
        state = LearnerState(seen, agent.init(sizes, key(seed, INIT, 0)))
        # Slow copies start as the same arrays; separate ones can be donated to a compiled call.
        state = jax.tree.map(lambda x: jax.device_put(np.array(x)), state)
        tree: Any = jax.tree.structure(state)
        phase, bfloat16 = protocol.phases(agent)[-1].name, schedule.precision == "bfloat16"
        whole = self._place and self._place.whole
        self.program = Program(agent, phase, tree, spec, bfloat16, collects is not None, whole)
        self.state = state
        numbers = jax.tree.unflatten(tree, range(tree.num_leaves))
        self._acting, self._acting_tree = jax.tree.flatten(self._acting_of(numbers))

    def _acting_of(self, state: LearnerState) -> Acting:
        return Acting(state.normaliser, self.agent.policy(state.agent))

    @property
    def state(self) -> LearnerState:
        """On the first device; the next update takes its arrays away."""
        leaves = self._leaves if self._place is None else on_first(self._leaves)
        return jax.tree.unflatten(self.program.tree, leaves)

    @state.setter
    def state(self, state: LearnerState) -> None:
        self._leaves = jax.tree.leaves(state)
        if self._place is not None:
            self._leaves = jax.device_put(self._leaves, self._place.whole)

    @property
    def acting(self) -> Acting:
        return self._acting_of(self.state)

    def act(self, observation: np.ndarray, step: int, mixed: bool = True) -> np.ndarray:
        """Sampled after the last update is over, `mixed` with random ones as the schedule says."""
        acting = [self._leaves[number] for number in self._acting]
        if self._place is not None:
            acting = on_first(acting)  # all of them would take longer, and say the same
        tree, mix = self._acting_tree, self._uniform_mix if mixed else 0.0
        return np.asarray(act(tree, self.spec.discrete, mix, acting, observation, self.seed, step))

    def mode(self) -> Act:
        """The policy as it is now, without noise."""
        acting = self.acting
        return lambda observation: np.asarray(mode(acting, observation))

    def query(self, name: str, *arrays: Any) -> np.ndarray:
        """One of the agent's queries, on observations as the environment gives them."""
        return np.asarray(query(self.agent, name, self.state, *arrays))

    def begin(self, phase: str, store: Store, step: int, columns_only: bool = False) -> Store:
        """The store with any columns that the agent adds, and unless `columns_only` its state."""
        state = self.state
        draws = key if isinstance(store, DeviceSet) else stream
        rng: Any = draws(self.seed, REFRESH, step)
        agent, store = protocol.begin(self.agent, phase, state.agent, store, state.normaliser, rng)
        if agent is not state.agent and not columns_only:
            self.state = LearnerState(state.normaliser, agent)
        return store

    def normalise_by(self, observations: np.ndarray) -> None:
        state = self.state
        self.state = LearnerState(state.normaliser.of(observations), state.agent)

    def learn(self, phase: str, step: int, drawn: list[Drawn], room: int) -> None:
        """Updates from number `step` on, begun but not waited for; up to `room` are one program."""
        source: Any = drawn[0]
        if room > 1:
            source = jax.tree.map(lambda *each: _stacked(each, room), *drawn)
        if self._place is not None:
            source = jax.device_put(source, self._place.rows if room == 1 else self._place.stacked)
        metrics, made, finite = self._run(phase, room, source, step, len(drawn))
        self.metrics = self.metrics | metrics  # a round may have several phases
        self._unchecked = made, finite, drawn

    def learn_from(self, phase: str, store: DeviceSet, step: int, count: int) -> int:
        """Updates on logged data, waited for: how many were made, fewer if one was not finite."""
        self.metrics, made, _ = self._run(phase, 2, store, step, count)  # any room but 1: a loop
        return int(made)

    def _run(self, phase: str, room: int, source: Any, step: int, count: int) -> Any:
        program = self.program._replace(phase=phase)
        self._leaves, metrics, made, finite = updates(
            program, room, self._leaves, source, self.seed, step, count
        )
        return metrics, made, finite

    def check(self, step: int) -> None:
        """Wait for the last call of `learn`; NotFinite with the batch of an update that was not."""
        if self._unchecked is None:
            return
        made, finite, drawn = self._unchecked
        if not finite:
            raise self.fault(drawn[int(made) - 1], step)
        self._unchecked = None

    def fault(self, drawn: Drawn, step: int) -> NotFinite:
        """The error for metrics that are not finite, with what the update was given."""
        values = {name: float(value) for name, value in self.metrics.items()}
        bad = ", ".join(f"{name} is {x}" for name, x in values.items() if not np.isfinite(x))
        batch = split(np.asarray(drawn.rows), self.spec)._asdict()
        arrays = {name: np.array(column) for name, column in {**batch, **drawn.others}.items()}
        return NotFinite(
            f"{bad} at step {step:,}: lower the learning rates or scale the reward.", arrays
        )

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {f"agent/{k}": v for k, v in checkpoint.flatten(self.state).items()}
        return arrays | {f"metrics/{k}": np.asarray(v) for k, v in self.metrics.items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.state = checkpoint.restore(self.state, checkpoint.below("agent/", arrays))
        metrics = checkpoint.below("metrics/", arrays)
        self.metrics = {name: jnp.asarray(value) for name, value in metrics.items()}
        self._unchecked = None


def _stacked(each: tuple[np.ndarray, ...], room: int) -> np.ndarray:
    stacked = np.zeros((room, *np.shape(each[0])), np.asarray(each[0]).dtype)
    stacked[: len(each)] = each
    return stacked
