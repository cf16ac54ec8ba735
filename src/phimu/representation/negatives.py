"""The noise distribution q(s'): in-batch, from replay, from random trajectories, or a mixture.

Scores are ratios to q itself, so q is also the base measure p of the learned linear MDP.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phimu.errors import InputError
from phimu.types import Array, Store


@dataclass(frozen=True)
class Negatives:
    """What s' is told apart from."""

    negatives: int = 256
    """K: samples drawn besides the batch, shared by its rows."""
    random_share: float = 0.5
    """How many of them come from random trajectories (the warm-up); the rest from replay."""
    in_batch: bool = True
    """Whether the other rows' s' serve as negatives too."""

    def __post_init__(self) -> None:
        if self.negatives < 0 or (self.negatives == 0 and not self.in_batch):
            raise InputError(
                f"negatives is {self.negatives}: give at least 1, or 0 together with in_batch."
            )
        if not 0 <= self.random_share <= 1:
            raise InputError(f"random_share is {self.random_share}: give a share from 0 to 1.")

    def draw(self, store: Store, rng: Any) -> Array:
        """K next observations of the mixture."""
        from_random = round(self.random_share * self.negatives)
        if not from_random:
            return store.sample_next(self.negatives, rng)
        replay = store.sample_next(self.negatives - from_random, rng)
        return np.concatenate([replay, store.sample_random_next(from_random, rng)])

    def count(self, batch_size: int) -> int:
        """How many negatives a row is compared with."""
        return self.negatives + (batch_size - 1 if self.in_batch else 0)

    def share_of_random(self, batch_size: int) -> float:
        """How much of the noise, and so of the base measure, are random trajectories."""
        candidates = self.negatives + (batch_size if self.in_batch else 0)
        return round(self.random_share * self.negatives) / candidates

    def split(self, log_ratios: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Log ratios [B, B + K], the batch's own s' first, as positive [B] and negative [B, M]."""
        size = log_ratios.shape[0]
        positive = jnp.diagonal(log_ratios)
        if not self.in_batch:
            return positive, log_ratios[:, size:]
        own = jnp.eye(size, log_ratios.shape[1], dtype=bool)
        return positive, jnp.where(own, -jnp.inf, log_ratios)
