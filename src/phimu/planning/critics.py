"""Q heads on phi: linear (UCBL), linear plus hidden (appendix B), two to four layers (UCBM, SAC).

A critic is a twin: two heads, called one by one. Stacked into arrays with a leading axis of 2 they
would be copied for every product.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu import initial
from phimu.networks import ACTIVATIONS, MLP, Dense, cosine, norm, product, sine, standardise
from phimu.types import Metrics

CriticName = Literal[
    "linear", "random_features", "linear_plus_hidden", "two_layer", "three_layer", "four_layer"
]
FREQUENCY = 2.0  # of random features, in radians per deviation of what they read


class Linear(eqx.Module):
    """Q = w' phi. Deviation: a bias, because phi need not contain the constant function."""

    out: Dense

    def __init__(self, inputs: int, width: int, key: jax.Array, activation: str, norm: bool):
        del width, activation, norm
        self.out = Dense(inputs, 1, key)

    def __call__(self, phi: jax.Array) -> jax.Array:
        return self.out(phi)[..., 0]


class RandomFeatures(eqx.Module):
    """Q = w' f(phi), linear in `width` random features of phi: cos and sin of projections of it.

    exp(<phi, mu>) is an expectation over such features, so with the exponential ratio P(s'|s, a),
    and with it Q, is linear in them and not in phi itself. Only w is trained.
    """

    frequencies: jax.Array  # [inputs, width / 2]
    out: Dense

    def __init__(self, inputs: int, width: int, key: jax.Array, activation: str, norm: bool):
        del activation, norm
        count, (for_frequencies, for_out) = width // 2, jax.random.split(key)
        spread = FREQUENCY / np.sqrt(inputs)
        self.frequencies = initial.normal(for_frequencies, (inputs, count), spread)
        self.out = Dense(2 * count, 1, for_out, gain=0.1)

    def __call__(self, phi: jax.Array) -> jax.Array:
        angle = product(phi, jax.lax.stop_gradient(self.frequencies))
        waves = jnp.concatenate([cosine(angle), sine(angle)], axis=-1)
        return self.out(waves)[..., 0]


class LinearPlusHidden(eqx.Module):
    """Q = w1' phi + w2' sigma(w3' phi), equation (q_param); the second term follows the bonus."""

    direct: Dense
    hidden: Dense
    out: Dense
    activation: str = eqx.field(static=True)
    norm: bool = eqx.field(static=True)

    def __init__(self, inputs: int, width: int, key: jax.Array, activation: str, norm: bool):
        direct, hidden, out = jax.random.split(key, 3)
        self.direct = Dense(inputs, 1, direct)
        self.hidden = Dense(inputs, width, hidden)
        self.out = Dense(width, 1, out)
        self.activation = activation
        self.norm = norm

    def __call__(self, phi: jax.Array) -> jax.Array:
        hidden = self.hidden(phi)
        hidden = ACTIVATIONS[self.activation](standardise(hidden) if self.norm else hidden)
        return (self.direct(phi) + self.out(hidden))[..., 0]


class Layers(eqx.Module):
    """An MLP with hidden layers of these sizes and a scalar output."""

    network: MLP

    def __init__(
        self, sizes: Sequence[int], inputs: int, key: jax.Array, activation: str, norm: bool
    ):
        self.network = MLP((inputs, *sizes, 1), key, activation, norm)

    def __call__(self, phi: jax.Array) -> jax.Array:
        return self.network(phi)[..., 0]


def _layers(hidden_layers: int) -> Callable[..., Layers]:
    return lambda inputs, width, *more: Layers([width] * hidden_layers, inputs, *more)


class Less(eqx.Module):
    """What another head says of all inputs but the last, less the last itself."""

    head: "Head"

    def __call__(self, inputs: jax.Array) -> jax.Array:
        return self.head(inputs[..., :-1]) - inputs[..., -1]


Head = Linear | RandomFeatures | LinearPlusHidden | Layers | Less

