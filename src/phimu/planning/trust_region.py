"""A step within a trust region: natural gradient by conjugate gradient, then a line search.

Parameters are one vector here (`jax.flatten_util.ravel_pytree`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from phimu.errors import InputError, at_least
from phimu.networks import norm
from phimu.policies import Gaussian
from phimu.types import Metrics

Product = Callable[[jax.Array], jax.Array]
# A Gaussian for each of B observations: mean [B, action_dim], log standard deviation [action_dim].
Gaussians = tuple[jax.Array, jax.Array]


def conjugate_gradient(
    product: Product, b: jax.Array, iterations: int, tolerance: float = 1e-10
) -> jax.Array:
    """x of A x = b for a positive definite A, of which only the product A x is known.

    It stops after so many `iterations`, or once |b - A x|^2 is below `tolerance`.
    """

    def going_on(carried: Any) -> jax.Array:
        done, *_, squared = carried
        return (done < iterations) & (squared >= tolerance)

    def better(carried: Any) -> Any:
        done, x, residual, direction, squared = carried
        image = product(direction)
        length = squared / jnp.vdot(direction, image)
        x, residual = x + length * direction, residual - length * image
        now = jnp.vdot(residual, residual)
        return done + 1, x, residual, residual + now / squared * direction, now

    first = 0, jnp.zeros_like(b), b, b, jnp.vdot(b, b)
    return jax.lax.while_loop(going_on, better, first)[1]


def divergence(one: Gaussians, other: Gaussians) -> jax.Array:
    """KL(one, other), mean over the observations."""
    (mean, log_std), (other_mean, other_log_std) = one, other
    log_std, other_log_std = (jnp.broadcast_to(x, mean.shape) for x in (log_std, other_log_std))
    spread = jnp.exp(2 * (log_std - other_log_std))
    distance = ((mean - other_mean) * jnp.exp(-other_log_std)) ** 2
    each = other_log_std - log_std + 0.5 * (spread + distance - 1.0)
    return jnp.mean(jnp.sum(each, axis=-1))


def fisher_product(
    gaussians: Callable[[jax.Array], Gaussians], parameters: jax.Array, damping: float
) -> Product:
    """v -> (F + damping I) v, with F the Hessian of the mean KL from the policy at `parameters`.

    There the first derivatives of the KL vanish, so F = J' M J with the Jacobian J of mean and log
    standard deviation and M the KL's Hessian in those: 1 / (B std^2) and 2.
    """
    (mean, log_std), backward = jax.vjp(gaussians, parameters)
    # J v is the transpose of u -> J' u: networks have a backward pass of their own, and no forward
    # mode beside it.
    forward = jax.vjp(lambda *u: backward(u)[0], mean, log_std)[1]
    weight = jnp.broadcast_to(jnp.exp(-2 * log_std), mean.shape) / mean.shape[0]

    def product(v: jax.Array) -> jax.Array:
        of_mean, of_log_std = forward(v)
        return backward((weight * of_mean, 2 * of_log_std))[0] + damping * v

    return product


def longest_step(direction: jax.Array, product: Product, max_kl: float) -> jax.Array:
    """As far along `direction` as the quadratic 1/2 x' (F + damping I) x allows; 0 of 0."""
    quadratic = 0.5 * jnp.vdot(direction, product(direction))
    return direction * jnp.sqrt(max_kl / jnp.maximum(quadratic, jnp.finfo(direction.dtype).tiny))


class Found(NamedTuple):
    """What a line search has found; with nothing accepted, what there was before."""

    parameters: jax.Array
    share: jax.Array  # of the step: 1, 1/2, 1/4, ...; 0 if none was accepted


def line_search(
    measure: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    parameters: jax.Array,
    step: jax.Array,
    slope: jax.Array,
    backtracks: int,
    accept_ratio: float,
    kl_limit: float | None,
) -> Found:
    """The first of `step`, a half of it, a quarter, ... that improves by as much as it should.

    `measure` gives an objective, to be increased, and the KL; `slope` is its gradient. A step is
    taken if it improves the objective, by more than `accept_ratio` of what the slope promises, and
    if the KL is within `kl_limit`.
    """
    before, promised = measure(parameters)[0], jnp.vdot(slope, step)

    def good(share: jax.Array) -> jax.Array:
        objective, kl = measure(parameters + share * step)
        gain = objective - before
        good = (gain > 0) & (gain > accept_ratio * share * promised)  # never, if it is no number
        return good if kl_limit is None else good & (kl <= kl_limit)

    def going_on(carried: tuple[jax.Array, jax.Array]) -> jax.Array:
        tried, found = carried
        return (tried < backtracks) & ~found

    def again(carried: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        tried = carried[0]
        return tried + 1, good(0.5**tried)

    tried, found = jax.lax.while_loop(going_on, again, (jnp.int32(0), jnp.asarray(False)))
    share = jnp.where(found, 0.5 ** (tried - 1), 0.0).astype(step.dtype)
    return Found(jnp.where(found, parameters + share * step, parameters), share)


@dataclass(frozen=True)
class TrustRegion:
    """How far a policy moves in one step, and how that step is found."""

    max_kl: float = 0.01
    """The mean KL that a step aims at: the size of the trust region."""
    kl_slack: float | None = 1.5
    """A step whose KL is above this times max_kl is made shorter; none: any KL will do."""
    damping: float = 0.1
    """What is added to the diagonal of the Fisher matrix."""
    cg_iterations: int = 10
    """Steps of conjugate gradient."""
    backtracks: int = 10
    """How often the line search tries, each time half as far."""
    accept_ratio: float = 0.1
    """A step has to gain more than this share of what the gradient promises."""

    def __post_init__(self) -> None:
        at_least(1, cg_iterations=self.cg_iterations, backtracks=self.backtracks)
        for name in ("max_kl", "damping"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} is {getattr(self, name)}: give a positive number.")

    def step(
        self, actor: Gaussian, observation: jax.Array, action: jax.Array, advantage: jax.Array
    ) -> tuple[Gaussian, Metrics]:
        """The policy after a step by rows [B, .]; the same if no step is good enough."""
        parameters, restored = ravel_pytree(actor)
        old, old_log_density = actor(observation), actor.log_density(observation, action)

        def surrogate(parameters: jax.Array) -> jax.Array:
            log_density = restored(parameters).log_density(observation, action)
            return jnp.mean(jnp.exp(log_density - old_log_density) * advantage)

        def measure(parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
            return surrogate(parameters), divergence(old, restored(parameters)(observation))

        slope = jax.grad(surrogate)(parameters)
        product = fisher_product(lambda p: restored(p)(observation), parameters, self.damping)
        direction = conjugate_gradient(product, slope, self.cg_iterations)
        step = longest_step(direction, product, self.max_kl)
        limit = None if self.kl_slack is None else self.kl_slack * self.max_kl
        search = self.backtracks, self.accept_ratio, limit
        found = line_search(measure, parameters, step, slope, *search)
        gained, kl = measure(found.parameters)
        metrics = {
            "policy_loss": -gained,
            "divergence": kl,
            "step_share": found.share,
            "actor_gradient": norm(slope),
        }
        return restored(found.parameters), metrics
