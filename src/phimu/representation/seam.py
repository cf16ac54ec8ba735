"""What an agent needs of a representation; `Contrastive` is one, and others fit in its place."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from phimu.errors import InputError
from phimu.types import Drawn, Feed, Metrics, Sample, Spec, Store

Phi = Callable[[jax.Array, jax.Array], jax.Array]  # (observation, action) -> [B, d]


class Representation(Protocol):
    """A frozen dataclass of settings; its state is a pytree that no planner is ever handed.

    Where it has a density, `log_ratio(state, phi, next_observation)` is log P(s'|s,a)/p(s') up to a
    number of (s, a); `mu(state, next_observation)` and `temperature(state)` are its parts. One that
    compares s' with another function of (s, a) than phi has that as `compared(state)`. Where
    something in it normalises phi, `unnormalised_phi(state)` is the function without that.

    Where phi is of what a policy does, `needs_next_action` is true, and an update finds the
    policy's a' at s' in `feed.columns["next_action"]`.
    """

    @property
    def feature_dim(self) -> int: ...

    @property
    def bonus_prediction_weight(self) -> float:
        """0 for a phi that need not predict the bonus."""

    def init(self, spec: Spec, key: jax.Array) -> Any: ...

    def draw(self, store: Store, sample: Sample, rng: Any) -> Drawn:
        """What an update takes: the sample, and what s' is told apart from, if it learns by that.

        A planner may learn from the same sample.
        """

    def update(
        self, state: Any, feed: Feed, key: jax.Array, bonus: jax.Array | None = None
    ) -> tuple[Any, Metrics]:
        """One step. `bonus` of the first rows is for a phi that is to predict it linearly."""

    def phi(self, state: Any) -> Phi:
        """The function that the planner reads."""


def bonus_input(representation: Any, name: str, state: Any) -> Phi:
    """What the bonus is of: `Elliptical.bonus_features` says what each name means."""
    phi = representation.phi(state)
    if name == "unnormalised_phi":
        own = getattr(representation, "unnormalised_phi", None)
        return phi if own is None else own(state)
    if name == "unit_phi":
        return lambda s, a: _unit(phi(s, a))
    return phi


def _unit(phi: jax.Array) -> jax.Array:
    return phi / jnp.maximum(jnp.linalg.norm(phi, axis=-1, keepdims=True), 1e-12)


def needs_next_action(representation: Any) -> bool:
    """Whether its phi is of a policy."""
    return getattr(representation, "needs_next_action", False)


def compared(representation: Any, state: Any) -> Phi:
    """What its `log_ratio` compares with s'."""
    return getattr(representation, "compared", representation.phi)(state)


def density(representation: Any) -> Any:
    """A representation that has one."""
    if not hasattr(representation, "log_ratio"):
        name = type(representation).__name__
        raise InputError(f"The representation {name} has no density: ask one that has.")
    return representation
