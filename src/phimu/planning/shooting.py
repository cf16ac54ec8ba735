"""Planning by trying out: sequences of actions in a model, at random or refined (CEM).

Each candidate is rolled out as particles of an ensemble. The planner is handed functions, and knows
neither how the model is learned nor by which agent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from phimu.errors import InputError, at_least
from phimu.types import Known

LEAST_VARIANCE = 1e-3  # below which all sequences are about the same, so that CEM stops
NOT_FINITE = -1e6  # the return of a sequence along which the model ran away

# (s, a), both [E, B, .] or both [B, .], to the mean and deviation of s' [E, B, D] by each of E
# networks and the reward [E, B], or None where it is not learned.
Predict = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array | None]]
_Carried = tuple[jax.Array, jax.Array, jax.Array]
Returns = Callable[[jax.Array, jax.Array], jax.Array]  # (plans [N, H, A], key) -> [N]


class World(NamedTuple):
    """What is planned in."""

    networks: int  # E
    predict: Predict
    known: Known | None  # the task's own reward and end


@dataclass(frozen=True)
class Shooting:
    """How sequences of actions are searched, and how a model judges them."""

    optimiser: Literal["cem", "rs"] = "cem"
    """cem: the cross-entropy method; rs: random shooting, the best of uniform sequences."""
    plan_horizon: int = 30
    """Steps that are looked ahead."""
    candidates: int = 500
    """Sequences tried at a time."""
    elites: int = 50
    """The best of them, to which CEM moves its Gaussian."""
    iterations: int = 5
    """How often CEM does so, at most."""
    smoothing: float = 0.1
    """Share of its last mean and variance that CEM keeps."""
    initial_variance: float = 0.25
    """Of CEM's first Gaussian, around the middle of the actions' range."""
    propagation: Literal["expectation", "ts_inf", "ts_1"] = "expectation"
    """expectation: the mean of the networks' means; ts_inf: particles, each sampled from a network
    of its own; ts_1: the particles of a sequence change networks at every step."""
    particles: int = 20
    """Of each sequence, a multiple of ensemble_size; of no account to expectation."""

    def __post_init__(self) -> None:
        names = ("plan_horizon", "candidates", "elites", "iterations", "particles")
        at_least(1, **{name: getattr(self, name) for name in names})
        if self.optimiser == "cem" and self.elites > self.candidates:
            raise InputError(
                f"elites is {self.elites}, but candidates {self.candidates}: give fewer elites."
            )
        if not 0 <= self.smoothing < 1:
            raise InputError(f"smoothing is {self.smoothing}: give a share from 0 to below 1.")

    def check(self, networks: int) -> None:
        """InputError if particles cannot be shared out among so many networks."""
        if self.propagation != "expectation" and self.particles % networks:
            raise InputError(
                f"particles is {self.particles}: give a multiple of ensemble_size, {networks}."
            )

    def plan(self, world: World, observation: jax.Array, size: int, key: jax.Array) -> jax.Array:
        """Actions [plan_horizon, size] in [-1, 1] from an observation [D] on."""
        self.check(world.networks)

        def returns(plans: jax.Array, own: jax.Array) -> jax.Array:
            return self.returns(world, observation, plans, own)

        search = {"cem": cross_entropy, "rs": random_shooting}[self.optimiser]
        return search(self, returns, (self.plan_horizon, size), key)

    def returns(
        self, world: World, observation: jax.Array, plans: jax.Array, key: jax.Array
    ) -> jax.Array:
        """What each of the plans [N, H, A] is expected to earn: [N]."""
        count, steps, _ = plans.shape
        by_step, keys = jnp.swapaxes(plans, 0, 1), jax.random.split(key, steps)
        rollout = _expected if self.propagation == "expectation" else _sampled
        total = rollout(self, world, observation, count, by_step, keys)
        return jnp.where(jnp.isfinite(total), total, NOT_FINITE)


def _expected(
    settings: Shooting,
    world: World,
    observation: jax.Array,
    count: int,
    by_step: jax.Array,
    keys: jax.Array,
) -> jax.Array:
    """One particle, moved by the mean of all networks."""

    def step(carried: _Carried, action: jax.Array) -> tuple[_Carried, None]:
        s, alive, total = carried
        mean, _, learned = world.predict(s, action)
        after = jnp.mean(mean, axis=0)
        reward = None if learned is None else jnp.mean(learned, axis=0)
        return (after, *_count(world.known, s, action, after, reward, alive, total)), None

    s = jnp.broadcast_to(observation, (count, observation.shape[-1]))
    first = s, jnp.ones(count), jnp.zeros(count)
    (_, _, total), _ = jax.lax.scan(step, first, by_step)
    return total


def _sampled(
    settings: Shooting,
    world: World,
    observation: jax.Array,
    count: int,
    by_step: jax.Array,
    keys: jax.Array,
) -> jax.Array:
    """Particles [E, N * M, .]: each network moves M of every sequence, with its own noise."""
    size, each, dim = world.networks, settings.particles // world.networks, observation.shape[-1]

    def step(carried: _Carried, given: tuple[jax.Array, jax.Array]) -> tuple[_Carried, None]:
        s, alive, total = carried
        action, own = given
        for_noise, for_order = jax.random.split(own)
        if settings.propagation == "ts_1":
            s, alive, total = _exchanged(for_order, (size, count, each), s, alive, total)
        wide = (size, count, each, action.shape[-1])
        a = jnp.broadcast_to(action[None, :, None], wide).reshape(size, count * each, -1)
        mean, deviation, reward = world.predict(s, a)
        after = mean + deviation * jax.random.normal(for_noise, mean.shape)
        return (after, *_count(world.known, s, a, after, reward, alive, total)), None

    shape = (size, count * each)
    first = jnp.broadcast_to(observation, (*shape, dim)), jnp.ones(shape), jnp.zeros(shape)
    (_, _, total), _ = jax.lax.scan(step, first, (by_step, keys))
    return jnp.mean(total.reshape(size, count, each), axis=(0, 2))


def _exchanged(key: jax.Array, shape: tuple[int, int, int], *arrays: jax.Array) -> list[jax.Array]:
    """Arrays [E, N * M, ...] with the E * M particles of each sequence in a random order."""
    size, count, each = shape
    order = jnp.argsort(jax.random.uniform(key, (count, size * each)), axis=1)

    def exchanged(x: jax.Array) -> jax.Array:
        rest = x.shape[2:]
        rows = jnp.swapaxes(x.reshape(size, count, each, *rest), 0, 1)
        rows = rows.reshape(count, size * each, *rest)
        rows = jax.vmap(lambda own, index: own[index])(rows, order)
        return jnp.swapaxes(rows.reshape(count, size, each, *rest), 0, 1).reshape(x.shape)

    return [exchanged(x) for x in arrays]


def _count(
    known: Known | None,
    s: jax.Array,
    action: jax.Array,
    after: jax.Array,
    learned: jax.Array | None,
    alive: jax.Array,
    total: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Whether it goes on, and what it earned so far; after its end it earns nothing."""
    if known is None:
        return alive, total if learned is None else total + alive * learned
    total = total + jnp.where(alive > 0, known.reward(s, action, after), 0.0)
    if known.terminated is not None:
        alive = alive * ~known.terminated(after)
    return alive, total


