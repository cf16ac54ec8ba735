"""One door for every agent: what a run needs of one, and what it does where an agent is silent.

An agent is a frozen dataclass of settings with at least `init`, `policy` and `update`. It sees
observations as networks see them: normalising them, drawing actions at random among the policy's,
the precision of products and the copying of a fresh state are the run's work.
"""

from typing import Any, NamedTuple, Protocol

import jax

from phimu.agents.schedule import Collection, Schedule
from phimu.data.rows import join
from phimu.errors import InputError
from phimu.representation.seam import compared, density
from phimu.types import Drawn, Feed, Metrics, Spec, Store

Settings = Any  # of an agent: a frozen dataclass that satisfies Agent
State = Any  # of an agent: a pytree of arrays


class Phase(NamedTuple):
    """A stretch of updates of one kind. On logged data the last phase is the policy's."""

    name: str = "policy"
    updates: int = 0  # on logged data how many, online how many a round; 0: as many as asked
    begin_every: int = 0  # updates of it between two calls of `begin`; 0: once
    # Whether an update eats what was collected since the one before, in order, and nothing else.
    on_policy: bool = False

    def since_begin(self, done: int) -> int:
        """How many of its first `done` updates came after the last `begin`; 0: the next is due."""
        return done % self.begin_every if self.begin_every else done


class Policy(Protocol):
    """All that acting needs: a pytree, as small as can be, since each array makes a call slower."""

    def mode(self, observation: jax.Array) -> jax.Array:
        """Actions in [-1, 1] for observations [..., D]."""

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """An action and its log density."""


class Agent(Protocol):
    """What every agent has; `phases`, `begin` and `draw` are optional, see below.

    `q_value(state, s, a)` and others (`phi`, `bonus`, `penalty`, `behaviour_log_density`) answer
    queries. One that has a `representation`, whose state it keeps under the same name, and `phi` is
    asked for `mu(state, s')`, `temperature(state)` and `log_ratio(state, s, a, s')` as well.
    """

    def init(self, spec: Spec, key: jax.Array) -> State: ...

    def policy(self, state: State) -> Policy:
        """Chosen from the state, not computed: a run picks the arrays that acting needs by it."""

    def update(self, phase: str, state: State, feed: Feed, key: jax.Array) -> tuple[State, Metrics]:
        """Pure; it is compiled."""


POLICY = (Phase(),)
BY_REPRESENTATION = ("mu", "temperature", "log_ratio")


def phases(agent: Settings) -> tuple[Phase, ...]:
    """An agent's own, or the policy's alone."""
    return getattr(agent, "phases", POLICY)


def on_policy(agent: Settings, phase: str) -> bool:
    """Whether a phase learns only from what the present policy has collected.

    Its updates get rows [T, envs, ...] in order, and observations as the policy saw them: the
    running statistics take these in after the update.
    """
    return any(each.on_policy for each in phases(agent) if each.name == phase)


def round_steps(agent: Settings, schedule: Schedule) -> int:
    """Environment steps between two rounds of updates online."""
    collection = schedule.collection or Collection()
    if not any(phase.on_policy for phase in phases(agent)):
        return collection.train_freq
    size, envs = schedule.batch_size, collection.envs
    if collection.train_freq != 1:
        raise InputError(
            f"train_freq is {collection.train_freq}, but this agent learns after every batch_size "
            "steps: set that instead."
        )
    if size % envs:
        raise InputError(f"batch_size is {size}: with {envs} envs give a multiple of that.")
    if size > collection.buffer_size:
        raise InputError(
            f"buffer_size is {collection.buffer_size}, but an update eats batch_size, {size}: give "
            "at least that."
        )
    return size


def begin(
    agent: Settings, phase: str, state: State, store: Store, normaliser: Any, rng: Any
) -> tuple[State, Store]:
    """What is computed outside of updates: a covariance, statistics, columns of the store.

    It runs before a phase and every `begin_every` updates of it. Columns are not saved: where a run
    on logged data is resumed it runs once more for them alone, so they may depend on nothing that
    the phase changes.
    """
    own = getattr(agent, "begin", None)
    return (state, store) if own is None else own(phase, state, store, normaliser, rng)


def answers(agent: Settings, name: str) -> bool:
    """Whether an agent can be asked this; a setting of the same name is no answer."""
    own = callable(getattr(agent, name, None))
    return own or (name in BY_REPRESENTATION and hasattr(agent, "representation"))


def answer(agent: Settings, name: str, state: State, *inputs: jax.Array) -> jax.Array:
    """An agent's own, or that of its representation, if this has a density."""
    own = getattr(agent, name, None)
    if callable(own):
        return own(state, *inputs)
    asked = density(agent.representation)
    if name == "log_ratio":
        *pair, next_observation = inputs
        inputs = compared(asked, state.representation)(*pair), next_observation
    return getattr(asked, name)(state.representation, *inputs)


def draw(agent: Settings, phase: str, store: Store, rng: Any) -> Drawn:
    """What an update is given: an agent's own choice, the latest rows in order, or a batch."""
    own = getattr(agent, "draw", None)
    if own is not None:
        return own(phase, store, rng)
    if on_policy(agent, phase):
        rows = join(store.latest(store.batch_size))
        return Drawn(rows.reshape(-1, store.envs, rows.shape[-1]))
    sample = store.sample(rng)
    return Drawn(sample.rows, columns=sample.columns)
