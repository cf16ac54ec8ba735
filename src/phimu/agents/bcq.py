"""BCQ (Fujimoto et al., 2019): Q-learning over actions that a model of the behaviour proposes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from phimu.agents import schedule
from phimu.agents.sac import concatenate
from phimu.agents.schedule import Preset, Presets
from phimu.errors import InputError, at_least
from phimu.networks import MLP, norm, polyak
from phimu.planning.critics import Twin, sized_twin, smaller, td_step
from phimu.planning.proposals import BestOf, best_value
from phimu.planning.variational import Autoencoder, GenerativeCloning, GenerativeCloningState
from phimu.types import Batch, Feed, Metrics, Spec


class Perturbation(eqx.Module):
    """xi(s, a): an action, moved by at most `bound` in each dimension."""

    network: MLP
    bound: float = eqx.field(static=True)

    def __init__(self, spec: Spec, sizes: Sequence[int], bound: float, key: jax.Array):
        self.network = MLP((spec.pair_dim, *sizes, spec.action_dim), key, "relu", last_gain=0.1)
        self.bound = bound

    def __call__(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        move = self.bound * jnp.tanh(self.network(concatenate(observation, action)))
        return jnp.clip(action + move, -1.0, 1.0)


class Perturbed(eqx.Module):
    """Proposes actions of the behaviour, perturbed."""

    model: Autoencoder
    perturbation: Perturbation
    behaviour: GenerativeCloning = eqx.field(static=True)

    def propose(self, observation: jax.Array, count: int, key: jax.Array) -> jax.Array:
        action = jnp.tanh(self.behaviour.sample(self.model, observation, count, key))
        rows = jnp.repeat(observation, count, axis=0)
        moved = self.perturbation(rows, action.reshape(len(rows), -1))
        return moved.reshape(action.shape)


class BcqState(NamedTuple):
    behaviour: GenerativeCloningState
    actor: Perturbation
    slow_actor: Perturbation
    critic: Twin
    slow_critic: Twin
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState


@dataclass(frozen=True)
class Bcq:
    """BCQ, with the published values. The model of the behaviour, Q and xi learn side by side."""

    behaviour: GenerativeCloning = GenerativeCloning()
    perturbation: float = 0.05
    """Phi: how far xi may move an action of the behaviour."""
    smaller_weight: float = 0.75
    """lambda: of the smaller Q in the target; the larger one has the rest."""
    target_samples: int = 10
    """Actions at s' whose best value is the target's."""
    acting_samples: int = 100
    """Actions of which the best by the first Q is taken."""
    actor_sizes: tuple[int, ...] = (400, 300)
    """Hidden layers of xi, with ReLU."""
    critic_sizes: tuple[int, ...] = (400, 300)
    """Hidden layers of the critic, with ReLU."""
    discount: float = 0.99
    """gamma."""
    target_rate: float = 0.005
    """How fast the slow copies of xi and critic follow."""
    actor_learning_rate: float = 1e-3
    """Adam's step for xi."""
    critic_learning_rate: float = 1e-3
    """Adam's step for the critic."""

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise InputError(f"discount is {self.discount}: give a number from 0 to below 1.")
        if not 0 <= self.smaller_weight <= 1:
            raise InputError(f"smaller_weight is {self.smaller_weight}: give a share from 0 to 1.")
        if self.perturbation < 0:
            raise InputError(f"perturbation is {self.perturbation}: give 0 or more.")
        at_least(1, target_samples=self.target_samples, acting_samples=self.acting_samples)

    def optimisers(self) -> tuple[optax.GradientTransformation, ...]:
        return optax.adam(self.actor_learning_rate), optax.adam(self.critic_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> BcqState:
        for_behaviour, actor_key, critic_key = jax.random.split(key, 3)
        actor = Perturbation(spec, self.actor_sizes, self.perturbation, actor_key)
        critic = sized_twin(self.critic_sizes, spec.pair_dim, critic_key, "relu", False)
        for_actor, for_critic = self.optimisers()
        behaviour = self.behaviour.init(spec, for_behaviour)
        optimised = for_actor.init(actor), for_critic.init(critic)
        return BcqState(behaviour, actor, actor, critic, critic, *optimised)

    def policy(self, state: BcqState) -> BestOf:
        proposal = Perturbed(state.behaviour.model, state.actor, self.behaviour)
        return BestOf(proposal, state.critic[0], concatenate, self.acting_samples)

    def update(
        self, phase: str, state: BcqState, feed: Feed, key: jax.Array
    ) -> tuple[BcqState, Metrics]:
        """One step of the behaviour's model, of the critic and of xi; then the slow copies'."""
        batch = feed.batch
        for_behaviour, for_target, for_actor = jax.random.split(key, 3)
        behaviour, cloned = self.behaviour.update(
            state.behaviour, batch.observation, batch.action, for_behaviour
        )
        state = state._replace(behaviour=behaviour)
        critic, optimised, judged = td_step(
            state.critic,
            state.critic_optimiser,
            self.optimisers()[1],
            concatenate(batch.observation, batch.action),
            self._target(state, batch, for_target),
        )
        state = state._replace(critic=critic, critic_optimiser=optimised)
        state, told = self._actor_step(state, batch, for_actor)
        state = state._replace(
            slow_actor=polyak(state.slow_actor, state.actor, self.target_rate),
            slow_critic=polyak(state.slow_critic, state.critic, self.target_rate),
        )
        return state, cloned | judged | told

    def _target(self, state: BcqState, batch: Batch, key: jax.Array) -> jax.Array:
        """r + discount max over proposals of the weighted mean of both slow Q: [B]."""
        proposal = Perturbed(state.behaviour.model, state.slow_actor, self.behaviour)
        actions = proposal.propose(batch.next_observation, self.target_samples, key)
        next_value = best_value(
            state.slow_critic, concatenate, batch.next_observation, actions, self.smaller_weight
        )
        return batch.reward + self.discount * (1.0 - batch.terminated) * next_value

    def _actor_step(
        self, state: BcqState, batch: Batch, key: jax.Array
    ) -> tuple[BcqState, Metrics]:
        """xi raises the first Q of one action of the behaviour."""
        sampled = self.behaviour.sample(state.behaviour.model, batch.observation, 1, key)
        action = jnp.tanh(sampled[:, 0])

        def loss(actor: Perturbation) -> tuple[jax.Array, jax.Array]:
            moved = actor(batch.observation, action)
            value = state.critic[0](concatenate(batch.observation, moved))
            return -jnp.mean(value), jnp.mean(jnp.abs(moved - action))

        (policy_loss, move), grads = jax.value_and_grad(loss, has_aux=True)(state.actor)
        updates, optimised = self.optimisers()[0].update(grads, state.actor_optimiser)
        actor = eqx.apply_updates(state.actor, updates)
        told = {"policy_loss": policy_loss, "perturbed": move, "actor_gradient": norm(grads)}
        return state._replace(actor=actor, actor_optimiser=optimised), told

    def q_value(self, state: BcqState, observation: jax.Array, action: jax.Array) -> jax.Array:
        return smaller(state.critic, concatenate(observation, action))


LOGGED: Presets = {
    "d4rl": Preset(Bcq(), replace(schedule.LOGGED, batch_size=100)),
    "small": Preset(
        Bcq(
            GenerativeCloning(behaviour_sizes=(256, 256)),
            actor_sizes=(256, 256),
            critic_sizes=(256, 256),
        ),
        schedule.LOGGED_NORMALISED,
    ),
}
