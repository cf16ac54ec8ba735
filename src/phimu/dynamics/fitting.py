"""How an ensemble is fitted: many gradient steps in one compiled call.

It is one program, whatever number of transitions there are to fit.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.dynamics.ensemble import Ensemble, Networks
from phimu.errors import InputError, at_least
from phimu.types import Batch, Metrics, Spec

LOG_VARIANCES = (-10.0, 0.5)  # where the learned bounds of log variances begin
JUDGED = 1_024  # rows that are held out whose errors are computed at a time


class DynamicsState(NamedTuple):
    ensemble: Ensemble
    optimiser: optax.OptState


class _Fit(NamedTuple):
    """What a fit carries from one gradient step to the next."""

    networks: Networks
    optimiser: optax.OptState
    objective: jax.Array  # [] each: sums of this epoch
    error: jax.Array


class _Stopping(NamedTuple):
    """The same from one epoch to the next, if some transitions are held out."""

    fit: _Fit
    best: Networks
    least: jax.Array  # [E]: the errors of those on what is held out
    epoch: jax.Array
    since: jax.Array  # epochs since one of them fell


@dataclass(frozen=True)
class Dynamics:
    """How an ensemble is fitted."""

    ensemble_size: int = 5
    """Networks, each with its own first weights and order of the transitions."""
    bootstrap: bool = True
    """Whether each has its own bootstrap of the transitions too, or all of them."""
    model_sizes: tuple[int, ...] = (200, 200, 200, 200)
    """Hidden layers of each network."""
    model_activation: Literal["swish", "relu"] = "swish"
    """Between those layers."""
    model_objective: Literal["likelihood", "squared_error"] = "likelihood"
    """likelihood: of a Gaussian, mean and variance; squared_error: of the mean, and no variance."""
    normalise_targets: bool = False
    """Whether s' - s and a learned reward are normalised for the networks, as (s, a) always is."""
    weight_decay: tuple[float, ...] = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
    """Of |W|^2 / 2, layer by layer; the last number is the last layer's, and the one before it
    that of hidden layers without one."""
    decay_by_count: bool = False
    """Whether weight_decay is divided by the number of transitions that are learned from."""
    model_learning_rate: float = 1e-3
    """Of Adam, whose state is kept from fit to fit."""
    model_batch: int = 32
    """Transitions in a gradient step of a network."""
    epochs: int = 5
    """Passes through the transitions in a fit; the most, if some are held out."""
    held_out: float = 0.0
    """Share of the transitions that no network learns from, to stop a fit by."""
    check_every: int = 1
    """Epochs between two looks at the error on those."""
    patience: int = 5
    """Epochs without a smaller error of any network, after which a fit stops."""
    keep_best: bool = True
    """Whether each network is then the best that it was, or the last."""
    bound_weight: float = 0.01
    """Of the loss that draws the bounds of log variances together."""

    def __post_init__(self) -> None:
        names = ("ensemble_size", "model_batch", "epochs", "patience", "check_every")
        at_least(1, **{name: getattr(self, name) for name in names})
        if not self.weight_decay:
            raise InputError("weight_decay is empty: give a number per layer, such as 0,0.")
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}: give a share from 0 to below 1.")

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.model_learning_rate)

    def init(self, spec: Spec, learns_reward: bool, key: jax.Array) -> DynamicsState:
        inputs = spec.pair_dim
        outputs = spec.observation_dim + learns_reward
        gaussian = self.model_objective == "likelihood"
        sizes = (inputs, *self.model_sizes, outputs * (1 + gaussian))
        keys, size = jax.random.split(key, len(sizes) - 1), self.ensemble_size
        layers = list(zip(sizes[:-1], sizes[1:], keys, strict=True))
        weights = tuple(
            jax.random.truncated_normal(own, -2.0, 2.0, (size, m, n)) / (2.0 * np.sqrt(m))
            for m, n, own in layers
        )
        biases = tuple(jnp.zeros((size, 1, n)) for n in sizes[1:])
        lowest, highest = (
            jnp.full(outputs, bound, jnp.float32) if gaussian else None for bound in LOG_VARIANCES
        )
        networks = Networks(weights, biases, lowest, highest, self.model_activation)
        scales = [jnp.zeros(inputs), jnp.ones(inputs)]
        if self.normalise_targets:
            scales += [jnp.zeros(outputs), jnp.ones(outputs)]
        ensemble = Ensemble(networks, *scales)
        return DynamicsState(ensemble, self._optimiser.init(networks))

    def decays(self, layers: int) -> list[float]:
        """The weight decay of each layer."""
        *hidden, last = self.weight_decay
        hidden = hidden or [last]
        return [hidden[min(number, len(hidden) - 1)] for number in range(layers - 1)] + [last]

    def loss(
        self,
        networks: Networks,
        inputs: jax.Array,
        targets: jax.Array,
        weight: jax.Array,
        learned: jax.Array | float = 1.0,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Of [E, B, .]; rows count by `weight` [B]. Beside it the mean objective and error.

        `learned` transitions are learned from in all.
        """
        mean, log_variance = networks(inputs)
        squared = (mean - targets) ** 2
        share = jnp.broadcast_to((weight / jnp.sum(weight))[None, :, None], squared.shape)
        size, count = squared.shape[0], squared.shape[-1]
        error = objective = jnp.sum(share * squared) / count
        bounds, low, high = jnp.zeros(()), networks.lowest, networks.highest
        if log_variance is not None and low is not None and high is not None:
            likelihood = squared * jnp.exp(-log_variance) + log_variance
            objective = jnp.sum(share * likelihood) / count
            bounds = jnp.sum(high) - jnp.sum(low)
        decays = self.decays(len(networks.weights))
        decay: Any = sum(
            0.5 * rate * jnp.vdot(w, w) for rate, w in zip(decays, networks.weights, strict=True)
        )
        decay = decay / learned if self.decay_by_count else decay
        total = objective + decay + self.bound_weight * bounds
        return total, (objective / size, error / size)

    def fit(
        self,
        state: DynamicsState,
        inputs: jax.Array,
        targets: jax.Array,
        real: jax.Array,
        key: jax.Array,
    ) -> tuple[DynamicsState, Metrics]:
        """Epochs on rows [N, .] of which those count where `real` [N] is 1; the rest is padding."""
        for_bootstrap, for_epochs = jax.random.split(key)
        unseen = held_out(inputs, self.held_out) * real
        learned = real - unseen
        scales = [*statistics(inputs, learned)]
        if self.normalise_targets:
            scales += statistics(targets, learned)
        ensemble = Ensemble(state.ensemble.networks, *scales)
        inputs, targets = ensemble.normalised(inputs), ensemble.normalised_targets(targets)

        rows, size = inputs.shape[0], self.ensemble_size
        count = jnp.sum(learned).astype(jnp.int32)
        first = jnp.argsort(1.0 - learned)  # those to learn from, then the others
        chosen = jnp.broadcast_to(first, (size, rows))
        if self.bootstrap:
            places = jax.random.uniform(for_bootstrap, (size, rows)) * count
            chosen = first[jnp.minimum(places.astype(jnp.int32), count - 1)]
        steps = (count + self.model_batch - 1) // self.model_batch

        def epoch(number: jax.Array, fit: _Fit) -> _Fit:
            own = jax.random.fold_in(for_epochs, number)
            beyond = jnp.broadcast_to(jnp.arange(rows)[None] >= count, (size, rows))
            order = jnp.argsort(jax.random.uniform(own, (size, rows)) + beyond, axis=1)
            index = jnp.take_along_axis(chosen, order, axis=1)
            index = jnp.pad(index, ((0, 0), (0, -rows % self.model_batch)))
            begun = fit._replace(objective=jnp.zeros(()), error=jnp.zeros(()))
            return jax.lax.fori_loop(0, steps, lambda at, fit: step(at, fit, index), begun)

        def step(at: jax.Array, fit: _Fit, index: jax.Array) -> _Fit:
            start = at * self.model_batch
            own = jax.lax.dynamic_slice_in_dim(index, start, self.model_batch, axis=1)
            weight = (start + jnp.arange(self.model_batch) < count).astype(jnp.float32)
            loss = jax.grad(self.loss, has_aux=True)
            slope, (objective, error) = loss(
                fit.networks, inputs[own], targets[own], weight, jnp.sum(learned)
            )
            change, optimiser = self._optimiser.update(slope, fit.optimiser)
            networks = optax.apply_updates(fit.networks, change)
            return _Fit(networks, optimiser, fit.objective + objective, fit.error + error)

        begun = _Fit(ensemble.networks, state.optimiser, jnp.zeros(()), jnp.zeros(()))
        if self.held_out:
            judges = jnp.where(jnp.sum(unseen) > 0, unseen, learned)  # of few rows none is held out
            fit, more = self._until_worse(begun, epoch, inputs, targets, judges)
        else:
            fit, more = jax.lax.fori_loop(0, self.epochs, epoch, begun), {}
        metrics = {"model_loss": fit.objective / steps, "model_error": fit.error / steps, **more}
        return DynamicsState(replace(ensemble, networks=fit.networks), fit.optimiser), metrics

    def _until_worse(
        self, begun: _Fit, epoch: Any, inputs: jax.Array, targets: jax.Array, judges: jax.Array
    ) -> tuple[_Fit, Metrics]:
        """Epochs until the errors on the rows that are `judges` have not fallen for a while."""
        order = jnp.pad(jnp.argsort(1.0 - judges), (0, -inputs.shape[0] % JUDGED))
        count = jnp.sum(judges)

        def errors(networks: Networks) -> jax.Array:
            """Of each network: [E]. Some rows at a time, for all might not fit into memory."""

            def some(at: jax.Array, total: jax.Array) -> jax.Array:
                own = jax.lax.dynamic_slice_in_dim(order, at * JUDGED, JUDGED)
                mean, _ = networks(jnp.broadcast_to(inputs[own], (size, JUDGED, inputs.shape[1])))
                squared = (mean - jnp.broadcast_to(targets[own], mean.shape)) ** 2
                counted = (at * JUDGED + jnp.arange(JUDGED) < count).astype(jnp.float32)
                return total + jnp.mean(squared, axis=2) @ counted

            size, pieces = self.ensemble_size, (count.astype(jnp.int32) + JUDGED - 1) // JUDGED
            return jax.lax.fori_loop(0, pieces, some, jnp.zeros(size)) / count

        def going_on(at: _Stopping) -> jax.Array:
            return (at.epoch < self.epochs) & (at.since < self.patience)

        def body(at: _Stopping) -> _Stopping:
            upto = jnp.minimum(at.epoch + self.check_every, self.epochs)
            fit = jax.lax.fori_loop(at.epoch, upto, epoch, at.fit)
            found = errors(fit.networks)
            better = found < at.least
            best = jax.tree.map(lambda new, old: _each(better, new, old), fit.networks, at.best)
            since = jnp.where(jnp.any(better), 0, at.since + upto - at.epoch)
            return _Stopping(fit, best, jnp.minimum(found, at.least), upto, since)

        zero = jnp.int32(0)
        first = _Stopping(begun, begun.networks, errors(begun.networks), zero, zero)
        last = jax.lax.while_loop(going_on, body, first)
        least = last.least if self.keep_best else errors(last.fit.networks)
        metrics = {
            "held_out_error": jnp.mean(least),
            "epochs_made": last.epoch.astype(jnp.float32),
        }
        return last.fit._replace(networks=last.best) if self.keep_best else last.fit, metrics


def _each(better: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """A layer of the networks that are better [E]; bounds are shared, so they go with any."""
    if new.ndim == 1:
        return jnp.where(jnp.any(better), new, old)
    return jnp.where(jnp.broadcast_to(better[:, None, None], new.shape), new, old)


def examples(batch: Batch, learns_reward: bool) -> tuple[jax.Array, jax.Array]:
    """Inputs (s, a) and targets s' - s, with the reward behind them if it is learned.

    Actions are clipped, as they were on their way into the environment.
    """
    action = jnp.clip(batch.action, -1.0, 1.0)
    targets = batch.next_observation - batch.observation
    if learns_reward:
        targets = jnp.concatenate([targets, batch.reward[:, None]], axis=1)
    return jnp.concatenate([batch.observation, action], axis=1), targets


def statistics(inputs: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and deviation of rows [N, inputs] that count by `weight`; 1 for what never varies."""
    share = jnp.broadcast_to((weight / jnp.sum(weight))[:, None], inputs.shape)
    mean = jnp.sum(share * inputs, axis=0)
    centred = inputs - jnp.broadcast_to(mean, inputs.shape)
    deviation = jnp.sqrt(jnp.sum(share * centred**2, axis=0))
    # A constant in float32 misses its mean by a few units of the last place.
    return mean, jnp.where(deviation < 1e-12 + 1e-6 * jnp.abs(mean), 1.0, deviation)


def held_out(inputs: jax.Array, share: float) -> jax.Array:
    """1.0 for about this share of the rows [N, inputs], by their bits: a row's side never changes,
    wherever it lies and however often it is drawn."""
    if not share:
        return jnp.zeros(inputs.shape[0])
    bits = jax.lax.bitcast_convert_type(inputs, jnp.uint32)
    places = jnp.arange(1, 2 * inputs.shape[1], 2, dtype=jnp.uint32)[None]
    mixed = jnp.sum(bits * jnp.broadcast_to(places, bits.shape), axis=1, dtype=jnp.uint32)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(2654435761)
    return ((mixed >> 8) < jnp.uint32(share * 2**24)).astype(jnp.float32)
