"""Maximum likelihood and the two contrastive losses of section 2.2, and the best model by each.

A model is its log ratio, log f(s'|s,a) / p(s'): [S, A, S]. All three losses have one interface, so
that an algorithm takes `loss=ranking` and Rep-UCB is the same with `loss=maximum_likelihood`. They
give one number per transition: totals over a growing dataset can be kept up to date.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.scipy.special import logsumexp

from phimu.finite import exact
from phimu.finite.collecting import Transitions
from phimu.types import Array

MOST_STEPS = 2_000  # of L-BFGS

Loss = Callable[[Array, Transitions, Array, Array], Array]


def maximum_likelihood(
    rows: Array, sample: Transitions, base_measure: Array, log_normaliser: Array
) -> Array:
    """log Z(s, a) - log f(s'|s,a) / p(s') of log ratios `rows` [n, S], one per transition: [n].

    Z is summed exactly, which only a finite MDP allows. Neither negatives nor normaliser are used.
    """
    del log_normaliser
    return logsumexp(rows, axis=1, b=base_measure[None]) - _positive(rows, sample)


def ranking(rows: Array, sample: Transitions, base_measure: Array, log_normaliser: Array) -> Array:
    """Equation (ranking): pick the true s' out of K + 1: [n]."""
    del base_measure, log_normaliser
    positive = _positive(rows, sample)
    total = jnp.logaddexp(positive, logsumexp(rows, axis=1, b=sample.negatives))
    # A model that rules out what happened loses, even if it rules out all negatives too.
    return jnp.where(jnp.isneginf(positive), jnp.inf, total - positive)


def binary(rows: Array, sample: Transitions, base_measure: Array, log_normaliser: Array) -> Array:
    """Equation (binary): tell s' from noise one by one, h = f e^-c / (f e^-c + K): [n].

    c is one number for all (s, a), which is why Z must not depend on them.
    """
    del base_measure
    shift = log_normaliser + jnp.log(sample.negatives.sum(axis=1))
    real = jax.nn.softplus(shift - _positive(rows, sample))
    return real + (sample.negatives * jax.nn.softplus(rows - shift[:, None])).sum(axis=1)


def _positive(rows: Array, sample: Transitions) -> Array:
    return jnp.take_along_axis(rows, sample.next_observation[:, None], axis=1)[:, 0]


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
    loss: Loss, model: Model, first: Any, sample: Transitions, base_measure: Array, tolerance: float
) -> Fit:
    """By L-BFGS from the parameters `first` until no entry of the gradient exceeds `tolerance`."""

    def objective(point: tuple[Any, Array]) -> Array:
        rows = model(point[0], base_measure)[sample.observation, sample.action]
        return loss(rows, sample, base_measure, point[1]).mean()

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

    solver = optax.lbfgs(memory_size=30)
    value_and_gradient = optax.value_and_grad_from_state(objective)
    start = first, jnp.zeros(())
    begin = start, solver.init(start), jnp.inf, jnp.zeros((), int)
    (parameters, log_normaliser), _, largest, _ = jax.lax.while_loop(unfinished, move, begin)
    return Fit(parameters, log_normaliser, largest)