CRITICS: dict[str, Callable[..., Head]] = {
    "linear": Linear,
    "random_features": RandomFeatures,
    "linear_plus_hidden": LinearPlusHidden,
    "two_layer": _layers(1),
    "three_layer": _layers(2),
    "four_layer": _layers(3),
}


Twin = tuple[Head, ...]


def twin(name: str, inputs: int, width: int, key: jax.Array, activation: str, norm: bool) -> Twin:
    """Two critics of one kind with different starts."""
    make = CRITICS[name]
    return tuple(make(inputs, width, k, activation, norm) for k in jax.random.split(key))


def less_last(critic: Twin) -> Twin:
    """Each head less the last of its inputs, one more than it has now: a penalty, for instance."""
    return tuple(Less(head) for head in critic)


def as_it_is(critic: Twin) -> Twin:
    return critic


def sized_twin(
    sizes: Sequence[int], inputs: int, key: jax.Array, activation: str, norm: bool
) -> Twin:
    """Two MLPs with hidden layers of these sizes."""
    return tuple(Layers(sizes, inputs, k, activation, norm) for k in jax.random.split(key))


def values(critic: Twin, phi: jax.Array) -> jax.Array:
    """Both Q values of phi [B, d]: [2, B]."""
    return jnp.stack([head(phi) for head in critic])


def smaller(critic: Twin, phi: jax.Array) -> jax.Array:
    """The smaller of both Q values: [B]."""
    return jnp.min(values(critic, phi), axis=0)


def td_step(
    critic: Twin,
    optimised: optax.OptState,
    optimiser: optax.GradientTransformation,
    phi: jax.Array,
    target: jax.Array,
) -> tuple[Twin, optax.OptState, Metrics]:
    """One step of both heads towards targets [B] of phi [B, d]."""

    def loss(critic: Twin) -> tuple[jax.Array, jax.Array]:
        both = values(critic, phi)  # [2, B]
        return jnp.mean((both - target[None, :]) ** 2), jnp.mean(both)

    (td_loss, value), grads = jax.value_and_grad(loss, has_aux=True)(critic)
    updates, optimised = optimiser.update(grads, optimised)
    told = {"td_loss": td_loss, "value": value, "critic_gradient": norm(grads)}
    return eqx.apply_updates(critic, updates), optimised, told


def of_every_action(
    critic: Twin,
    phi: Callable[[jax.Array, jax.Array], jax.Array],
    observation: jax.Array,
    count: int,
) -> jax.Array:
    """The smaller Q value of each of `count` one-hot actions at observations [B, D]: [B, count]."""
    rows = jnp.repeat(observation, count, axis=0)
    actions = jnp.tile(jnp.eye(count), (observation.shape[0], 1))
    return smaller(critic, phi(rows, actions)).reshape(-1, count)


def of_actions(
    critic: Twin,
    phi: Callable[[jax.Array, jax.Array], jax.Array],
    observation: jax.Array,
    action: jax.Array,
) -> jax.Array:
    """Both Q values of N actions [B, N, A] at each observation [B, D]: [2, B, N]."""
    rows, count, _ = action.shape
    repeated = jnp.repeat(observation, count, axis=0)
    both = values(critic, phi(repeated, action.reshape(rows * count, -1)))
    return both.reshape(-1, rows, count)


BesidePhi = Literal["nothing", "pair", "scaled_pair"]


def beside(phi: jax.Array, how: BesidePhi, observation: jax.Array, action: jax.Array) -> jax.Array:
    """What a critic reads: phi [B, d] alone, with (s, a), or with (s, a) as loud as phi.

    At unit variance a single action would hardly be heard among hundreds of components of phi, so
    scaled_pair multiplies (s, a) by sqrt(d / their number).
    """
    if how == "nothing":
        return phi
    pair = jnp.concatenate([observation, action], -1)
    if how == "scaled_pair":
        pair = pair * (phi.shape[-1] / pair.shape[-1]) ** 0.5
    return jnp.concatenate([phi, pair], -1)