def random_shooting(
    settings: Shooting, returns: Returns, shape: tuple[int, int], key: jax.Array
) -> jax.Array:
    """The best of uniformly random plans."""
    for_plans, for_returns = jax.random.split(key)
    plans = jax.random.uniform(for_plans, (settings.candidates, *shape), minval=-1.0, maxval=1.0)
    return plans[jnp.argmax(returns(plans, for_returns))]


def cross_entropy(
    settings: Shooting, returns: Returns, shape: tuple[int, int], key: jax.Array
) -> jax.Array:
    """The mean of a Gaussian that moves to the best of its samples.

    The mean and not the best sample, whose return is the model's error as much as its own merit.
    """

    def going_on(at: _Carried) -> jax.Array:
        _, variance, number = at
        return (number < settings.iterations) & (jnp.max(variance) > LEAST_VARIANCE)

    def body(at: _Carried) -> _Carried:
        mean, variance, number = at
        for_plans, for_returns = jax.random.split(jax.random.fold_in(key, number))
        plans = sample_plans(mean, variance, settings.candidates, for_plans)
        _, best = jax.lax.top_k(returns(plans, for_returns), settings.elites)
        elite, keep = plans[best], settings.smoothing
        mean = keep * mean + (1 - keep) * jnp.mean(elite, axis=0)
        variance = keep * variance + (1 - keep) * jnp.var(elite, axis=0)
        return mean, variance, number + 1

    first = jnp.zeros(shape), jnp.full(shape, settings.initial_variance), jnp.int32(0)
    mean, _, _ = jax.lax.while_loop(going_on, body, first)
    return mean


def sample_plans(mean: jax.Array, variance: jax.Array, count: int, key: jax.Array) -> jax.Array:
    """[count, H, A] in [-1, 1]: Gaussians cut at two deviations, none of which reaches beyond."""
    room = jnp.minimum(((mean + 1) / 2) ** 2, ((1 - mean) / 2) ** 2)
    deviation = jnp.sqrt(jnp.minimum(variance, room))
    noise = jax.random.truncated_normal(key, -2.0, 2.0, (count, *mean.shape))
    wide = (jnp.broadcast_to(x, noise.shape) for x in (mean, deviation))
    return jnp.clip(next(wide) + next(wide) * noise, -1.0, 1.0)  # rounding alone goes beyond
