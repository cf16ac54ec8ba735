"""The planner of appendix B: soft actor-critic whose critic reads a function phi(s, a).

The planner is handed the function, never the learner behind it, and differentiates its losses
with respect to its own parameters only: no TD or policy gradient can reach phi.

Of discrete actions the policy is categorical, and what is an expectation over actions is computed
as a sum over them instead of from one sample (Christodoulou, arXiv:1910.07207).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.errors import InputError
from phimu.networks import copied, norm, polyak
from phimu.planning.critics import (
    CriticName,
    Twin,
    as_it_is,
    of_every_action,
    smaller,
    twin,
    values,
)
from phimu.policies import Categorical, TanhGaussian
from phimu.types import Batch, Metrics, Spec

Phi = Callable[[jax.Array, jax.Array], jax.Array]  # (observation, action) -> [B, d]
Actor = TanhGaussian | Categorical
ENTROPY_SHARE = 0.3  # of log n, the entropy that a policy on n actions is held at
# (observation, an action of the policy, its log density) -> how far from the behaviour: [B]
Divergence = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
# (critic, its values [2, B] of the batch) -> what is added to its loss, and what is told of it
Pessimism = Callable[[Twin, jax.Array], tuple[jax.Array, Metrics]]
# actor -> what it raises in place of Q: [B]
Merit = Callable[[Any], jax.Array]


class Regulariser(NamedTuple):
    """What holds a policy near logged data; `planning.behaviour.Regularisation` has the words."""

    divergence: Divergence
    weight: float
    value_scale: float | None
    value_penalty: bool


class SoftActorCriticState(NamedTuple):
    """Training state of actor, twin critic and entropy weight."""

    actor: Actor
    critic: Twin
    slow_critic: Twin
    log_entropy_weight: jax.Array
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    entropy_optimiser: optax.OptState
    updates: jax.Array | None  # [], how many so far, where `target_every` asks for it


@dataclass(frozen=True)
class SoftActorCritic:
    """How a policy is planned on phi."""

    critic: CriticName = "two_layer"
    """Q on phi: linear (UCBL), linear_plus_hidden (appendix B), two_layer (UCBM), three_layer,
    four_layer."""
    critic_width: int = 256
    """Units of the critic's hidden layers."""
    actor_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor."""
    activation: Literal["elu", "relu"] = "elu"
    """Activation of actor and critic."""
    planner_layer_norm: bool = False
    """LayerNorm in the hidden layers of actor and critic."""
    error_bound: float | None = None
    """If given, errors of Q beyond it count linearly in the critic's loss, not by their square
    (Huber's loss, times two): a few far states then do not outweigh all others."""
    discount: float = 0.99
    """gamma."""
    target_rate: float = 0.005
    """How fast the target critic follows ("Target Update Tau")."""
    target_every: int = 0
    """If above 0, the target critic does not follow but is a copy, made anew every so many updates
    (before the update whose number divides by it)."""
    critic_learning_rate: float = 3e-4
    """Adam's step for the critic."""
    actor_learning_rate: float = 3e-4
    """Adam's step for the actor."""
    entropy_learning_rate: float = 3e-4
    """Adam's step for the entropy weight."""
    initial_entropy_weight: float = 0.1
    """Where the automatic entropy weight starts."""
    target_entropy: float | None = None
    """Entropy the policy is held at; by default minus the number of action dimensions, or a share
    of log n (ENTROPY_SHARE) where an action is one of n."""
    extra_entropy: float = 0.0
    """Added to that default where actions are continuous. Several dimensions may share theirs out;
    one alone is held at -1, a standard deviation of 0.09 within [-1, 1], with which a policy at one
    end never tries the other. With 1 it is one of 0.24."""
    entropy_in_target: bool = True
    """Whether the target of Q holds the entropy of the next action, as in appendix B."""

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise InputError(f"discount is {self.discount}: give a number from 0 to below 1.")
        if not 0 < self.target_rate <= 1:
            raise InputError(f"target_rate is {self.target_rate}: give a rate above 0, at most 1.")
        if self.error_bound is not None and self.error_bound <= 0:
            raise InputError(f"error_bound is {self.error_bound}: give a positive number, or None.")
        if self.target_every < 0:
            raise InputError(f"target_every is {self.target_every}: give 0, or how many updates.")
        if self.initial_entropy_weight <= 0:
            raise InputError(
                f"initial_entropy_weight is {self.initial_entropy_weight}: give a positive number."
            )

    def optimisers(self) -> tuple[optax.GradientTransformation, ...]:
        return (
            optax.adam(self.actor_learning_rate),
            optax.adam(self.critic_learning_rate),
            optax.adam(self.entropy_learning_rate),
        )

    def init(
        self,
        spec: Spec,
        feature_dim: int,
        key: jax.Array,
        wrap: Callable[[Twin], Twin] = as_it_is,
    ) -> SoftActorCriticState:
        """`wrap` makes the critic that is trained of one on `feature_dim` inputs."""
        actor_key, critic_key = jax.random.split(key)
        style = (self.activation, self.planner_layer_norm)
        kind = Categorical if spec.discrete else TanhGaussian
        sizes = spec.observation_dim, spec.action_dim, self.actor_sizes
        actor = kind(*sizes, actor_key, *style)
        critic = wrap(twin(self.critic, feature_dim, self.critic_width, critic_key, *style))
        log_weight = jnp.log(jnp.asarray(self.initial_entropy_weight, jnp.float32))
        for_actor, for_critic, for_entropy = self.optimisers()
        return SoftActorCriticState(
            actor,
            critic,
            critic,
            log_weight,
            for_actor.init(actor),
            for_critic.init(critic),
            for_entropy.init(log_weight),
            jnp.zeros((), jnp.int32) if self.target_every else None,
        )

    def update(
        self,
        state: SoftActorCriticState,
        phi: Phi,
        batch: Batch,
        key: jax.Array,
        here: jax.Array | None = None,
        regulariser: Regulariser | None = None,
        pessimism: Pessimism | None = None,
        merit: Merit | None = None,
    ) -> tuple[SoftActorCriticState, Metrics]:
        """One critic, one actor and one entropy-weight step, then the target critic's.

        `here` is phi(s, a) of the batch, for callers who have it already. The rest is for offline
        learning: `regulariser` is the divergence from the behaviour policy at one action of the
        policy, `pessimism` a term of the critic's loss, `merit` what the actor raises in place
        of Q.
        """
        if here is None:
            here = phi(batch.observation, batch.action)
        more = regulariser, pessimism, merit
        return self.update_and_pull(state, phi, phi, batch, key, here, *more)[:2]

    def update_and_pull(
        self,
        state: SoftActorCriticState,
        phi: Phi,
        target_phi: Phi,
        batch: Batch,
        key: jax.Array,
        here: jax.Array,
        regulariser: Regulariser | None = None,
        pessimism: Pessimism | None = None,
        merit: Merit | None = None,
    ) -> tuple[SoftActorCriticState, Metrics, jax.Array]:
        """The same with another phi for targets, and where the TD loss pulls phi(s, a): [B, d].

        The pull is a gradient, an array: what becomes of it is up to the learner of phi.
        """
        # One draw for both: on a CPU each is a loop of its own.
        for_target, for_policy = jax.random.normal(key, (2, *batch.action.shape))
        for_actor, for_critic, for_entropy = self.optimisers()
        weight = jnp.exp(state.log_entropy_weight)
        state = self._with_target(state)

        next_action, next_log_density, next_value = judged(
            state.actor, state.slow_critic, target_phi, batch.next_observation, for_target
        )
        if self.entropy_in_target:
            next_value = next_value - weight * next_log_density
        if regulariser is not None and regulariser.value_penalty:
            next_value = next_value - regulariser.weight * regulariser.divergence(
                batch.next_observation, next_action, next_log_density
            )
        target = batch.reward + self.discount * (1.0 - batch.terminated) * next_value

        def critic_loss(critic: Twin, here: jax.Array) -> tuple[jax.Array, Metrics]:
            both = values(critic, here)  # [2, B]
            error, bound = both - target[None, :], self.error_bound
            each = error**2 if bound is None else 2.0 * optax.huber_loss(error, delta=bound)
            loss = jnp.mean(each)
            told = {"td_loss": loss, "value": jnp.mean(both)}
            if pessimism is not None:
                term, of_it = pessimism(critic, both)
                return loss + term, told | of_it
            return loss, told

        (_, of_critic), (grads, pull) = jax.value_and_grad(critic_loss, (0, 1), has_aux=True)(
            state.critic, here
        )
        critic_gradient = norm(grads)
        updates, critic_optimiser = for_critic.update(grads, state.critic_optimiser)
        critic = eqx.apply_updates(state.critic, updates)

        def actor_loss(actor: Actor) -> tuple[jax.Array, Metrics]:
            action, log_density, value = judged(actor, critic, phi, batch.observation, for_policy)
            if merit is not None:
                value = merit(actor)
            if regulariser is not None and regulariser.value_scale is not None:
                size = jax.lax.stop_gradient(jnp.mean(jnp.abs(value)))
                value = value * regulariser.value_scale / size
            loss = weight * log_density - value
            told = {"entropy": -jnp.mean(log_density)}
            if regulariser is not None:
                divergence = regulariser.divergence(batch.observation, action, log_density)
                loss = loss + regulariser.weight * divergence
                told["divergence"] = jnp.mean(divergence)
            return jnp.mean(loss), told

        (policy_loss, told), grads = jax.value_and_grad(actor_loss, has_aux=True)(state.actor)
        actor_gradient = norm(grads)
        updates, actor_optimiser = for_actor.update(grads, state.actor_optimiser)
        actor = eqx.apply_updates(state.actor, updates)

        aim = self.target_entropy
        if aim is None:
            count = batch.action.shape[-1]
            discrete = isinstance(state.actor, Categorical)
            aim = ENTROPY_SHARE * math.log(count) if discrete else self.extra_entropy - count
        # d/dw of exp(w) (entropy - aim), without the factor exp(w): steps do not vanish with it
        updates, entropy_optimiser = for_entropy.update(
            told["entropy"] - aim, state.entropy_optimiser
        )
        log_weight = state.log_entropy_weight + updates

        state = SoftActorCriticState(
            actor,
            critic,
            state.slow_critic
            if self.target_every
            else polyak(state.slow_critic, critic, self.target_rate),
            log_weight,
            actor_optimiser,
            critic_optimiser,
            entropy_optimiser,
            state.updates,
        )
        metrics = {
            **of_critic,
            "policy_loss": policy_loss,
            "entropy_weight": weight,
            "critic_gradient": critic_gradient,
            "actor_gradient": actor_gradient,
            **told,
        }
        return state, metrics, pull

    def _with_target(self, state: SoftActorCriticState) -> SoftActorCriticState:
        """With a new copy as the target critic, where one is due."""
        if state.updates is None:
            return state
        updates = state.updates + 1
        due = updates % self.target_every == 0
        slow_critic = copied(due, state.slow_critic, state.critic)
        return state._replace(slow_critic=slow_critic, updates=updates)


def judged(
    actor: Actor, critic: Twin, phi: Phi, observation: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """An action [B, A] of the policy at each observation, its log density [B] and its value [B].

    Of a categorical policy, which needs no noise, the expectations of the three.
    """
    if isinstance(actor, TanhGaussian):
        action, log_density = actor.with_noise(observation, noise)
        return action, log_density, smaller(critic, phi(observation, action))
    logs = actor(observation)  # [B, n]
    chances = jnp.exp(logs)
    each = of_every_action(critic, phi, observation, logs.shape[-1])
    return chances, jnp.sum(chances * logs, axis=-1), jnp.sum(chances * each, axis=-1)
