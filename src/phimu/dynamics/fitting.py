"""How an ensemble is fitted: many gradient steps in one compiled call.

It is one program, whatever number of transitions there are to fit.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.dynamics.ensemble import Ensemble, Networks
from phimu.errors import InputError, at_least
from phimu.types import Metrics, Spec

LOG_VARIANCES = (-10.0, 0.5)  # where the learned bounds of log variances begin


class DynamicsState(NamedTuple):
    ensemble: Ensemble
    optimiser: optax.OptState


class _Fit(NamedTuple):
    """What a fit carries from one gradient step to the next."""

    networks: Networks
    optimiser: optax.OptState
    likelihood: jax.Array  # [] each: sums of this epoch
    error: jax.Array


class _Stopping(NamedTuple):
    """The same from one epoch to the next, if some transitions are held out."""

    fit: _Fit
    best: Networks
    least: jax.Array  # the error of those on what is held out
    epoch: jax.Array
    since: jax.Array  # epochs since then


@dataclass(frozen=True)
class Dynamics:
    """How an ensemble is fitted."""

    ensemble_size: int = 5
    """Networks, each on its own bootstrap of the transitions."""
    model_sizes: tuple[int, ...] = (200, 200, 200, 200)
    """Hidden layers of each network, with swish between them."""
    weight_decay: tuple[float, ...] = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
    """Of |W|^2 / 2, layer by layer; the last number is the last layer's, and the one before it
    that of hidden layers without one."""
    model_learning_rate: float = 1e-3
    """Of Adam, whose state is kept from fit to fit."""
    model_batch: int = 32
    """Transitions in a gradient step of a network."""
    epochs: int = 5
    """Passes through the transitions in a fit; the most, if some are held out."""
    held_out: float = 0.0
    """Share of the transitions that no network learns from, to stop a fit by."""
    patience: int = 5
    """Epochs without a smaller error on those, after which a fit stops with its best networks."""
    bound_weight: float = 0.01
    """Of the loss that draws the bounds of log variances together."""

    def __post_init__(self) -> None:
        names = ("ensemble_size", "model_batch", "epochs", "patience")
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
        sizes = (inputs, *self.model_sizes, 2 * outputs)
        keys, size = jax.random.split(key, len(sizes) - 1), self.ensemble_size
        layers = list(zip(sizes[:-1], sizes[1:], keys, strict=True))
        weights = tuple(
            jax.random.truncated_normal(own, -2.0, 2.0, (size, m, n)) / (2.0 * np.sqrt(m))
            for m, n, own in layers
        )
        biases = tuple(jnp.zeros((size, 1, n)) for n in sizes[1:])
        bounds = (jnp.full(outputs, bound, jnp.float32) for bound in LOG_VARIANCES)
        networks = Networks(weights, biases, *bounds)
        ensemble = Ensemble(networks, jnp.zeros(inputs), jnp.ones(inputs))
        return DynamicsState(ensemble, self._optimiser.init(networks))

    def decays(self, layers: int) -> list[float]:
        """The weight decay of each layer."""
        *hidden, last = self.weight_decay
        hidden = hidden or [last]
        return [hidden[min(number, len(hidden) - 1)] for number in range(layers - 1)] + [last]

    def loss(
        self, networks: Networks, inputs: jax.Array, targets: jax.Array, weight: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Of [E, B, .]; rows count by `weight` [B]. Beside it the mean likelihood and error."""
        mean, log_variance = networks(inputs)
        squared = (mean - targets) ** 2
        share = jnp.broadcast_to((weight / jnp.sum(weight))[None, :, None], squared.shape)
        count = squared.shape[-1]
        likelihood = jnp.sum(share * (squared * jnp.exp(-log_variance) + log_variance)) / count
        decays = self.decays(len(networks.weights))
        decay = sum(
            0.5 * rate * jnp.vdot(w, w) for rate, w in zip(decays, networks.weights, strict=True)
        )
        bounds = jnp.sum(networks.highest) - jnp.sum(networks.lowest)
        total = likelihood + decay + self.bound_weight * bounds
        error = jnp.sum(share * squared) / count
        size = squared.shape[0]
        return total, (likelihood / size, error / size)

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
        mean, deviation = statistics(inputs, learned)
        ensemble = Ensemble(state.ensemble.networks, mean, deviation)
        inputs = ensemble.normalised(inputs)

        rows, size = inputs.shape[0], self.ensemble_size
        count = jnp.sum(learned).astype(jnp.int32)
        first = jnp.argsort(1.0 - learned)  # those to learn from, then the others
        places = jax.random.uniform(for_bootstrap, (size, rows)) * count
        bootstrap = first[jnp.minimum(places.astype(jnp.int32), count - 1)]
        steps = (count + self.model_batch - 1) // self.model_batch

        def epoch(number: jax.Array, fit: _Fit) -> _Fit:
            own = jax.random.fold_in(for_epochs, number)
            beyond = jnp.broadcast_to(jnp.arange(rows)[None] >= count, (size, rows))
            order = jnp.argsort(jax.random.uniform(own, (size, rows)) + beyond, axis=1)
            index = jnp.take_along_axis(bootstrap, order, axis=1)
            index = jnp.pad(index, ((0, 0), (0, -rows % self.model_batch)))
            begun = fit._replace(likelihood=jnp.zeros(()), error=jnp.zeros(()))
            return jax.lax.fori_loop(0, steps, lambda at, fit: step(at, fit, index), begun)

        def step(at: jax.Array, fit: _Fit, index: jax.Array) -> _Fit:
            start = at * self.model_batch
            chosen = jax.lax.dynamic_slice_in_dim(index, start, self.model_batch, axis=1)
            weight = (start + jnp.arange(self.model_batch) < count).astype(jnp.float32)
            loss = jax.grad(self.loss, has_aux=True)
            slope, (likelihood, error) = loss(fit.networks, inputs[chosen], targets[chosen], weight)
            change, optimiser = self._optimiser.update(slope, fit.optimiser)
            networks = optax.apply_updates(fit.networks, change)
            return _Fit(networks, optimiser, fit.likelihood + likelihood, fit.error + error)

        begun = _Fit(ensemble.networks, state.optimiser, jnp.zeros(()), jnp.zeros(()))
        if self.held_out:
            judges = jnp.where(jnp.sum(unseen) > 0, unseen, learned)  # of few rows none is held out
            fit, more = self._until_worse(begun, epoch, inputs, targets, judges)
        else:
            fit, more = jax.lax.fori_loop(0, self.epochs, epoch, begun), {}
        metrics = {"model_loss": fit.likelihood / steps, "model_error": fit.error / steps, **more}
        return DynamicsState(Ensemble(fit.networks, mean, deviation), fit.optimiser), metrics

    def _until_worse(
        self, begun: _Fit, epoch: Any, inputs: jax.Array, targets: jax.Array, judges: jax.Array
    ) -> tuple[_Fit, Metrics]:
        """Epochs until the error on the rows that are `judges` has not fallen for a while."""

        def error(networks: Networks) -> jax.Array:
            shape = (self.ensemble_size, *inputs.shape)
            mean, _ = networks(jnp.broadcast_to(inputs, shape))
            squared = jnp.mean((mean - jnp.broadcast_to(targets, mean.shape)) ** 2, axis=(0, 2))
            return jnp.sum(squared * judges) / jnp.sum(judges)

        def going_on(at: _Stopping) -> jax.Array:
            return (at.epoch < self.epochs) & (at.since < self.patience)

        def body(at: _Stopping) -> _Stopping:
            fit = epoch(at.epoch, at.fit)
            found = error(fit.networks)
            better = found < at.least
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), fit.networks, at.best)
            since = jnp.where(better, 0, at.since + 1)
            return _Stopping(fit, best, jnp.minimum(found, at.least), at.epoch + 1, since)

        zero = jnp.int32(0)
        first = _Stopping(begun, begun.networks, error(begun.networks), zero, zero)
        last = jax.lax.while_loop(going_on, body, first)
        metrics = {"held_out_error": last.least, "epochs_made": last.epoch.astype(jnp.float32)}
        return last.fit._replace(networks=last.best), metrics


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
