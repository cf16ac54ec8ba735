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

from phimu.errors import InputError, at_least
from phimu.finite import estimators, exact, models
from phimu.finite.collecting import Transitions, draw
from phimu.finite.estimators import Factors, Fit, Loss, Model
from phimu.finite.mdp import FiniteMDP, stack
from phimu.types import Array

OBSERVATIONS, ACTIONS, FEATURES = 6, 3, 2
TOLERANCE = 1e-6  # of the gradient
CLASSES = ("linear", "exponential / Z", "exponential")
CONTRASTS: dict[str, Loss] = {"ranking": estimators.ranking, "binary": estimators.binary}


class ConsistencyRow(NamedTuple):
    """Total variations, means over the transitions."""

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
    sample: Transitions  # `negatives` has an axis in front, for the values of K


def consistency(
    seeds: int = 10,
    transitions: int = 1_000,
    negatives: tuple[int, ...] = (1, 8, 64, 512, 4_096),
) -> list[ConsistencyRow]:
    """Measure how far NCE estimates are from the maximum likelihood estimate as K grows.

    The consistency lemma: the ranking loss gets there with any models, the binary loss if their Z
    is the same for all (s, a). Random MDPs of 6 observations and 3 actions; all estimates are
    maxima of the printed objectives, found in float64. About a minute.

    Args:
        seeds: random MDPs, each with its own data and negatives.
        transitions: how many the estimates are made from.
        negatives: the values of K.
    """
    at_least(1, seeds=seeds, transitions=transitions)
    if not negatives or list(negatives) != sorted({*negatives}) or negatives[0] < 1:
        raise InputError(f"negatives is {negatives}: give rising numbers from 1.")
    of_linear = [_linear_problem(seed, transitions, negatives) for seed in range(seeds)]
    plain = [_exponential_problem(seed, transitions, negatives) for seed in range(seeds)]
    divided = [problem._replace(divided=np.float64(1)) for problem in plain]
    first = _measure(lambda _: estimators.linear, of_linear)
    others = _measure(_exponential, divided + plain)
    together = jax.tree.map(lambda *both: np.concatenate(both), first, others)
    return [
        ConsistencyRow(name, loss, seed, size, *(float(x[place * seeds + seed, k]) for x in found))
        for place, name in enumerate(CLASSES)
        for loss in CONTRASTS
        for found in [together[loss]]
        for seed in range(seeds)
        for k, size in enumerate(negatives)
    ]


def _linear_problem(seed: int, transitions: int, negatives: Sequence[int]) -> Problem:
    rng = np.random.default_rng([seed, 1])  # other numbers than the MDP's own
    mdp = models.random_low_rank(OBSERVATIONS, ACTIONS, FEATURES, seed=seed)
    first = Factors(rng.normal(size=mdp.phi.shape), rng.normal(size=mdp.mu.shape))
    sample = _sample(rng, mdp, transitions, negatives)
    return Problem(mdp, mdp.phi, np.float64(0), first, sample)


def _exponential_problem(seed: int, transitions: int, negatives: Sequence[int]) -> Problem:
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(OBSERVATIONS, ACTIONS, FEATURES))
    f = np.exp(phi @ rng.normal(size=(FEATURES, OBSERVATIONS)))
    start = models.uniform(OBSERVATIONS)
    mdp = models.tabular(f / f.sum(axis=2, keepdims=True), np.zeros(phi.shape[:2]), start, 0.9)
    first = np.zeros((OBSERVATIONS, FEATURES))
    return Problem(mdp, phi, np.float64(0), first, _sample(rng, mdp, transitions, negatives))


def _sample(
    rng: np.random.Generator, mdp: FiniteMDP, transitions: int, negatives: Sequence[int]
) -> Transitions:
    """All pairs are equally likely. The negatives of a smaller K are among those of a larger."""
    everywhere = np.full(mdp.reward.shape, 1 / mdp.reward.size)
    sample = draw(rng, mdp, everywhere, transitions, 0)
    more = np.diff(negatives, prepend=0)
    drawn = [rng.multinomial(size, mdp.base_measure, transitions) for size in more]
    return sample._replace(negatives=np.cumsum(drawn, axis=0).astype(np.float64))


def _exponential(problem: Problem) -> Model:
    def model(mu: Array, base_measure: Array) -> Array:
        ratio = problem.phi @ mu.T
        return ratio - problem.divided * estimators.log_marginal(ratio, base_measure)[..., None]

    return model


def _measure(
    model: Callable[[Problem], Model], problems: Sequence[Problem]
) -> dict[str, tuple[np.ndarray, ...]]:
    """The last four fields of ConsistencyRow by loss, each [problems, values of K].

    Every NCE estimate is searched for from the likelihood's, so that where there is more than one
    maximum all are of the same.
    """

    def one(problem: Problem) -> dict[str, tuple[Array, ...]]:
        data, base, truth = problem.sample, problem.mdp.base_measure, problem.mdp.transition

        def search(loss: Loss, first: Any, negatives: Array) -> tuple[Fit, Array]:
            sample = data._replace(negatives=negatives)
            found = estimators.fit(loss, model(problem), first, sample, base, TOLERANCE)
            ratio = model(problem)(found.parameters, base)
            return found, estimators.probabilities(ratio, base)

        def between(one: Array, two: Array) -> Array:
            return 0.5 * abs(one - two).sum(axis=2)[data.observation, data.action].mean()

        def compare(loss: Loss, negatives: Array) -> tuple[Array, ...]:
            found, learned = search(loss, best.parameters, negatives)
            distances = between(learned, likely), between(learned, truth), between(likely, truth)
            return *distances, found.gradient

        best, likely = search(estimators.maximum_likelihood, problem.first, data.negatives[0])
        return {
            name: jax.vmap(partial(compare, loss))(data.negatives)
            for name, loss in CONTRASTS.items()
        }

    return exact(jax.vmap(one))(stack(problems))
