"""The best model of a class: of a finite set, as in the theorems, or by gradient on factors."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.scipy.special import logsumexp

from phimu.finite.estimators import Loss, Sample, binary
from phimu.finite.precision import exact
from phimu.types import Array

MOST_STEPS = 2_000  # of L-BFGS


class Factors(NamedTuple):
    """What the gradient moves; a class says what model they stand for."""

    phi: Array  # [S, A, d]
    mu: Array  # [S, d]


Model = Callable[[Any, Array], Array]  # parameters, base measure -> log ratio [S, A, S]


def linear_features(factors: Factors, base_measure: Array) -> tuple[Array, Array]:
    """phi on the simplex and mu with E_p mu = 1, from free numbers: a linear MDP, so Z = 1."""
    phi = jax.nn.softmax(factors.phi, axis=2)
    return phi, jax.nn.softmax(factors.mu, axis=0) / base_measure[:, None]


def linear(factors: Factors, base_measure: Array) -> Array:
    """log <phi, mu> of `linear_features`."""
    phi, mu = linear_features(factors, base_measure)
    return jnp.log(phi @ mu.T)


def exponential(factors: Factors, base_measure: Array) -> Array:
    """<phi, mu>, so that f / p = exp(<phi, mu>): Z differs from one (s, a) to the next."""
    del base_measure
    return factors.phi @ factors.mu.T


def table(logits: Array, base_measure: Array) -> Array:
    """A number for each (s, a, s'), normalised: phi = e_(s,a) and all mu that sum to one."""
    return jax.nn.log_softmax(logits, axis=2) - jnp.log(base_measure)[None, None]


def log_marginal(log_ratio: Array, base_measure: Array) -> Array:
    """log Z(s, a), the logarithm of the integral of f: [S, A]."""
    return logsumexp(log_ratio, axis=2, b=base_measure[None, None])


def probabilities(log_ratio: Array, base_measure: Array) -> Array:
    """The conditional model f / Z: [S, A, S]."""
    normalised = log_ratio - log_marginal(log_ratio, base_measure)[..., None]
    return jnp.exp(normalised) * base_measure[None, None]


class Fit(NamedTuple):
    """Where the gradient ended."""

    parameters: Any
    log_normaliser: Array  # c of the binary loss; 0 with the others
    gradient: Array  # its largest entry


@partial(exact, static=("loss", "model", "tolerance"))
def fit(
    loss: Loss,
    model: Model,
    first: Any,
    sample: Sample,
    base_measure: Array,
    tolerance: float,
) -> Fit:
    """From the parameters `first` downhill until no entry of the gradient exceeds `tolerance`."""

    def objective(parameters: tuple[Any, Array]) -> Array:
        rows = model(parameters[0], base_measure)[sample.observation, sample.action]
        return loss(rows, sample, base_measure, parameters[1]).mean()

    (parameters, log_normaliser), gradient = descend(objective, (first, jnp.zeros(())), tolerance)
    return Fit(parameters, log_normaliser, gradient)


@partial(exact, static=("loss",))
def total_losses(loss: Loss, log_ratio: Array, sample: Sample, base_measure: Array) -> Array:
    """The loss of each candidate, log ratios [M, S, A, S], summed over the transitions: [M].

    The model of the theorems is the one with the smallest. For the binary loss each has the
    normaliser that suits it best; the other losses have none, and totals of two samples add up.
    """

    def total(one: Array) -> Array:
        rows = one[sample.observation, sample.action]

        def objective(log_normaliser: Array) -> Array:
            return loss(rows, sample, base_measure, log_normaliser).sum()

        return objective(_lowest(objective) if loss is binary else jnp.zeros(()))

    return jax.lax.map(total, log_ratio)


def _lowest(convex: Callable[[Array], Array]) -> Array:
    """Where a convex function of one number is lowest, by halving [-50, 50]."""
    slope = jax.grad(convex)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        rising = slope(middle) > 0
        return jnp.where(rising, low, middle), jnp.where(rising, middle, high)

    low, high = jax.lax.fori_loop(0, 50, halve, (jnp.array(-50.0), jnp.array(50.0)))
    return (low + high) / 2


def descend(objective: Callable[[Any], Array], first: Any, tolerance: float) -> tuple[Any, Array]:
    """L-BFGS: the point, and the largest entry of its gradient."""
    solver = optax.lbfgs(memory_size=30)
    value_and_gradient = optax.value_and_grad_from_state(objective)

    def unfinished(step: tuple[Any, Any, Array, Array]) -> Array:
        return (step[2] > tolerance) & (step[3] < MOST_STEPS)

    def move(step: tuple[Any, Any, Array, Array]) -> tuple[Any, Any, Array, Array]:
        point, state, _, steps = step
        value, gradient = value_and_gradient(point, state=state)
        change, state = solver.update(
            gradient, state, point, value=value, grad=gradient, value_fn=objective
        )
        largest = optax.tree.norm(optax.tree.get(state, "grad"), ord=jnp.inf)
        return optax.apply_updates(point, change), state, largest, steps + 1

    begin = (first, solver.init(first), jnp.inf, jnp.zeros((), int))
    point, _, largest, _ = jax.lax.while_loop(unfinished, move, begin)
    return point, largest
