"""The words every layer shares: sizes, a batch, where it comes from, what an update eats."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np

Array: TypeAlias = Any  # NumPy on the host, JAX inside a compiled step
Metrics = dict[str, jax.Array]
Act = Callable[[np.ndarray], np.ndarray]  # observation -> action as agents see it, on the host


class Spec(NamedTuple):
    """Sizes of a task. Observations are flat float32 vectors, actions lie in [-1, 1]^action_dim.

    Where they are `discrete`, an action is one of action_dim, as a one-hot vector.
    """

    observation_dim: int
    action_dim: int
    discrete: bool = False

    @property
    def pair_dim(self) -> int:
        """Of (s, a)."""
        return self.observation_dim + self.action_dim

    def random_action(self, rng: np.random.Generator) -> np.ndarray:
        """Uniformly random: [action_dim]."""
        if self.discrete:
            return np.eye(self.action_dim)[rng.integers(self.action_dim)]
        return rng.uniform(-1, 1, self.action_dim)

    @property
    def known(self) -> "Known | None":
        """What can be computed of the task without learning it; None but in a `TaskSpec`."""
        return None


class Known(NamedTuple):
    """A task's own reward and end, as JAX functions of observations as the environment gives them.

    An agent that plans with a model of the dynamics learns the reward only where there is none.
    """

    reward: Callable[[Array, Array, Array], Array]  # r(s, a, s') [...], of a in [-1, 1]
    terminated: Callable[[Array], Array] | None = None  # of s', [...] bool; None: it never ends


class TaskSpec(Spec):
    """The same sizes, from a task of which more is known; it compares as its sizes do."""

    _known: Known | None = None

    @property
    def known(self) -> Known | None:
        return self._known

    def knowing(self, known: Known | None) -> "TaskSpec":
        spec = TaskSpec(*self)
        spec._known = known
        return spec


class Batch(NamedTuple):
    """B transitions (s, a, r, s').

    `terminated` is 1.0 where s' has no future, so no bootstrap; `truncated` where the episode was
    cut there, by a time limit for instance, though s' has one.
    """

    observation: Array  # [B, observation_dim]
    action: Array  # [B, action_dim], in [-1, 1] or one-hot
    reward: Array  # [B]
    next_observation: Array  # [B, observation_dim]
    terminated: Array  # [B], float
    truncated: Array  # [B], float


class Sample(NamedTuple):
    """B transitions of a store, and where they lie in it."""

    rows: Array  # [B, width]: one array goes to a device faster than six
    index: Array  # [B]
    columns: dict[str, Array]  # [B, ...] each: what was computed once of these rows


class Store(Protocol):
    """Transitions to learn from.

    `rng` is a NumPy generator for a store on the host, a JAX key for one on a device, where draws
    are part of the compiled update.
    """

    spec: Spec
    batch_size: int

    @property
    def envs(self) -> int:
        """Environments that took turns to fill it; 1 where an episode lies in one piece."""

    def __len__(self) -> int: ...

    @property
    def rewards(self) -> Array:
        """Of all its transitions: [N]."""

    def sample(self, rng: Any) -> Sample:
        """`batch_size` transitions, uniformly and with replacement."""

    def sample_next(self, size: int, rng: Any) -> Array:
        """Next observations of the whole store: [size, observation_dim]."""

    def sample_random_next(self, size: int, rng: Any) -> Array:
        """Next observations of random trajectories: [size, observation_dim]."""

    def geometric(self, chance: float, rng: Any) -> Any:
        """1, or with this `chance` one more, and so on: how many steps later to look."""

    def later(self, index: Array, steps: Any) -> tuple[Array, Array]:
        """s' of the row `steps` rows later in the episode, and whether it goes on that long."""

    def ahead(self, index: Array, steps: int, discount: float) -> tuple[Array, Array, Array]:
        """n-step returns of these rows: the discounted sum [B] of the rewards of as many of `steps`
        rows as the episode has, the last one's s', and discount^(rows - 1), or 0 where that ended.
        """

    def latest(self, size: int) -> Batch:
        """The last `size` transitions, in order; [T * envs, ...], so row i + envs follows row i."""

    def pairs(self, size: int, rng: Any) -> tuple[Array, Array]:
        """Up to `size` distinct (observation, action) rows; all of them if there are no more."""


class Drawn(NamedTuple):
    """What `draw` takes from a store for one update."""

    rows: Array  # [B, width], as the store keeps them; [T, envs, width] where the order matters
    # Further observations [., observation_dim], such as negatives; then anything else, such as a
    # frozen phi of these rows.
    others: dict[str, Array] = {}  # noqa: RUF012 (nothing changes it)
    columns: dict[str, Array] = {}  # noqa: RUF012


class Feed(NamedTuple):
    """The same as `update` gets it: in columns, observations normalised."""

    batch: Batch
    others: dict[str, jax.Array] = {}  # noqa: RUF012
    columns: dict[str, jax.Array] = {}  # noqa: RUF012
