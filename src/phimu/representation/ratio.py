"""The ratio P(s'|s,a) / p(s') as a function of phi and mu, in logarithms.

`Linear` is the paper's text, <phi, mu>: a true linear MDP. `Exponential` is what its
hyperparameter table and the group's code imply, exp(<phi, mu> / temperature).
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

import jax
import jax.numpy as jnp

from phimu.errors import InputError
from phimu.networks import multiply, transposed

TINY = 1e-12  # floor of the linear ratio, so that its logarithm and gradient stay finite


@jax.custom_vjp
def inner(phi: jax.Array, mu: jax.Array) -> jax.Array:
    """<phi, mu> of every pair: [B, K]. As in `networks.product`, all its products are fast ones."""
    return multiply(phi, mu.T)


def _inner_forward(phi: jax.Array, mu: jax.Array) -> tuple[jax.Array, Any]:
    return multiply(phi, mu.T), (phi, mu)


def _inner_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    phi, mu = saved
    return multiply(gradient, mu), multiply(transposed(gradient), phi)


inner.defvjp(_inner_forward, _inner_backward)


@dataclass(frozen=True)
class Exponential:
    """exp(<phi, mu> / temperature). Its integral over s' is free, unless `marginal_weight` says."""

    phi_output: Literal["identity", "elu", "unit_variance", "unit_norm"] = "identity"
    """Last function of phi."""
    mu_output: Literal["identity", "tanh", "sigmoid", "gaussian", "unit_norm", "unit_variance"] = (
        "tanh"
    )
    """Last function of mu; section 4.1 offers sigmoid, gaussian and tanh to bound it."""
    temperature: float = 0.2
    """Divides <phi, mu>."""
    learn_temperature: bool = False
    """Whether the temperature is learned, starting from `temperature`."""
    marginal_weight: float = 0.0
    """Weight of (log int phi mu p)^2, section 4.2."""

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InputError(f"temperature is {self.temperature}: give a positive number.")


@dataclass(frozen=True)
class Linear:
    """<phi, mu> for phi on the simplex (softmax) and positive mu with E_p[mu] = 1.

    The integral over s' is then one by construction.
    """

    mu_output: Literal["softmax", "softplus", "exponential", "sigmoid", "gaussian"] = "softplus"
    """Last function of mu, before it is divided by its mean."""
    balance_weight: float = 0.0
    """Weight of KL(E phi || uniform), which keeps all components of phi in use."""

    def __post_init__(self) -> None:
        offered = get_args(get_type_hints(Linear)["mu_output"])
        if self.mu_output not in offered:
            raise InputError(
                f"mu_output is {self.mu_output!r}: a linear ratio needs a positive one of "
                f"{', '.join(offered)}."
            )

    @property
    def phi_output(self) -> str:
        return "softmax"


Ratio = Exponential | Linear
RATIOS = {"exponential": Exponential, "linear": Linear}


def log_ratio(
    ratio: Ratio,
    phi: jax.Array,
    mu: jax.Array,
    mu_mean: jax.Array | None,
    log_temperature: jax.Array | None,
) -> jax.Array:
    """log P(s'|s,a)/p(s') of every pair of phi [B, d] and mu [K, d]: [B, K].

    `mu_mean` [d] is of the linear ratio, `log_temperature` [] of the exponential one.
    """
    if isinstance(ratio, Linear):
        return jnp.log(inner(phi, mu / _positive(mu_mean)[None, :]) + TINY)
    return inner(phi, mu) / jnp.exp(_given(log_temperature))


def own_log_ratio(phi: jax.Array, mu: jax.Array, mu_mean: jax.Array) -> jax.Array:
    """The linear one of each row of phi with the same row of mu: [B]."""
    return jnp.log(jnp.sum(phi * (mu / _positive(mu_mean)[None, :]), axis=1) + TINY)


def _positive(mu_mean: jax.Array | None) -> jax.Array:
    return jnp.maximum(_given(mu_mean), TINY)


def _given(value: jax.Array | None) -> jax.Array:
    if value is None:
        raise TypeError("the parameters are of another ratio")
    return value
