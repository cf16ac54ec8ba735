"""The words every layer shares: sizes, a batch of transitions, and metrics."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

Array: TypeAlias = Any  # NumPy on the host, JAX inside a compiled step
Metrics = dict[str, jax.Array]
Act = Callable[[np.ndarray], np.ndarray]  # observation -> action in [-1, 1], on the host


class Spec(NamedTuple):
    """Sizes of a task. Observations are flat float32 vectors, actions lie in [-1, 1]^action_dim."""

    observation_dim: int
    action_dim: int


class Batch(NamedTuple):
    """B transitions (s, a, r, s'); `terminated` is 1.0 where s' has no future, so no bootstrap."""

    observation: Array  # [B, observation_dim]
    action: Array  # [B, action_dim], in [-1, 1]
    reward: Array  # [B]
    next_observation: Array  # [B, observation_dim]
    terminated: Array  # [B], float
