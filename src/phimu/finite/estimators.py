"""Maximum likelihood and the two contrastive losses of section 2.2, on finite data.

A model is its log ratio, log f(s'|s,a) / p(s'): [S, A, S]. All three losses have one interface, so
that an algorithm takes `loss=ranking` and Rep-UCB is the same with `loss=maximum_likelihood`. They
give one number per transition: totals over a growing dataset can be kept up to date.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from phimu.finite.mdp import FiniteMDP
from phimu.types import Array


class Sample(NamedTuple):
    """n transitions, each with K negatives of its own: only how often each s' is among them."""

    observation: Array  # [n], integers
    action: Array  # [n]
    next_observation: Array  # [n]
    negatives: Array  # [n, S], floats, rows sum to K


Loss = Callable[[Array, Sample, Array, Array], Array]


def maximum_likelihood(
    rows: Array, sample: Sample, base_measure: Array, log_normaliser: Array
) -> Array:
    """log Z(s, a) - log f(s'|s,a) / p(s') of log ratios `rows` [n, S], one per transition: [n].

    Z is summed exactly, which only a finite MDP allows. Neither negatives nor normaliser are used.
    """
    del log_normaliser
    return logsumexp(rows, axis=1, b=base_measure[None]) - _positive(rows, sample)


def ranking(rows: Array, sample: Sample, base_measure: Array, log_normaliser: Array) -> Array:
    """Equation (ranking): pick the true s' out of K + 1: [n]."""
    del base_measure, log_normaliser
    positive = _positive(rows, sample)
    total = jnp.logaddexp(positive, logsumexp(rows, axis=1, b=sample.negatives))
    # A model that rules out what happened loses, even if it rules out all negatives too.
    return jnp.where(jnp.isneginf(positive), jnp.inf, total - positive)


def binary(rows: Array, sample: Sample, base_measure: Array, log_normaliser: Array) -> Array:
    """Equation (binary): tell s' from noise one by one, h = f e^-c / (f e^-c + K): [n].

    c is one number for all (s, a), which is why Z must not depend on them.
    """
    del base_measure
    shift = log_normaliser + jnp.log(sample.negatives.sum(axis=1))
    real = jax.nn.softplus(shift - _positive(rows, sample))
    return real + (sample.negatives * jax.nn.softplus(rows - shift[:, None])).sum(axis=1)


LOSSES: dict[str, Loss] = {
    "maximum_likelihood": maximum_likelihood,
    "ranking": ranking,
    "binary": binary,
}


def _positive(rows: Array, sample: Sample) -> Array:
    return jnp.take_along_axis(rows, sample.next_observation[:, None], axis=1)[:, 0]


def draw(
    rng: np.random.Generator, mdp: FiniteMDP, pairs: np.ndarray, size: int, negatives: int
) -> Sample:
    """`size` transitions from (s, a) ~ `pairs` [S, A], each with `negatives` draws of p."""
    observations, actions = pairs.shape
    index = rng.choice(pairs.size, size, p=pairs.reshape(-1))
    observation, action = np.divmod(index, actions)
    below = np.cumsum(mdp.transition[observation, action], axis=1) <= rng.uniform(size=(size, 1))
    return Sample(
        observation,
        action,
        np.minimum(below.sum(axis=1), observations - 1),
        rng.multinomial(negatives, mdp.base_measure, size).astype(np.float64),
    )
