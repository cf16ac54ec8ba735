"""What an agent needs of a representation; `Contrastive` is one, and others fit in its place."""

from collections.abc import Callable
from typing import Any, Protocol

import jax

from phimu.types import Drawn, Feed, Metrics, Spec, Store

Phi = Callable[[jax.Array, jax.Array], jax.Array]  # (observation, action) -> [B, d]


class Representation(Protocol):
    """A frozen dataclass of settings; its state is a pytree that no planner is ever handed.

    Where it has a density, `log_ratio(state, phi, next_observation)` is log P(s'|s,a)/p(s').
    """

    @property
    def feature_dim(self) -> int: ...

    @property
    def bonus_prediction_weight(self) -> float:
        """0 for a phi that need not predict the bonus."""

    def init(self, spec: Spec, key: jax.Array) -> Any: ...

    def draw(self, store: Store, rng: Any) -> Drawn:
        """What an update takes: a batch, and what s' is told apart from, if that is how it learns.

        A planner may learn from the same batch.
        """

    def update(
        self, state: Any, feed: Feed, key: jax.Array, bonus: jax.Array | None = None
    ) -> tuple[Any, Metrics]:
        """One step. `bonus` of the first rows is for a phi that is to predict it linearly."""

    def phi(self, state: Any) -> Phi:
        """The function that the planner reads."""
