"""BEAR (Kumar et al., 2019): an actor within a maximum mean discrepancy of the behaviour policy."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.agents import schedule
from phimu.agents.protocol import POLICY, Phase
from phimu.agents.sac import concatenate
from phimu.agents.schedule import Preset, Presets
from phimu.errors import InputError, at_least
from phimu.networks import norm, polyak
from phimu.planning.critics import Twin, sized_twin, smaller, td_step
from phimu.planning.proposals import BestOf, best_value
from phimu.planning.variational import GenerativeCloning, GenerativeCloningState
from phimu.policies import TanhGaussian
from phimu.types import Batch, Feed, Metrics, Spec

WARM_START = "warm_start"
LOG_MULTIPLIER = (-5.0, 10.0)  # bounds, as published


def discrepancy(x: jax.Array, y: jax.Array, kernel: str, scale: float) -> jax.Array:
    """Maximum mean discrepancy of N samples [B, N, A] from M others [B, M, A], state by state: [B].

    The biased estimate. As published the kernel is exp(-distance / (2 scale)), not of scale
    squared, and 1e-6 is added under the root, whose slope at zero is infinite.
    """

    def mean(one: jax.Array, other: jax.Array) -> jax.Array:
        apart = one[:, :, None, :] - other[:, None, :, :]
        each = jnp.abs(apart) if kernel == "laplacian" else apart**2
        return jnp.mean(jnp.exp(-jnp.sum(each, axis=-1) / (2.0 * scale)), axis=(1, 2))

    squared = mean(x, x) + mean(y, y) - 2.0 * mean(x, y)
    return jnp.sqrt(jnp.maximum(squared, 0.0) + 1e-6)  # rounding may leave less than nothing


def before_tanh(
    actor: TanhGaussian, observation: jax.Array, count: int, key: jax.Array
) -> jax.Array:
    """`count` samples of the actor at observations [B, D], before the tanh: [B, count, A]."""
    mean, log_std = actor(observation[:, None, :])
    noise = jax.random.normal(key, (len(observation), count, mean.shape[-1]))
    return mean + jnp.exp(log_std) * noise


class OfActor(eqx.Module):
    """Proposes actions of the actor."""

    actor: TanhGaussian

    def propose(self, observation: jax.Array, count: int, key: jax.Array) -> jax.Array:
        return jnp.tanh(before_tanh(self.actor, observation, count, key))


class BearState(NamedTuple):
    behaviour: GenerativeCloningState
    actor: TanhGaussian
    critic: Twin
    slow_critic: Twin
    log_multiplier: jax.Array  # [] of the discrepancy
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    multiplier_optimiser: optax.OptState


@dataclass(frozen=True)
class Bear:
    """BEAR, with the values of D4RL's evaluation."""

    behaviour: GenerativeCloning = GenerativeCloning(behaviour_learning_rate=3e-4)
    kernel: Literal["laplacian", "gaussian"] = "laplacian"
    """Of the discrepancy: D4RL's table has laplacian for hopper and walker2d, gaussian for
    halfcheetah."""
    kernel_scale: float = 20.0
    """sigma of the kernel."""
    discrepancy_limit: float = 0.05
    """How far from the behaviour the actor may be; a multiplier is learned that holds it."""
    discrepancy_samples: int = 4
    """Actions of the actor, and of the behaviour, that the discrepancy is of."""
    warm_start_updates: int = 40_000
    """Updates first in which the actor only follows the behaviour and the critic learns already."""
    smaller_weight: float = 0.75
    """Of the smaller Q in the target; the larger one has the rest."""
    target_samples: int = 10
    """Actions at s' whose best value is the target's."""
    acting_samples: int = 100
    """Actions of which the best by the first Q is taken."""
    actor_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor, with ReLU."""
    critic_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the critic, with ReLU."""
    discount: float = 0.99
    """gamma."""
    target_rate: float = 0.005
    """How fast the slow copy of the critic follows."""
    actor_learning_rate: float = 1e-4
    """Adam's step for the actor."""
    critic_learning_rate: float = 3e-4
    """Adam's step for the critic."""
    multiplier_learning_rate: float = 1e-3
    """Adam's step for the logarithm of the multiplier."""

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise InputError(f"discount is {self.discount}: give a number from 0 to below 1.")
        if not 0 <= self.smaller_weight <= 1:
            raise InputError(f"smaller_weight is {self.smaller_weight}: give a share from 0 to 1.")
        if self.kernel_scale <= 0:
            raise InputError(f"kernel_scale is {self.kernel_scale}: give a positive number.")
        at_least(0, warm_start_updates=self.warm_start_updates)
        counts = ("discrepancy_samples", "target_samples", "acting_samples")
        at_least(1, **{name: getattr(self, name) for name in counts})

    @property
    def phases(self) -> tuple[Phase, ...]:
        # Deviation: warm start comes before the updates that are counted, not out of them.
        first = Phase(WARM_START, self.warm_start_updates)
        return (first, *POLICY) if first.updates else POLICY

    def optimisers(self) -> tuple[optax.GradientTransformation, ...]:
        return (
            optax.adam(self.actor_learning_rate),
            optax.adam(self.critic_learning_rate),
            optax.adam(self.multiplier_learning_rate),
        )

    def init(self, spec: Spec, key: jax.Array) -> BearState:
        for_behaviour, actor_key, critic_key = jax.random.split(key, 3)
        sizes = spec.observation_dim, spec.action_dim, self.actor_sizes
        actor = TanhGaussian(*sizes, actor_key, "relu")
        critic = sized_twin(self.critic_sizes, spec.pair_dim, critic_key, "relu", False)
        learned = actor, critic, jnp.zeros(())
        optimised = (each.init(x) for each, x in zip(self.optimisers(), learned, strict=True))
        behaviour = self.behaviour.init(spec, for_behaviour)
        return BearState(behaviour, actor, critic, critic, learned[2], *optimised)

    def policy(self, state: BearState) -> BestOf:
        return BestOf(OfActor(state.actor), state.critic[0], concatenate, self.acting_samples)

    def update(
        self, phase: str, state: BearState, feed: Feed, key: jax.Array
    ) -> tuple[BearState, Metrics]:
        """One step of the behaviour's model, of critic, actor and multiplier; then the slow copy's.

        In the warm start the actor's loss has no Q.
        """
        batch = feed.batch
        for_behaviour, for_target, for_actor = jax.random.split(key, 3)
        behaviour, cloned = self.behaviour.update(
            state.behaviour, batch.observation, batch.action, for_behaviour
        )
        critic, optimised, judged = td_step(
            state.critic,
            state.critic_optimiser,
            self.optimisers()[1],
            concatenate(batch.observation, batch.action),
            self._target(state, batch, for_target),
        )
        state = state._replace(
            behaviour=behaviour,
            critic=critic,
            critic_optimiser=optimised,
            slow_critic=polyak(state.slow_critic, critic, self.target_rate),
        )
        state, told = self._actor_step(state, batch, for_actor, phase != WARM_START)
        return state, cloned | judged | told

    def _target(self, state: BearState, batch: Batch, key: jax.Array) -> jax.Array:
        """r + discount max over the actor's samples of the weighted mean of both slow Q: [B]."""
        actions = OfActor(state.actor).propose(batch.next_observation, self.target_samples, key)
        next_value = best_value(
            state.slow_critic, concatenate, batch.next_observation, actions, self.smaller_weight
        )
        return batch.reward + self.discount * (1.0 - batch.terminated) * next_value

    def _actor_step(
        self, state: BearState, batch: Batch, key: jax.Array, with_value: bool
    ) -> tuple[BearState, Metrics]:
        """The actor down, the multiplier up E[multiplier (discrepancy - limit) - min Q]."""
        for_behaviour, for_policy = jax.random.split(key)
        count, observation = self.discrepancy_samples, batch.observation
        logged = self.behaviour.sample(state.behaviour.model, observation, count, for_behaviour)
        multiplier = jnp.exp(state.log_multiplier)

        def loss(actor: TanhGaussian) -> tuple[jax.Array, jax.Array]:
            sampled = before_tanh(actor, observation, count, for_policy)
            apart = jnp.mean(discrepancy(logged, sampled, self.kernel, self.kernel_scale))
            held = multiplier * (apart - self.discrepancy_limit)
            if not with_value:
                return held, apart
            action = jnp.tanh(sampled[:, 0])
            return held - jnp.mean(smaller(state.critic, concatenate(observation, action))), apart

        (policy_loss, apart), grads = jax.value_and_grad(loss, has_aux=True)(state.actor)
        for_actor, _, for_multiplier = self.optimisers()
        updates, actor_optimiser = for_actor.update(grads, state.actor_optimiser)
        up, multiplier_optimiser = for_multiplier.update(
            -multiplier * (apart - self.discrepancy_limit), state.multiplier_optimiser
        )
        state = state._replace(
            actor=eqx.apply_updates(state.actor, updates),
            log_multiplier=jnp.clip(state.log_multiplier + up, *LOG_MULTIPLIER),
            actor_optimiser=actor_optimiser,
            multiplier_optimiser=multiplier_optimiser,
        )
        return state, {
            "policy_loss": policy_loss,
            "discrepancy": apart,
            "multiplier": multiplier,
            "actor_gradient": norm(grads),
        }

    def q_value(self, state: BearState, observation: jax.Array, action: jax.Array) -> jax.Array:
        return smaller(state.critic, concatenate(observation, action))


LOGGED: Presets = {
    "d4rl": Preset(Bear(), schedule.LOGGED),
    "small": Preset(
        Bear(
            GenerativeCloning(behaviour_sizes=(256, 256), behaviour_learning_rate=3e-4),
            warm_start_updates=5_000,
            target_samples=4,
        ),
        schedule.LOGGED_NORMALISED,
    ),
}
