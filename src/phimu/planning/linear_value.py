"""V(s, t) as a linear function of the observation, its square and the time: a ridge regression."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from phimu.errors import InputError
from phimu.planning.advantages import gae
from phimu.types import Batch, Spec

CLIP = 10.0  # of the observation's numbers
TIME = 100.0  # steps that are one unit of time


@dataclass(frozen=True)
class LinearValue:
    """What advantages are measured by; fitted anew to the returns of every batch."""

    discount: float = 0.99
    """gamma."""
    gae_lambda: float = 0.95
    """lambda of the advantages: 0 is the TD error, 1 the return minus V(s)."""
    bootstrap_time_limits: bool = True
    """Whether an episode that a time limit cuts goes on with V(s'), or has no value then."""
    value_ridge: float = 1e-5
    """Of the regression, whose columns have a mean square of 1."""

    def __post_init__(self) -> None:
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}: give a number from 0 to 1.")
        if self.value_ridge <= 0:
            raise InputError(f"value_ridge is {self.value_ridge}: give a positive number.")

    def init(self, spec: Spec) -> jax.Array:
        """The coefficients, which are all there is."""
        return jnp.zeros(2 * spec.observation_dim + 4)

    def __call__(
        self, coefficients: jax.Array, observation: jax.Array, age: jax.Array
    ) -> jax.Array:
        """V of observations [..., observation_dim] that many steps [...] after their start."""
        return features(observation, age) @ coefficients

    def advantages(
        self, coefficients: jax.Array, batch: Batch, age: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Of rows [T, N] in order: their advantages, and the returns that V is to be fitted to.

        The return of an episode that is still open goes on with V(s').
        """
        value = self(coefficients, batch.observation, age)
        next_value = self(coefficients, batch.next_observation, age + 1.0)
        advantage, beyond = (
            gae(batch, value, next_value, self.discount, x, self.bootstrap_time_limits)
            for x in (self.gae_lambda, 1.0)
        )
        return advantage, beyond + value

    def fit(self, observation: jax.Array, age: jax.Array, target: jax.Array) -> jax.Array:
        """The coefficients for rows [B, D], [B] and [B].

        Deviation: published code has X'X + 1e-5 I in float64. In float32 that is singular, so here
        columns are divided by the root of their mean square first.
        """
        x = features(observation, age)
        length = jnp.sqrt(jnp.maximum(jnp.mean(x**2, axis=0), 1e-12))
        x = x / jnp.broadcast_to(length, x.shape)
        gram = x.T @ x / x.shape[0] + self.value_ridge * jnp.eye(x.shape[1])
        return jnp.linalg.solve(gram, x.T @ target / x.shape[0]) / length


def features(observation: jax.Array, age: jax.Array) -> jax.Array:
    """[o, o^2, t, t^2, t^3, 1] with o clipped and t in hundreds of steps: [..., 2 D + 4]."""
    o, t = jnp.clip(observation, -CLIP, CLIP), age[..., None] / TIME
    return jnp.concatenate([o, o**2, t, t**2, t**3, jnp.ones_like(t)], axis=-1)
