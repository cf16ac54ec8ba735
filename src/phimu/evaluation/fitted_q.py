"""Fitted Q evaluation: what a policy is worth, estimated from logged data, without a task to run.

An estimate is only as good as the data: where the policy goes and the log has not been, Q is a
guess of the network's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.data.device_set import DeviceSet
from phimu.data.logged import LoggedDataset, Transitions
from phimu.errors import InputError
from phimu.networks import MLP, norm, polyak
from phimu.normalisation import Acting, AsIs, RunningNormaliser, normalise_batch
from phimu.settings import walk
from phimu.training.learner import LearnerState, Program, updates
from phimu.training.streams import INIT, UPDATE, key
from phimu.types import Feed, Metrics

TOGETHER = 500  # updates in a compiled call


class Fit(NamedTuple):
    """Q of a policy in the making; the policy itself stays as it is."""

    acting: Acting
    normaliser: RunningNormaliser
    network: MLP  # (s, a) -> (Q - centre) / scale
    slow: MLP
    optimiser: optax.OptState
    centre: jax.Array  # [], the constant that is right on average: values start near it
    scale: jax.Array  # [], the spread of the data's returns to go: a size that Adam can learn
    low: jax.Array  # [], what a value can be at least with rewards like the data's
    high: jax.Array


@dataclass(frozen=True)
class FittedQ:
    """How Q of an agent's policy is fitted to a dataset."""

    discount: float = 0.99
    deterministic: bool = True
    """Whether the policy takes its mode action, as in an evaluation by episodes, or samples."""
    sizes: tuple[int, ...] = (256, 256)
    layer_norm: bool = True
    learning_rate: float = 3e-4
    target_rate: float = 0.01
    """Values come near within about 1 / (target_rate (1 - discount)) updates: 10,000."""
    batch_size: int = 256

    def init(self, acting: Acting, data: LoggedDataset, seed: int) -> Fit:
        rows = data.transitions
        # v = mean r + discount (1 - mean terminated) v. A value that all have too much of is what
        # updates take longest to correct.
        going_on = self.discount * (1 - rows.terminated.mean())
        centre = rows.reward.mean(dtype=np.float64) / (1 - going_on)
        ends = np.array([rows.reward.min(), rows.reward.max()], np.float64) / (1 - self.discount)
        network = MLP(
            (data.spec.pair_dim, *self.sizes, 1), key(seed, INIT, 0), "elu", self.layer_norm
        )
        state = Fit(
            acting,
            RunningNormaliser(rows.observation.shape[1]).of(rows.observation),
            network,
            network,
            optax.adam(self.learning_rate).init(network),
            jnp.float32(centre),
            jnp.float32(returns_to_go(rows, self.discount).std() or 1.0),
            jnp.float32(min(ends[0], 0.0)),
            jnp.float32(max(ends[1], 0.0)),
        )
        # Copies: a compiled call takes its state away, and the run keeps its policy.
        return jax.tree.map(jnp.copy, state)

    def update(self, phase: str, state: Fit, feed: Feed, key: jax.Array) -> tuple[Fit, Metrics]:
        """One step down the squared distance of Q(s, a) to r + discount Q'(s', pi(s'))."""
        action = self._act(state, feed.batch.next_observation, key)
        batch = normalise_batch(state.normaliser, feed.batch)
        future = state.centre + state.scale * _q(state.slow, batch.next_observation, action)
        target = batch.reward + self.discount * (1 - batch.terminated) * future
        # No policy is worth more than the best reward for ever: what says so is extrapolation.
        target = (jnp.clip(target, state.low, state.high) - state.centre) / state.scale

        def loss(network: MLP) -> jax.Array:
            return jnp.mean((_q(network, batch.observation, batch.action) - target) ** 2)

        value, grads = jax.value_and_grad(loss)(state.network)
        changes, optimiser = optax.adam(self.learning_rate).update(grads, state.optimiser)
        network = eqx.apply_updates(state.network, changes)
        slow = polyak(state.slow, network, self.target_rate)
        state = state._replace(network=network, slow=slow, optimiser=optimiser)
        return state, {"fit_loss": value, "fit_gradient": norm(grads)}

    def value(self, state: Fit, observation: jax.Array, key: jax.Array) -> jax.Array:
        """Q(s, pi(s)) of the slow copy, which is the mean of the last networks: [B]."""
        action = self._act(state, observation, key)
        return state.centre + state.scale * _q(state.slow, state.normaliser(observation), action)

    def _act(self, state: Fit, observation: jax.Array, key: jax.Array) -> jax.Array:
        return state.acting.act(observation, key, self.deterministic)


def _q(network: MLP, observation: jax.Array, action: jax.Array) -> jax.Array:
    return network(jnp.concatenate([observation, action], axis=-1))[..., 0]


def estimate(
    settings: FittedQ,
    acting: Acting,
    data: LoggedDataset,
    count: int,
    seed: int = 0,
    progress: Callable[[int], Any] = lambda done: None,
) -> dict[str, Any]:
    """Fit by `count` updates, and say what a policy is worth from where the episodes began."""
    state, done = LearnerState(AsIs(), settings.init(acting, data, seed)), 0
    tree: Any = jax.tree.structure(state)
    program = Program(settings, "fit", tree, data.spec, False, False, None)
    leaves = jax.tree.leaves(state)
    device = DeviceSet(data.transitions, data.spec, settings.batch_size)
    while done < count:
        together = min(TOGETHER, count - done)
        leaves, _, _, finite = updates(program, 2, leaves, device, seed, done, together)
        if not finite:
            raise InputError(
                f"The fitted Q was not finite within {done + together:,} updates: "
                "scale the reward of the data."
            )
        done += together
        progress(done)
    rows = data.transitions
    first = starts(rows)
    fit = jax.tree.unflatten(tree, leaves).agent
    value = float(jnp.mean(settings.value(fit, rows.observation[first], key(seed, UPDATE, done))))
    of_data = float(returns_to_go(rows, settings.discount)[first].mean())
    a_step = 1 - settings.discount
    return {
        "estimated_value": value,
        "estimated_reward_per_step": a_step * value,
        "estimated_by": f"fitted Q evaluation, {count} updates",
        "discount": settings.discount,
        "data_value": of_data,
        "data_reward_per_step": a_step * of_data,
        "data_episodes": int(first.sum()),
    }


def discount_of(settings: Any) -> float:
    """The agent's own, in whichever part of its settings it is; if it has none, FittedQ's."""
    own = (value for field, value in walk(settings) if field.name == "discount")
    return next(own, FittedQ.discount)


def starts(rows: Transitions) -> np.ndarray:
    """[N] bool: the first transition of each episode."""
    return np.diff(rows.episode, prepend=-1) > 0


def returns_to_go(rows: Transitions, discount: float) -> np.ndarray:
    """[N] float64: the discounted rewards from each row to the end of its episode in the log."""
    last = np.append(starts(rows)[1:], True)
    backwards = zip(rows.reward[::-1].tolist(), (discount * ~last[::-1]).tolist(), strict=True)
    found = accumulate(backwards, lambda future, row: row[0] + row[1] * future, initial=0.0)
    return np.array(list(found)[:0:-1])
