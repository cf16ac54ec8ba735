"""Algorithm 1 and its rivals on a combination lock: suboptimality and regret against samples.

A sample is an episode's one transition, as in the theorem. Two model classes: all tables, and the
finite one of all codes of the lock. All have the same locks, and random numbers of their own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from phimu.errors import InputError, at_least
from phimu.finite import exact, exploration
from phimu.finite.ctrl_ucb import Algorithm, Constants, Explore, Trace, log_tables, optimistic, run
from phimu.finite.estimators import Loss, maximum_likelihood, ranking
from phimu.finite.exploration import epsilon_greedy
from phimu.finite.learners import shifts_by, tables_by_likelihood
from phimu.finite.mdp import FiniteMDP, stack
from phimu.finite.models import combination_lock
from phimu.finite.planning import policy_iteration
from phimu.finite.ranked_tables import tables_by_ranking

PER_LATENT, DISCOUNT, DECOY = 2, 0.95, 0.1  # observations of a latent state; pay of a wrong start
NEGATIVES = 256
# The theorems' constants would leave every bonus at its cap. Chosen once, for alpha_n near 0.1 and
# lambda_n near 1 with tables; the same for all algorithms and classes that have them.
BONUS_FACTOR, RIDGE_FACTOR = 3e-5, 6e-6
UNIFORM_MIX = 0.1
LONGER = 5  # uniform and epsilon-greedy get so many times the samples, in a quarter of the plans
LSVI_BONUS_SCALE = 1.0  # the best of 0.3, 1 and 3 on these locks, or nearly
EPSILON = 0.1  # of the value range
POINTS = 30  # of a curve, evenly spread over log n


class OnlineRow(NamedTuple):
    """One algorithm on one lock, after `samples` of them. In units of the lock's value range."""

    algorithm: str
    models: str  # its class
    seed: int
    samples: int
    suboptimality: float  # of the policy that it would return
    regret: float  # sum over the samples of the suboptimality of the policy that collected them
    found: int  # samples until the returned policy was epsilon-optimal for the first time; or 0


class Contender(NamedTuple):
    """An algorithm and how it is run."""

    models: str
    algorithm: Algorithm
    plans: int
    batch: int  # samples between two plans


def contenders(horizon: int, actions: int, plans: int, batch: int) -> dict[str, Contender]:
    observations = (3 * horizon + 2) * PER_LATENT
    of_tables = Constants(log_tables(observations, actions), BONUS_FACTOR, RIDGE_FACTOR)
    of_codes = Constants(2 * horizon * np.log(actions), BONUS_FACTOR, RIDGE_FACTOR)
    ranked = tables_by_ranking(NEGATIVES, plans * batch, batch)
    counted = tables_by_likelihood()
    fewer = max(plans // 2, 1)

    def undirected(explore: Explore) -> Contender:
        algorithm = Algorithm(counted, explore)
        return Contender("tables", algorithm, max(plans // 4, 1), 4 * LONGER * batch)

    def finite(loss: Loss, negatives: int) -> Contender:
        learner = shifts_by(loss, negatives, PER_LATENT)
        return Contender("finite", Algorithm(learner, optimistic(of_codes)), fewer, batch // 2)

    cover = 2 * horizon + 4  # policies: a few more than directions of phi
    codes = shifts_by(maximum_likelihood, 0, PER_LATENT)
    flambe = Algorithm(codes, exploration.elliptical_planner(cover), policies=cover)
    squares = exploration.least_squares(LSVI_BONUS_SCALE)
    lsvi = Algorithm(exploration.known_features(), squares, uniform_action=False)
    return {
        "CTRL-UCB": Contender("tables", Algorithm(ranked, optimistic(of_tables)), plans, batch),
        "Rep-UCB": Contender("tables", Algorithm(counted, optimistic(of_tables)), plans, batch),
        "epsilon-greedy": undirected(epsilon_greedy(UNIFORM_MIX)),
        "epsilon-greedy, hopeful": undirected(epsilon_greedy(UNIFORM_MIX, hopeful=True)),
        "uniform": undirected(epsilon_greedy(1.0)),
        "CTRL-UCB, finite class": finite(ranking, NEGATIVES),
        "Rep-UCB, finite class": finite(maximum_likelihood, 0),
        "FLAMBE, finite class": Contender("finite", flambe, max(plans // 6, 1), 5 * batch // 2),
        "LSVI-UCB, phi* known": Contender("phi* known", lsvi, fewer, batch // 2),
    }


def online(
    seeds: int = 10, samples: int = 30_000, horizon: int = 10, actions: int = 10, batch: int = 100
) -> list[OnlineRow]:
    """Explore combination locks with CTRL-UCB as printed, Rep-UCB, LSVI-UCB, FLAMBE and less.

    Suboptimality and regret against samples, and how many samples each needs to be within 0.1 of
    the value range. Two minutes or three.

    Args:
        seeds: locks, each with a code of its own.
        samples: how many CTRL-UCB gets; uniform and epsilon-greedy get five times as many.
        horizon: levels of a lock.
        actions: of which one opens a level.
        batch: samples between two plans.
    """
    at_least(1, seeds=seeds, horizon=horizon)
    at_least(2, actions=actions)
    if batch < 2 or samples < 5 * batch:
        raise InputError(f"samples is {samples}: give at least five batches of {batch} (or more).")
    locks = [
        combination_lock(horizon, actions, PER_LATENT, DISCOUNT, decoy=DECOY, seed=seed)
        for seed in range(seeds)
    ]
    everyone = contenders(horizon, actions, samples // batch, batch)
    return [
        row
        for place, (name, contender) in enumerate(everyone.items())
        for row in compete(name, contender, locks, place)
    ]


def compete(
    name: str, contender: Contender, locks: Sequence[FiniteMDP], stream: int
) -> list[OnlineRow]:
    """One algorithm on every lock, with the random numbers of `stream`."""
    keys = jax.random.split(jax.random.fold_in(jax.random.PRNGKey(0), stream), len(locks))

    def one(lock: FiniteMDP, key: jax.Array) -> Trace:
        return run(contender.algorithm, lock, key, contender.plans, contender.batch)

    trace = exact(jax.vmap(one))(stack(locks), np.asarray(keys))
    highest, lowest = (np.array([[_extreme(lock, sign)] for lock in locks]) for sign in (1, -1))
    returned = (highest - trace.returned) / (highest - lowest)
    collected = (highest - trace.collected) / (highest - lowest)
    regret = np.cumsum(collected, axis=1) * contender.batch
    samples = contender.batch * np.arange(1, contender.plans + 1)
    points = sorted({round(plan) - 1 for plan in np.geomspace(1, contender.plans, POINTS)})
    rows = []
    for seed, close in enumerate(returned <= EPSILON):
        found = int(samples[close.argmax()]) if close.any() else 0
        for plan in points:
            where = name, contender.models, seed, int(samples[plan])
            lost = float(returned[seed, plan]), float(regret[seed, plan])
            rows.append(OnlineRow(*where, *lost, found))
    return rows


def _extreme(lock: FiniteMDP, sign: int) -> float:
    """The highest (1) or the lowest (-1) value of a policy."""
    found = policy_iteration(lock.transition, sign * lock.reward, lock.discount)
    return sign * float(lock.start @ found.value)
