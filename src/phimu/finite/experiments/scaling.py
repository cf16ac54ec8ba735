"""How many samples Algorithm 1 needs as d, A, 1 / (1 - discount) and 1 / epsilon grow.

With tables as models, so d = S. On combination locks, and for epsilon also in the worst case over
`coins` of every gap: on a lock, whose gaps are what they are, the regret ends and 1 / epsilon times
as many samples do. The samples are those until the policies so far, one drawn at random, are
epsilon-optimal on average: the mixture that the theorem's proof speaks of.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from phimu.errors import InputError, at_least
from phimu.finite import exact
from phimu.finite.ctrl_ucb import Algorithm, Constants, log_tables, optimistic, run
from phimu.finite.mdp import FiniteMDP, stack
from phimu.finite.models import coins, combination_lock
from phimu.finite.planning import policy_iteration
from phimu.finite.ranked_tables import tables_by_ranking

HORIZONS, ACTIONS, STEPS = (2, 4, 6, 8), (2, 4, 8, 12), (10, 20, 40, 80)
EPSILONS, WORST_EPSILONS = (0.4, 0.2, 0.1, 0.05), (0.04, 0.028, 0.02, 0.014, 0.01)
BASE = (4, 4, 20, 0.2)  # horizon, actions, 1 / (1 - discount) and epsilon where they are not varied
GAPS, REPEATS, COIN_STEPS = tuple(0.5 * 2.0**-k for k in range(6)), 4, 5
NEGATIVES = 64
BONUS_FACTOR, RIDGE_FACTOR = 1e-3, 1e-4  # alpha_n near 0.1 for the smallest lock; see online.py
EXPONENTS = {  # of the theorem
    "d": 4,
    "A": 2,
    "1 / (1 - discount)": 5,
    "1 / epsilon": 2,
    "1 / epsilon, worst case": 2,
}


class ScalingRow(NamedTuple):
    """One lock, or one seed's coins."""

    varied: str  # one of EXPONENTS
    size: float  # of what is varied
    seed: int
    samples: int  # until the mean suboptimality is epsilon, in value ranges; 0: not reached


def scaling(seeds: int = 10, samples: int = 20_000, batch: int = 50) -> list[ScalingRow]:
    """Count the samples CTRL-UCB needs as d, A, 1 / (1 - discount) and 1 / epsilon grow.

    The fitted powers stand beside the exponents of the theorem, which are upper bounds. Two minutes
    or three.

    Args:
        seeds: MDPs of every size.
        samples: at most.
        batch: samples between two plans.
    """
    at_least(1, seeds=seeds)
    if batch < 1 or samples < batch:
        raise InputError(f"samples is {samples}: give at least one batch of {batch} (1 or more).")
    sizes = seeds, samples // batch, batch
    horizon, actions, steps, epsilon = BASE
    sweeps: list[tuple[str, float, tuple[int, int, int], float]]
    sweeps = [("d", 3 * size + 2, (size, actions, steps), epsilon) for size in HORIZONS]
    sweeps += [("A", size, (horizon, size, steps), epsilon) for size in ACTIONS]
    sweeps += [("1 / (1 - discount)", size, (horizon, actions, size), epsilon) for size in STEPS]
    sweeps += [("1 / epsilon", 1 / each, (horizon, actions, steps), each) for each in EPSILONS]
    rows = []
    for varied, size, lock, within in sweeps:
        rows += rows_of(varied, size, of_locks(*lock, *sizes), batch, within)
    worst = of_coins(*sizes)
    for within in WORST_EPSILONS:
        rows += rows_of("1 / epsilon, worst case", 1 / within, worst, batch, within)
    return rows


def rows_of(
    varied: str, size: float, averages: np.ndarray, batch: int, epsilon: float
) -> list[ScalingRow]:
    rows = []
    for seed, close in enumerate(averages <= epsilon):
        reached = (1 + int(close.argmax())) * batch if close.any() else 0
        rows.append(ScalingRow(varied, float(size), seed, reached))
    return rows


@cache
def of_locks(
    horizon: int, actions: int, steps: int, seeds: int, plans: int, batch: int
) -> np.ndarray:
    """Mean suboptimality of all policies so far, in value ranges: [seeds, plans]."""
    locks = [
        combination_lock(horizon, actions, 1, 1 - 1 / steps, decoy=0.1, seed=seed)
        for seed in range(seeds)
    ]
    best, lost = _explored(locks, plans, batch)
    return _averages(lost / best[:, None])


def of_coins(seeds: int, plans: int, batch: int) -> np.ndarray:
    """The worst over the gaps; the value range is that of all coins, 1 / (1 - discount)."""
    mdps = [
        coins(4, 3, gap, 1 - 1 / COIN_STEPS, seed)
        for gap in GAPS
        for seed in range(seeds * REPEATS)
    ]
    averages = _averages(_explored(mdps, plans, batch)[1] / COIN_STEPS)
    return averages.reshape(len(GAPS), seeds, REPEATS, plans).mean(axis=2).max(axis=0)


def _averages(values: np.ndarray) -> np.ndarray:
    return np.cumsum(values, axis=1) / np.arange(1, values.shape[1] + 1)


def _explored(mdps: Sequence[FiniteMDP], plans: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """The best values [MDPs], and the suboptimality of the collecting policies [MDPs, plans]."""
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), len(mdps)))
    return _program(*mdps[0].reward.shape, plans, batch)(stack(mdps), keys)


@cache
def _program(observations: int, actions: int, plans: int, batch: int) -> Callable[..., Any]:
    """Compiled once for MDPs of one size."""
    constants = Constants(log_tables(observations, actions), BONUS_FACTOR, RIDGE_FACTOR)
    learner = tables_by_ranking(NEGATIVES, plans * batch, batch)
    algorithm = Algorithm(learner, optimistic(constants))

    def one(mdp: FiniteMDP, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        best = policy_iteration(mdp.transition, mdp.reward, mdp.discount).value @ mdp.start
        return best, best - run(algorithm, mdp, key, plans, batch).collected

    return exact(jax.vmap(one))
