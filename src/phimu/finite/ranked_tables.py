"""The maximum of equation (ranking) over all tables P(s'|s,a), by minorisation and maximisation.

-log of the candidates' total ratio is bounded from below by its tangent; what remains is largest at

    ratio(s'|s,a) = n(s,a,s') / sum_i candidates_i(s') / total_i    (i over the data of s, a)

and repeating this climbs to the one maximum. The likelihood's own is the same with the exact sum
over s' as every total.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from phimu.finite.collecting import Transitions
from phimu.finite.learners import Estimate, Learner, noise, normalised, of_ratio
from phimu.finite.mdp import FiniteMDP
from phimu.types import Array

AGAIN = 4


class Ranked(NamedTuple):
    """All data with their negatives, and the sums that the update of the ratio needs."""

    counts: Array  # n(s, a, s') [S A, S]
    pair: Array  # (s, a) of each transition [n]
    candidates: Array  # how often each s' is among its K negatives and itself [n, S]
    share: Array  # 1 / total ratio of its candidates, when last looked at [n]
    weighted: Array  # sum of share * candidates over the transitions of a pair [S A, S]
    used: Array  # transitions so far: []
    cursor: Array  # from where to look again next: []


def tables_by_ranking(negatives: int, capacity: int, batch: int) -> Learner:
    """For data that comes in batches of one size, up to `capacity` transitions.

    A total is computed when a transition comes, and anew whenever the cursor passes, `AGAIN`
    batches at a time: all of them at every step would cost n^2.
    """

    def init(mdp: FiniteMDP) -> Ranked:
        return _empty(mdp, capacity)

    def learn(memory: Ranked, mdp: FiniteMDP, new: Transitions, key: Array) -> Ranked:
        drawn = noise(key, mdp.base_measure, batch, negatives)
        memory = _append(memory, mdp, new._replace(negatives=drawn))
        memory = _look_again(memory, mdp, memory.used - batch, batch)

        def sweep(_: int, memory: Ranked) -> Ranked:
            memory = _look_again(memory, mdp, memory.cursor, batch)
            return memory._replace(cursor=(memory.cursor + batch) % memory.used)

        return jax.lax.fori_loop(0, AGAIN, sweep, memory)

    return Learner(init, learn, _read)


def table_by_ranking(data: Transitions, mdp: FiniteMDP, rounds: int) -> Array:
    """P-hat [S, A, S] of data that does not grow, after `rounds` updates."""
    size = len(data.action)
    memory = _append(_empty(mdp, size), mdp, data)
    memory = jax.lax.fori_loop(
        0, rounds, lambda _, memory: _look_again(memory, mdp, 0, size), memory
    )
    return _read(memory, mdp).transition


def _empty(mdp: FiniteMDP, capacity: int) -> Ranked:
    observations, actions = mdp.reward.shape
    nothing, zero = jnp.zeros((observations * actions, observations)), jnp.zeros((), int)
    candidates = jnp.zeros((capacity, observations), jnp.uint16)
    pair, share = jnp.zeros(capacity, int), jnp.zeros(capacity)
    return Ranked(nothing, pair, candidates, share, nothing, zero, zero)


def _append(memory: Ranked, mdp: FiniteMDP, new: Transitions) -> Ranked:
    pair = (new.observation * mdp.reward.shape[1] + new.action).astype(int)
    itself = jnp.arange(len(pair)), new.next_observation
    candidates = new.negatives.astype(jnp.uint16).at[itself].add(1)
    share = 1 / candidates.astype(float).sum(axis=1)  # as if every ratio were one
    place = jax.lax.dynamic_update_slice_in_dim
    return memory._replace(
        counts=memory.counts.at[pair, new.next_observation].add(1.0),
        pair=place(memory.pair, pair, memory.used, 0),
        candidates=place(memory.candidates, candidates, memory.used, 0),
        share=place(memory.share, share, memory.used, 0),
        weighted=memory.weighted.at[pair].add(candidates * share[:, None]),
        used=memory.used + len(pair),
    )


def _look_again(memory: Ranked, mdp: FiniteMDP, begin: Array | int, size: int) -> Ranked:
    """The totals of some transitions under the present ratio."""
    take = jax.lax.dynamic_slice_in_dim
    pair = take(memory.pair, begin, size)
    candidates = take(memory.candidates, begin, size).astype(float)
    share = 1 / (candidates * _ratio(memory, mdp)[pair]).sum(axis=1)
    change = candidates * (share - take(memory.share, begin, size))[:, None]
    return memory._replace(
        share=jax.lax.dynamic_update_slice_in_dim(memory.share, share, begin, 0),
        weighted=memory.weighted.at[pair].add(change),
    )


def _ratio(memory: Ranked, mdp: FiniteMDP) -> Array:
    """n / sum of weighted candidates, scaled to E_p = 1, which the loss leaves free: [S A, S]."""
    raw = jnp.where(memory.counts > 0, memory.counts / memory.weighted, 0.0)
    return normalised(raw, mdp.base_measure)


def _read(memory: Ranked, mdp: FiniteMDP) -> Estimate:
    return of_ratio(_ratio(memory, mdp).reshape(mdp.transition.shape), mdp)
