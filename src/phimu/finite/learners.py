"""Algorithm 1, line 6: model classes with a loss, learned while the data grows.

A learner is three functions. Two classes: all tables P(s'|s,a), whose rows are the representation
(phi(s, a) = P(.|s, a) of dimension S and mu(s') = e_s' / p(s')); and finite ones, as in the
theorems. Where the data say nothing of (s, a) every row fits them equally; it is the base measure.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phimu.finite.collecting import Transitions, count
from phimu.finite.estimators import Loss, Sample
from phimu.finite.mdp import FiniteMDP
from phimu.types import Array


class Estimate(NamedTuple):
    """What planning reads."""

    phi: Array  # [S, A, d]
    transition: Array  # P-hat(s'|s,a) [S, A, S]


class Learner(NamedTuple):
    """What it remembers is a pytree of fixed shapes, so that all of a run is one program."""

    init: Callable[[FiniteMDP], Any]
    learn: Callable[[Any, FiniteMDP, Transitions, Array], Any]  # memory, MDP, new data, key
    read: Callable[[Any, FiniteMDP], Estimate]


def tables_by_likelihood() -> Learner:
    """The exact maximum: relative frequencies."""

    def init(mdp: FiniteMDP) -> Array:
        return jnp.zeros(mdp.transition.shape)

    def learn(counts: Array, mdp: FiniteMDP, new: Transitions, key: Array) -> Array:
        del mdp, key
        return counts + count(new, *counts.shape[:2])

    def read(counts: Array, mdp: FiniteMDP) -> Estimate:
        return _of_ratio(_normalised(counts / mdp.base_measure[None, None], mdp), mdp)

    return Learner(init, learn, read)


class Ranked(NamedTuple):
    """All data with their negatives, and the sums that the update of the ratio needs."""

    counts: Array  # n(s, a, s') [S A, S]
    pair: Array  # (s, a) of each transition [n]
    candidates: Array  # how often each s' is among its K negatives and itself [n, S]
    share: Array  # 1 / total ratio of its candidates, when last looked at [n]
    weighted: Array  # sum of share * candidates over the transitions of a pair [S A, S]
    used: Array  # transitions so far
    cursor: Array  # which ones to look at again next


def tables_by_ranking(negatives: int, capacity: int, batch: int, again: int = 4) -> Learner:
    """The maximum of equation (ranking), by minorisation and maximisation.

    -log of the candidates' total is bounded from below by its tangent; what remains is largest at
    ratio(s'|s,a) = n(s,a,s') / sum_i candidates_i(s') / total_i, and repeating this climbs to the
    one maximum. A transition's total is computed when it comes and again whenever the cursor
    passes, `again` batches at a time, since all of them at every step would cost n^2.
    """

    def init(mdp: FiniteMDP) -> Ranked:
        observations, actions, _ = mdp.transition.shape
        nothing = jnp.zeros((observations * actions, observations))
        return Ranked(
            nothing,
            jnp.zeros(capacity, int),
            jnp.zeros((capacity, observations), jnp.uint8),
            jnp.zeros(capacity),
            nothing,
            jnp.zeros((), int),
            jnp.zeros((), int),
        )

    def learn(memory: Ranked, mdp: FiniteMDP, new: Transitions, key: Array) -> Ranked:
        memory = _append(memory, mdp, new, _noise(key, mdp, batch, negatives))
        memory = _look_again(memory, mdp, memory.used - batch, batch)

        def sweep(_: int, memory: Ranked) -> Ranked:
            memory = _look_again(memory, mdp, memory.cursor, batch)
            return memory._replace(cursor=(memory.cursor + batch) % memory.used)

        return jax.lax.fori_loop(0, again, sweep, memory)

    def read(memory: Ranked, mdp: FiniteMDP) -> Estimate:
        return _of_ratio(_ratio(memory, mdp).reshape(mdp.transition.shape), mdp)

    return Learner(init, learn, read)


def _noise(key: Array, mdp: FiniteMDP, size: int, negatives: int) -> Array:
    """How often each s' is among `negatives` draws of the base measure: [size, S]."""
    sums = jnp.cumsum(mdp.base_measure)[:-1]
    drawn = jnp.searchsorted(sums, jax.random.uniform(key, (size, negatives)), side="right")
    rows = jnp.broadcast_to(jnp.arange(size)[:, None], drawn.shape)
    return jnp.zeros((size, len(sums) + 1), jnp.uint8).at[rows, drawn].add(1)


def _append(memory: Ranked, mdp: FiniteMDP, new: Transitions, noise: Array) -> Ranked:
    pair = (new.observation * mdp.reward.shape[1] + new.action).astype(int)
    candidates = noise.at[jnp.arange(len(pair)), new.next_observation].add(1)
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


def _ratio(memory: Ranked, mdp: FiniteMDP) -> Array:
    """n / sum of weighted candidates, scaled to E_p = 1, which the loss leaves free: [S A, S]."""
    raw = jnp.where(memory.counts > 0, memory.counts / memory.weighted, 0.0)
    return _normalised(raw, mdp)


def _look_again(memory: Ranked, mdp: FiniteMDP, begin: Array, size: int) -> Ranked:
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


def _normalised(ratio: Array, mdp: FiniteMDP) -> Array:
    """Rows [..., S] with E_p = 1; one everywhere where there is nothing to normalise."""
    total = ratio @ mdp.base_measure
    rows = ratio / jnp.where(total > 0, total, 1.0)[..., None]
    return jnp.where((total > 0)[..., None], rows, 1.0)


def _of_ratio(ratio: Array, mdp: FiniteMDP) -> Estimate:
    rows = ratio * mdp.base_measure[None, None]
    return Estimate(rows, rows)


class Shifted(NamedTuple):
    """A finite class: phi* and mu*, but in each group of observations the actions are shifted.

    phi_k(s, a) = phi*(s, a + k), in a circle, with a k for each group: A^groups models, one of them
    the truth. Of a combination lock these are all codes. A loss is a sum over the data, so its
    smallest total is found group by group, whatever the number of models.
    """

    group: Array  # of each observation [S]
    first: Array  # which k of a group is tried first: equals are not told from the truth [groups]
    totals: Array  # the loss of each k over the group's data [groups, A]


def shifts_by(loss: Loss, negatives: int, per_group: int) -> Learner:
    """The smallest total of `loss`; observations are grouped `per_group` in a row."""

    def init(mdp: FiniteMDP) -> Shifted:
        observations, actions = mdp.reward.shape
        groups = observations // per_group
        first = jax.random.randint(jax.random.PRNGKey(groups), (groups,), 0, actions)
        return Shifted(
            jnp.arange(observations) // per_group, first, jnp.zeros((groups, actions))
        )

    def learn(memory: Shifted, mdp: FiniteMDP, new: Transitions, key: Array) -> Shifted:
        noise = _noise(key, mdp, len(new.action), negatives).astype(float)
        log_ratio = jnp.log(mdp.transition / mdp.base_measure[None, None])
        group = memory.group[new.observation]

        def total(shift: Array) -> Array:
            action = (new.action + shift + memory.first[group]) % mdp.reward.shape[1]
            rows = log_ratio[new.observation, action]
            losses = loss(rows, Sample(*new, noise), mdp.base_measure, jnp.zeros(()))
            return jnp.zeros(len(memory.totals)).at[group].add(losses)

        shifts = jnp.arange(mdp.reward.shape[1])
        return memory._replace(totals=memory.totals + jax.vmap(total, out_axes=1)(shifts))

    def read(memory: Shifted, mdp: FiniteMDP) -> Estimate:
        best = memory.totals.argmin(axis=1) + memory.first
        actions = jnp.arange(mdp.reward.shape[1])[None] + best[memory.group][:, None]
        where = (jnp.arange(len(memory.group))[:, None], actions % mdp.reward.shape[1])
        return Estimate(mdp.phi[where], mdp.transition[where])

    return Learner(init, learn, read)
