"""The compiled side of a run: an agent's state, how it acts, and one update or several a call."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding

from phimu.agents.presets import Agent
from phimu.data.replay import split
from phimu.errors import NotFinite
from phimu.normalisation import Acting
from phimu.training.devices import on_first, placement
from phimu.training.streams import ACT, INIT, UPDATE, key
from phimu.types import Metrics, Spec

FINITE = "finite"
# What an update takes: rows of transitions, and the noise where the agent has some.
Data = list[np.ndarray]


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def update(agent: Any, state: Any, seed: int, step: int | jax.Array, *data: Any) -> Any:
    state, metrics = agent.update(state, *data, key(seed, UPDATE, step))
    # One flag for all losses and gradient norms, which the host reads when it has to wait for the
    # update anyway. Keeping the old state where it is false would take another pass over both.
    finite = jnp.all(jnp.isfinite(jnp.stack(list(metrics.values()))))
    return state, metrics | {FINITE: finite}


@partial(jax.jit, static_argnums=(0, 1))
def act(
    agent: Agent, deterministic: bool, acting: Acting, observation: Any, seed: int, step: int
) -> jax.Array:
    return agent.act(acting, observation, key(seed, ACT, step), deterministic)


# The loop's versions take the leaves of a tree. To flatten and rebuild a state of a hundred arrays
# in its nested modules for every call takes as long as the call. For a like reason they take
# transitions in one piece.


class _Program(NamedTuple):
    """What a compiled call is compiled for."""

    agent: Any
    tree: Any  # of the state's leaves
    spec: Spec
    whole: NamedSharding | None  # where the state lies, if there are several devices

    def place(self, state: Any) -> list[jax.Array]:
        leaves = jax.tree.leaves(state)
        return leaves if self.whole is None else with_sharding_constraint(leaves, self.whole)


@partial(jax.jit, static_argnums=(0, 1))
def _act(agent: Any, tree: Any, leaves: Any, observation: Any, seed: int, step: int) -> jax.Array:
    return act(agent, False, jax.tree.unflatten(tree, leaves), observation, seed, step)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _update(
    program: _Program, leaves: Any, seed: int, step: int, rows: Any, *noise: Any
) -> tuple[Any, Metrics]:
    state = jax.tree.unflatten(program.tree, leaves)
    batch = split(rows, program.spec)
    state, metrics = update(program.agent, state, seed, step, batch, *noise)
    return program.place(state), metrics


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _updates(
    program: _Program, leaves: Any, seed: int, step: int, count: int, *data: Any
) -> tuple[Any, Metrics, Metrics]:
    """The first `count` of the updates whose data are stacked, one after the other.

    Gives the leaves, the metrics of the last one, and those of each. `count` is no constant, so
    that rounds cut short by a refresh need no program of their own.
    """

    def one(index: jax.Array, state: Any) -> Any:
        rows, *noise = (stacked[index] for stacked in data)
        batch = split(rows, program.spec)
        return update(program.agent, state, seed, step + jnp.int32(index), batch, *noise)

    def body(index: jax.Array, carried: Any) -> Any:
        state, metrics = one(index, carried[0])
        return state, {name: carried[1][name].at[index].set(x) for name, x in metrics.items()}

    state = jax.tree.unflatten(program.tree, leaves)
    room = data[0].shape[0]
    _, metrics = jax.eval_shape(one, jnp.int32(0), state)
    every = {name: jnp.ones(room, x.dtype) for name, x in metrics.items()}
    state, every = jax.lax.fori_loop(0, count, body, (state, every))
    last = {name: x[count - 1] for name, x in every.items()}
    return program.place(state), last, every


class Learner:
    """An agent's state between compiled calls, on one device or in copies on several."""

    def __init__(self, agent: Agent, spec: Spec, seed: int, devices: int = 1):
        self.seed, self._place = seed, placement(devices)
        self.metrics: Metrics = {}  # of the last update
        # Of the last call: the metrics of each of its updates, and their data.
        self._unchecked: tuple[Metrics, list[Data]] | None = None
        state: Any = agent.init(spec, key(seed, INIT, 0))
        tree: Any = jax.tree.structure(state)
        self._program = _Program(agent, tree, spec, self._place and self._place.whole)
        self.state = state
        numbers = jax.tree.unflatten(tree, range(tree.num_leaves))
        self._acting, self._acting_tree = jax.tree.flatten(numbers.acting)

    @property
    def state(self) -> Any:
        """On the first device; the next update takes its arrays away."""
        leaves = self._leaves if self._place is None else on_first(self._leaves)
        return jax.tree.unflatten(self._program.tree, leaves)

    @state.setter
    def state(self, state: Any) -> None:
        self._leaves = jax.tree.leaves(state)
        if self._place is not None:
            self._leaves = jax.device_put(self._leaves, self._place.whole)

    def act(self, observation: np.ndarray, step: int) -> np.ndarray:
        """A sampled action; it depends on the last update, so it waits for that."""
        acting = [self._leaves[number] for number in self._acting]
        if self._place is not None:
            acting = on_first(acting)  # all of them would take longer, and say the same
        agent = self._program.agent
        return np.asarray(_act(agent, self._acting_tree, acting, observation, self.seed, step))

    def learn(self, step: int, data: Data) -> None:
        """The update with this number, begun but not waited for; `check` first."""
        placed = data if self._place is None else jax.device_put(data, self._place.rows)
        self._leaves, metrics = _update(self._program, self._leaves, self.seed, step, *placed)
        self._unchecked = metrics, [data]
        self.metrics = {name: value for name, value in metrics.items() if name != FINITE}

    def learn_several(self, step: int, several: list[Data], room: int) -> None:
        """The same for updates from `step` on in one call; the programs are those of `room`."""
        data = [np.zeros((room, *each.shape), np.float32) for each in several[0]]
        for stacked, parts in zip(data, zip(*several, strict=True), strict=True):
            stacked[: len(several)] = parts
        placed = data if self._place is None else jax.device_put(data, self._place.stacked)
        self._leaves, last, every = _updates(
            self._program, self._leaves, self.seed, step, len(several), *placed
        )
        self._unchecked = every, several
        self.metrics = {name: value for name, value in last.items() if name != FINITE}

    def check(self, step: int) -> None:
        """Wait for the last call; NotFinite with the batch of its first update that was not."""
        if self._unchecked is None:
            return
        metrics, several = self._unchecked
        finite = np.asarray(metrics[FINITE])
        if finite.all():
            self._unchecked = None
            return
        first = int(np.argmin(finite))
        values = {name: np.ravel(value)[first] for name, value in metrics.items()}
        bad = ", ".join(f"{name} is {x}" for name, x in values.items() if not np.isfinite(x))
        rows, *noise = several[first]
        batch = {
            name: column.copy()
            for name, column in split(rows, self._program.spec)._asdict().items()
        }
        raise NotFinite(
            f"{bad} at step {step:,}: lower the learning rates or scale the reward.",
            batch | ({"noise": noise[0]} if noise else {}),
        )
