"""Algorithm 2 on logged data: suboptimality against n, against coverage, with an action missing.

Suboptimalities are V* - V as a share of the largest return, max r / (1 - discount). The first two
parts are worst cases over a family of MDPs, `coins` of every gap: on a single MDP with gaps between
its actions the best policy is found for good, and suboptimality falls faster than any power of n.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phimu.errors import InputError, at_least
from phimu.finite import ctrl_lcb, exact
from phimu.finite.collecting import Transitions, count, draw
from phimu.finite.ctrl_ucb import Constants, log_tables
from phimu.finite.mdp import FiniteMDP, stack
from phimu.finite.models import cliff, coins
from phimu.finite.planning import evaluate, occupancy, policy_iteration
from phimu.finite.ranked_tables import table_by_ranking
from phimu.types import Array

OBSERVATIONS, ACTIONS = 4, 3
GAPS = tuple(0.5 * 2.0**-k for k in range(8))
REPEATS = 8  # MDPs and datasets of a seed, whose mean is its suboptimality
SHARES = (0.97, 0.9, 0.7, 1 / 3, 0.15, 0.06, 0.02)  # of the best action in the behaviour
PLAIN = 1 / ACTIONS  # the share where n is varied: uniform
NEGATIVES, ROUNDS = 32, 10
BONUS_FACTOR, RIDGE_FACTOR = 0.02, 0.003  # alpha near 1 and lambda near 1; see online.py
PATH = 6  # places along the cliff
PLANS = ("CTRL-LCB", "no penalty", "behaviour cloning")
BOUND = "bound"  # on CTRL-LCB: twice the mean penalty where the optimal policy goes


class OfflineRow(NamedTuple):
    """One plan from data of one kind."""

    part: str  # size, coverage or missing: what is varied
    plan: str  # one of PLANS, or BOUND
    gap: float  # of the coins; 0 on the cliff
    share: float  # of the best action in the behaviour
    seed: int
    samples: int
    coverage: float  # C* of the optimal policy; infinite where its action is missing
    suboptimality: float


def offline(
    seeds: int = 10,
    samples: tuple[int, ...] = (64, 256, 1_024, 4_096, 16_384),
    coverage_samples: int = 1_024,
) -> list[OfflineRow]:
    """Plan from logged data with CTRL-LCB as printed, without its penalty, and by cloning.

    Suboptimality against the size of the data and against C*, in the worst case over a family of
    MDPs, and where an action that the optimal policy needs is missing. About a minute.

    Args:
        seeds: each stands for eight MDPs and datasets of every kind.
        samples: the sizes of the data, with all actions equally often.
        coverage_samples: the size of the data where C* is varied or an action is missing.
    """
    at_least(1, seeds=seeds, coverage_samples=coverage_samples)
    if len(samples) < 2 or list(samples) != sorted({*samples}) or samples[0] < 1:
        raise InputError(f"samples is {samples}: give two or more rising numbers from 1.")
    rows = []
    for place, gap in enumerate(GAPS):
        rows += of_coins("size", place, gap, PLAIN, seeds, samples)
        for share in SHARES:
            rows += of_coins("coverage", place, gap, share, seeds, (coverage_samples,))
    return rows + of_cliff(seeds, coverage_samples)


def of_coins(
    part: str, place: int, gap: float, share: float, seeds: int, samples: Sequence[int]
) -> list[OfflineRow]:
    rng = np.random.default_rng([place, round(1e6 * share)])
    other = (1 - share) / (ACTIONS - 1)
    mdps = [coins(OBSERVATIONS, ACTIONS, gap, seed=seed) for seed in range(seeds * REPEATS)]
    data, covered = [], []
    for mdp in mdps:
        best = policy_iteration(mdp.transition, mdp.reward, mdp.discount).policy
        visited, pairs = (
            occupancy(mdp.transition, mdp.start, mdp.discount, policy)
            for policy in (best, np.where(best > 0, share, other))
        )
        data.append(pairs)
        covered.append(ctrl_lcb.coverage(mdp.phi, visited, pairs))
    values = _suboptimalities(rng, mdps, data, 1 / min(share, other), samples)
    means = values.reshape(len(values), seeds, REPEATS, len(samples)).mean(axis=2)
    coverage = np.reshape(covered, (seeds, REPEATS)).mean(axis=1)
    return _rows(part, gap, share, samples, coverage, means)


def of_cliff(seeds: int, size: int) -> list[OfflineRow]:
    """Data of walking and waiting everywhere: the jump, which the best policy needs, is missing."""
    rng = np.random.default_rng(seeds)
    places = np.random.default_rng(0).integers(1, PATH, size=seeds)
    mdps = [cliff(PATH, int(place)) for place in places]
    pairs = np.tile([0.5, 0.5, 0.0], (PATH + 2, 1)) / (PATH + 2)
    values = _suboptimalities(rng, mdps, [pairs] * seeds, 2.0, (size,))
    return _rows("missing", 0.0, 0.0, (size,), np.full(seeds, np.inf), values)


def _rows(
    part: str, gap: float, share: float, samples: Sequence[int], covered: Array, values: Array
) -> list[OfflineRow]:
    """Of coverages [seeds] and suboptimalities [plans + 1, seeds, sizes]."""
    return [
        OfflineRow(part, plan, gap, share, seed, size, float(covered[seed]), float(row[k]))
        for plan, found in zip((*PLANS, BOUND), values, strict=True)
        for seed, row in enumerate(found)
        for k, size in enumerate(samples)
    ]


def _suboptimalities(
    rng: np.random.Generator,
    mdps: Sequence[FiniteMDP],
    data: Sequence[np.ndarray],
    omega: float,
    samples: Sequence[int],
) -> np.ndarray:
    """[plans + 1, MDPs, sizes], from (s, a) ~ `data`. Smaller datasets begin the largest."""
    both = zip(mdps, data, strict=True)
    drawn = stack([draw(rng, mdp, pairs, samples[-1], NEGATIVES) for mdp, pairs in both])
    every = stack(mdps)
    values = [
        _plans(every, Transitions(*(array[:, :size] for array in drawn)), omega) for size in samples
    ]
    return np.stack(values, axis=2)


@exact
@partial(jax.vmap, in_axes=(0, 0, None), out_axes=1)
def _plans(mdp: FiniteMDP, data: Transitions, omega: Array) -> Array:
    """The suboptimality of each of PLANS, and BOUND: [plans + 1]."""
    table = table_by_ranking(data, mdp, ROUNDS)
    visits = count(data, *mdp.reward.shape).sum(axis=2)
    constants = Constants(log_tables(*visits.shape), BONUS_FACTOR, RIDGE_FACTOR)
    reward, discount = mdp.reward, mdp.discount
    careful = ctrl_lcb.penalty(mdp.phi, visits, discount, omega, constants)
    policies = (
        ctrl_lcb.penalised_plan(table, reward, careful, discount),
        policy_iteration(table, reward, discount).policy,
        ctrl_lcb.behaviour_cloning(visits),
    )
    best = policy_iteration(mdp.transition, reward, discount)
    lost = [
        mdp.start @ (best.value - evaluate(mdp.transition, reward, discount, policy).value)
        for policy in policies
    ]
    visited = occupancy(mdp.transition, mdp.start, discount, best.policy)
    lost.append(2 * (visited * careful).sum() / (1 - discount))
    return jnp.stack(lost) * (1 - discount) / reward.max()
