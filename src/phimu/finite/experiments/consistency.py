"""The consistency lemma: how far NCE is from maximum likelihood as K grows.

Three classes of models. `linear`: phi on the simplex and E_p mu = 1, both learned, so Z = 1: the
class of the paper. `exponential`: f / p = exp(<phi, mu>) with a known phi, whose Z(s, a) differs
from pair to pair; the truth is one of them. `exponential / Z`: the very same conditional models,
each divided by its Z. Likelihood and ranking cannot tell the last two apart; binary can. In both
the likelihood is concave in mu, so what is found is its maximum.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from phimu.errors import InputError
from phimu.finite import models
from phimu.finite.estimators import Loss, Sample, binary, draw, maximum_likelihood, ranking
from phimu.finite.fitting import (
    Factors,
    Model,
    exponential,
    fit,
    linear,
    log_marginal,
    probabilities,
)
from phimu.finite.mdp import FiniteMDP
from phimu.finite.precision import exact
from phimu.types import Array

OBSERVATIONS, ACTIONS, FEATURES = 6, 3, 2
TOLERANCE = 1e-6  # of the gradient
CLASSES = ("linear", "exponential / Z", "exponential")
CONTRASTS: dict[str, Loss] = {"ranking": ranking, "binary": binary}


class Row(NamedTuple):
    """Total variations, means over the data's pairs (s, a)."""

    models: str  # one of CLASSES
    loss: str
    seed: int
    negatives: int
    to_likelihood: float  # from the NCE estimate to the maximum likelihood estimate
    to_truth: float  # from the NCE estimate to P
    likelihood_to_truth: float
    gradient: float  # its largest entry where the search for the NCE estimate ended


class Problem(NamedTuple):
    """One seed's, of one class."""

    mdp: FiniteMDP
    phi: Array  # the known one of the exponential classes [S, A, d]
    divided: Array  # by Z: 1.0, or not: 0.0
    first: Any  # where the maximum of the likelihood is searched from
    sample: Sample  # `negatives` has an axis in front, for the values of K
    pairs: Array  # the share of each (s, a) in the data [S, A]


def consistency(seeds: int, transitions: int, negatives: Sequence[int]) -> list[Row]:
    if seeds < 1 or transitions < 1:
        raise InputError(f"seeds is {seeds} and transitions is {transitions}: give at least 1.")
    if not negatives or list(negatives) != sorted({*negatives}) or negatives[0] < 1:
        raise InputError(f"negatives is {tuple(negatives)}: give rising numbers from 1.")
    of_linear = [_linear_problem(seed, transitions, negatives) for seed in range(seeds)]
    plain = [_exponential_problem(seed, transitions, negatives) for seed in range(seeds)]
    divided = [problem._replace(divided=np.float64(1)) for problem in plain]
    rows = _rows(CLASSES[:1], _distances(_linear, of_linear), seeds, negatives)
    return rows + _rows(CLASSES[1:], _distances(_exponential, divided + plain), seeds, negatives)


def _linear_problem(seed: int, transitions: int, negatives: Sequence[int]) -> Problem:
    rng = np.random.default_rng([seed, 1])  # other numbers than the MDP's own
    mdp = models.random_low_rank(OBSERVATIONS, ACTIONS, FEATURES, seed=seed)
    first = Factors(rng.normal(size=mdp.phi.shape), rng.normal(size=mdp.mu.shape))
    return _problem(rng, mdp, mdp.phi, first, transitions, negatives)


def _exponential_problem(seed: int, transitions: int, negatives: Sequence[int]) -> Problem:
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(OBSERVATIONS, ACTIONS, FEATURES))
    f = np.exp(phi @ rng.normal(size=(FEATURES, OBSERVATIONS)))
    start = models.uniform(OBSERVATIONS)
    mdp = models.tabular(f / f.sum(axis=2, keepdims=True), np.zeros(phi.shape[:2]), start, 0.9)
    first = np.zeros((OBSERVATIONS, FEATURES))
    return _problem(rng, mdp, phi, first, transitions, negatives)


def _problem(
    rng: np.random.Generator,
    mdp: FiniteMDP,
    phi: np.ndarray,
    first: Any,
    transitions: int,
    negatives: Sequence[int],
) -> Problem:
    """With all pairs equally likely. The negatives of a smaller K are among those of a larger."""
    everywhere = np.full(mdp.reward.shape, 1 / mdp.reward.size)
    sample = draw(rng, mdp, everywhere, transitions, 0)
    more = np.diff(negatives, prepend=0)
    drawn = [rng.multinomial(size, mdp.base_measure, transitions) for size in more]
    sample = sample._replace(negatives=np.cumsum(drawn, axis=0).astype(np.float64))
    pairs = np.zeros(mdp.reward.shape)
    np.add.at(pairs, (sample.observation, sample.action), 1 / transitions)
    return Problem(mdp, phi, np.float64(0), first, sample, pairs)


def _linear(problem: Problem) -> Model:
    del problem
    return linear


def _exponential(problem: Problem) -> Model:
    def model(mu: Array, base_measure: Array) -> Array:
        ratio = exponential(Factors(problem.phi, mu), base_measure)
        return ratio - problem.divided * log_marginal(ratio, base_measure)[..., None]

    return model


def _distances(
    model: Callable[[Problem], Model], problems: Sequence[Problem]
) -> dict[str, tuple[np.ndarray, ...]]:
    """The last four fields of Row by loss, each [problems, values of K].

    Every NCE estimate is searched for from the likelihood's, so that where there is more than one
    maximum all are of the same.
    """

    def estimate(problem: Problem, loss: Loss, first: Any, negatives: Array) -> tuple[Any, ...]:
        base = problem.mdp.base_measure
        sample = problem.sample._replace(negatives=negatives)
        found = fit(loss, model(problem), first, sample, base, TOLERANCE)
        rows = probabilities(model(problem)(found.parameters, base), base)
        return found.parameters, rows, found.gradient

    @exact
    @jax.vmap
    def likelihood(problem: Problem) -> tuple[Any, ...]:
        none = problem.sample.negatives[0]
        return estimate(problem, maximum_likelihood, problem.first, none)[:2]

    def compare(loss: Loss, problem: Problem, best: Any, rows: Array, negatives: Array) -> Any:
        _, found, gradient = estimate(problem, loss, best, negatives)
        truth = problem.mdp.transition
        between = ((found, rows), (found, truth), (rows, truth))
        return *(_distance(one, two, problem.pairs) for one, two in between), gradient

    stacked: Problem = jax.tree.map(lambda *leaves: np.stack(leaves), *problems)
    best, rows = likelihood(stacked)
    distances = {}
    for name, loss in CONTRASTS.items():
        every_size = jax.vmap(partial(compare, loss), in_axes=(None, None, None, 0))
        every = exact(jax.vmap(every_size))
        distances[name] = every(stacked, best, rows, stacked.sample.negatives)
    return distances


def _distance(one: Array, two: Array, pairs: Array) -> Array:
    return 0.5 * (pairs * abs(one - two).sum(axis=2)).sum()


def _rows(
    names: Sequence[str],
    distances: dict[str, tuple[np.ndarray, ...]],
    seeds: int,
    negatives: Sequence[int],
) -> list[Row]:
    return [
        Row(name, loss, seed, size, *(float(part[place * seeds + seed, k]) for part in found))
        for place, name in enumerate(names)
        for loss, found in distances.items()
        for seed in range(seeds)
        for k, size in enumerate(negatives)
    ]
