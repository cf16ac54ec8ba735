"""Algorithm 1, line 6: model classes with a loss, learned while the data grows.

A learner is three functions. Two classes: all tables P(s'|s,a), whose rows are the representation
(phi(s, a) = P(.|s, a), so d = S, and mu(s') = e_s' / p(s')); and a finite one, as in the theorems.
Where the data say nothing of (s, a) all rows fit them equally; we take the base measure.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phimu.finite.collecting import Transitions, count
from phimu.finite.estimators import Loss
from phimu.finite.mdp import FiniteMDP
from phimu.types import Array


class Estimate(NamedTuple):
    """What planning reads."""

    phi: Array  # [S, A, d]
    transition: Array  # P-hat(s'|s,a) [S, A, S]


class Learner(NamedTuple):
    """What it remembers is a pytree of fixed shapes, so that a whole run is one program."""

    init: Callable[[FiniteMDP], Any]
    learn: Callable[[Any, FiniteMDP, Transitions, Array], Any]  # memory, MDP, new data, key
    read: Callable[[Any, FiniteMDP], Estimate]


def tables_by_likelihood() -> Learner:
    """All tables; the exact maximum, relative frequencies."""

    def read(counts: Array, mdp: FiniteMDP) -> Estimate:
        return of_ratio(normalised(counts / mdp.base_measure[None, None], mdp.base_measure), mdp)

    return Learner(no_counts, add_counts, read)


def no_counts(mdp: FiniteMDP) -> Array:
    return jnp.zeros(mdp.transition.shape)


def add_counts(counts: Array, mdp: FiniteMDP, new: Transitions, key: Array) -> Array:
    """n(s, a, s') is all that the likelihood needs to know: [S, A, S]."""
    del mdp, key
    return counts + count(new, *counts.shape[:2])


def normalised(ratio: Array, base_measure: Array) -> Array:
    """Rows [..., S] with E_p = 1; one everywhere where there is nothing to normalise."""
    total = ratio @ base_measure
    rows = ratio / jnp.where(total > 0, total, 1.0)[..., None]
    return jnp.where((total > 0)[..., None], rows, 1.0)


def of_ratio(ratio: Array, mdp: FiniteMDP) -> Estimate:
    """The rows of P-hat = ratio * p, as features too."""
    rows = ratio * mdp.base_measure[None, None]
    return Estimate(rows, rows)


def noise(key: Array, base_measure: Array, size: int, negatives: int) -> Array:
    """How often each s' is among `negatives` draws of the base measure: [size, S]."""
    sums = jnp.cumsum(base_measure)[:-1]
    drawn = jnp.searchsorted(sums, jax.random.uniform(key, (size, negatives)), side="right")
    rows = jnp.broadcast_to(jnp.arange(size)[:, None], drawn.shape)
    return jnp.zeros((size, len(base_measure)), jnp.uint16).at[rows, drawn].add(1)


class Shifted(NamedTuple):
    """A finite class: mu* is known, and phi* but for a shift of the actions in each group of s.

    phi_k(s, a) = phi*(s, a + k), in a circle, with a k for each group: A^groups models, one of
    which is the truth. Of a combination lock whose groups are its latent states these are all
    codes. A loss is a sum over the data, so the best k is found group by group: exactly, however
    many models there are.
    """

    first: Array  # the k that is tried first in a group: where all are equal it is chosen [groups]
    totals: Array  # the loss of k = first, first + 1, ... over the group's data [groups, A]


def shifts_by(loss: Loss, negatives: int, per_group: int) -> Learner:
    """The smallest total of `loss`; every `per_group` observations in a row are a group."""

    def init(mdp: FiniteMDP) -> Shifted:
        observations, actions = mdp.reward.shape
        groups = observations // per_group
        # Any, but not the truth's 0 of every group.
        first = jax.random.randint(jax.random.PRNGKey(groups), (groups,), 0, actions)
        return Shifted(first, jnp.zeros((groups, actions)))

    def learn(memory: Shifted, mdp: FiniteMDP, new: Transitions, key: Array) -> Shifted:
        drawn = noise(key, mdp.base_measure, len(new.action), negatives).astype(float)
        log_ratio = jnp.log(mdp.transition / mdp.base_measure[None, None])
        group, actions = new.observation // per_group, mdp.reward.shape[1]

        def total(shift: Array) -> Array:
            rows = log_ratio[new.observation, (new.action + shift + memory.first[group]) % actions]
            losses = loss(rows, new._replace(negatives=drawn), mdp.base_measure, jnp.zeros(()))
            return jnp.zeros(len(memory.first)).at[group].add(losses)

        totals = jax.vmap(total, out_axes=1)(jnp.arange(actions))
        return memory._replace(totals=memory.totals + totals)

    def read(memory: Shifted, mdp: FiniteMDP) -> Estimate:
        observation = jnp.arange(len(mdp.reward))
        best = (memory.first + memory.totals.argmin(axis=1))[observation // per_group]
        action = (best[:, None] + jnp.arange(mdp.reward.shape[1])[None]) % mdp.reward.shape[1]
        where = (observation[:, None], action)
        return Estimate(jnp.asarray(mdp.phi)[where], jnp.asarray(mdp.transition)[where])

    return Learner(init, learn, read)
