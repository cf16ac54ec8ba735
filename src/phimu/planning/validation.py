"""Improving a policy for as long as most of several judges agree that it gets better."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from phimu.errors import InputError, at_least
from phimu.types import Metrics

State = TypeVar("State")
# (state, number of the first step, how many steps) -> the state after them and metrics
Steps = Callable[[State, jax.Array, int], tuple[State, Metrics]]


class _Search(NamedTuple):
    """What is carried from one look to the next."""

    state: Any
    metrics: Metrics
    done: jax.Array  # [] int32: steps so far
    best: Any
    returns: jax.Array  # [E]: of the best, by each judge
    kept: jax.Array  # [] int32: steps that led to the best


@dataclass(frozen=True)
class Validation:
    """When steps stop, and which of the policies on the way is kept."""

    validate_every: int = 0
    """Steps of the policy between two looks at its return in each network; 0: none."""
    worse_share: float = 0.3
    """A policy is kept if its return has fallen in at most this share of the networks."""
    validation_patience: int = 25
    """Steps without a policy to keep, after which the round ends with the last one kept."""

    def __post_init__(self) -> None:
        at_least(0, validate_every=self.validate_every)
        at_least(1, validation_patience=self.validation_patience)
        if not 0 <= self.worse_share < 1:
            raise InputError(f"worse_share is {self.worse_share}: give a share from 0 to below 1.")

    def check(self, most: int) -> None:
        """InputError if the last of `most` steps would not be looked at."""
        if self.validate_every and most % self.validate_every:
            raise InputError(
                f"policy_steps is {most}: give a multiple of validate_every, {self.validate_every}."
            )

    def search(
        self, state: State, most: int, steps: Steps[State], judge: Callable[[State], jax.Array]
    ) -> tuple[State, Metrics]:
        """The state to keep after at most so many steps, and metrics.

        `judge` gives returns [E]. They are compared with those of the last state that was kept, at
        first the one before any step.
        """
        zero, every = jnp.int32(0), self.validate_every
        if not every:
            return steps(state, zero, most)

        def going_on(at: _Search) -> jax.Array:
            return (at.done < most) & (at.done - at.kept < self.validation_patience)

        def body(at: _Search) -> _Search:
            state, metrics = steps(at.state, at.done, every)
            now = state, judge(state), at.done + every
            keep = jnp.mean(now[1] < at.returns) <= self.worse_share
            before = at.best, at.returns, at.kept
            kept = jax.tree.map(lambda new, old: jnp.where(keep, new, old), now, before)
            return _Search(state, metrics, now[2], *kept)

        shapes = jax.eval_shape(lambda: steps(state, zero, every)[1])
        blank = {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}
        begun = _Search(state, blank, zero, state, judge(state), zero)
        last = jax.lax.while_loop(going_on, body, begun)
        return last.best, last.metrics | {
            "validation_return": jnp.mean(last.returns),
            "steps_made": last.done.astype(jnp.float32),
            "steps_kept": last.kept.astype(jnp.float32),
        }
