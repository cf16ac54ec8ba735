"""Planners for logged data, which keep a policy near it: near a clone, or near the actions alone.

Both have `preparation` (updates before planning), `init`, `prepare`, `draw`, `update`, `policy` and
`critic_of`, so that an agent holds one of them without knowing which.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from phimu.errors import InputError, at_least
from phimu.planning.behaviour import BehaviourCloning, BehaviourCloningState, Regularisation
from phimu.planning.critics import CriticName, Twin, as_it_is, smaller, twin
from phimu.planning.deterministic import (
    DeterministicState,
    actor_step,
    begin,
    critic_step,
    noisy,
    per_size,
)
from phimu.planning.soft_actor_critic import Actor, Phi, SoftActorCritic, SoftActorCriticState
from phimu.policies import Deterministic
from phimu.types import Feed, Metrics, Sample, Spec, Store

Keys = tuple[jax.Array, jax.Array]
Wrap = Callable[[Twin], Twin]
# By the name that `--planner` takes.
PLANNERS = {
    "clone": "phimu.planning.held_near:NearClone",
    "squared_error": "phimu.planning.held_near:NearActions",
}


class NearCloneState(NamedTuple):
    behaviour: BehaviourCloningState
    actor_critic: SoftActorCriticState


@dataclass(frozen=True)
class NearClone:
    """Soft actor-critic, held near a clone of the behaviour policy by a divergence (BRAC)."""

    behaviour: BehaviourCloning = BehaviourCloning()
    regularisation: Regularisation = Regularisation()
    actor_critic: SoftActorCritic = SoftActorCritic()

    @property
    def preparation(self) -> int:
        return self.behaviour.behaviour_updates

    def init(self, spec: Spec, inputs: int, keys: Keys, wrap: Wrap = as_it_is) -> NearCloneState:
        """`keys` are for planning and for the preparation; `wrap` is of the critic."""
        behaviour = self.behaviour.init(spec, keys[1])
        return NearCloneState(behaviour, self.actor_critic.init(spec, inputs, keys[0], wrap))

    def prepare(
        self, state: NearCloneState, feed: Feed, key: jax.Array
    ) -> tuple[NearCloneState, Metrics]:
        """One update of the clone."""
        batch = feed.batch
        behaviour, metrics = self.behaviour.update(
            state.behaviour, batch.observation, batch.action, key
        )
        return state._replace(behaviour=behaviour), metrics

    def draw(self, store: Store, sample: Sample) -> dict[str, jax.Array]:
        """Nothing besides the batch."""
        return {}

    def update(
        self, state: NearCloneState, phi: Phi, feed: Feed, key: jax.Array, here: jax.Array
    ) -> tuple[NearCloneState, Metrics]:
        """One step of critic, actor and entropy weight; `here` is phi(s, a) of the batch."""
        near = self.regularisation.near(state.behaviour.policy)
        actor_critic, metrics = self.actor_critic.update(
            state.actor_critic, phi, feed.batch, key, here, near
        )
        return state._replace(actor_critic=actor_critic), metrics

    def policy(self, state: NearCloneState) -> Actor:
        return state.actor_critic.actor

    def critic_of(self, state: NearCloneState) -> Twin:
        return state.actor_critic.critic

    def behaviour_log_density(
        self, state: NearCloneState, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        """Of the action under the clone: [B]."""
        return state.behaviour.policy.log_density(observation, action)


@dataclass(frozen=True)
class NearActions:
    """TD3, held near the logged actions by squared errors in actor and target (ReBRAC).

    It needs no clone, and the actor, whose step goes through phi, is updated every other time.
    """

    actor_penalty: float = 0.05
    """Of the squared distance to the logged action in the actor's loss, where Q is divided by its
    mean size."""
    critic_penalty: float = 0.01
    """Of the squared distance to the next logged action in the target of Q."""
    policy_noise: float = 0.2
    """Standard deviation of the noise of the next action in the target of Q."""
    noise_clip: float = 0.5
    """Bound of that noise."""
    actor_every: int = 2
    """Updates of the critic per update of the actor and of the slow copies."""
    actor_sizes: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor, with ReLU."""
    critic: CriticName = "two_layer"
    """Q on phi, as of soft actor-critic."""
    critic_width: int = 256
    """Units of the critic's hidden layers, with ReLU."""
    critic_layer_norm: bool = True
    """LayerNorm in the hidden layers of the critic."""
    discount: float = 0.99
    """gamma."""
    target_rate: float = 0.005
    """How fast the slow copies of actor and critic follow."""
    actor_learning_rate: float = 1e-3
    """Adam's step for the actor."""
    critic_learning_rate: float = 1e-3
    """Adam's step for the critic."""

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise InputError(f"discount is {self.discount}: give a number from 0 to below 1.")
        for name in ("actor_penalty", "critic_penalty"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}: give 0 or more.")
        at_least(1, actor_every=self.actor_every)

    @property
    def preparation(self) -> int:
        return 0

    def optimisers(self) -> tuple[optax.GradientTransformation, ...]:
        return optax.adam(self.actor_learning_rate), optax.adam(self.critic_learning_rate)

    def init(
        self, spec: Spec, inputs: int, keys: Keys, wrap: Wrap = as_it_is
    ) -> DeterministicState:
        for_actor, for_critic = jax.random.split(keys[0])
        actor = Deterministic(spec.observation_dim, spec.action_dim, self.actor_sizes, for_actor)
        style = for_critic, "relu", self.critic_layer_norm
        critic = wrap(twin(self.critic, inputs, self.critic_width, *style))
        return begin(actor, critic, *self.optimisers())

    def prepare(
        self, state: DeterministicState, feed: Feed, key: jax.Array
    ) -> tuple[DeterministicState, Metrics]:
        """Nothing: `preparation` is 0."""
        return state, {}

    def draw(self, store: Any, sample: Sample) -> dict[str, jax.Array]:
        """Also the action that was logged at s', where the episode goes on in the set."""
        return next_logged(store, sample)

    def update(
        self, state: DeterministicState, phi: Phi, feed: Feed, key: jax.Array, here: jax.Array
    ) -> tuple[DeterministicState, Metrics]:
        """One step of the critic, and where it is due of the actor; `here` is phi(s, a)."""
        return near_actions_update(self, state, phi, feed, key, here)

    def policy(self, state: DeterministicState) -> Deterministic:
        return state.slowly.actor

    def critic_of(self, state: DeterministicState) -> Twin:
        return state.critic


class Nearness(Protocol):
    """What `near_actions_update` is told: settings of the names that `NearActions` explains."""

    @property
    def actor_penalty(self) -> float: ...
    @property
    def critic_penalty(self) -> float: ...
    @property
    def policy_noise(self) -> float: ...
    @property
    def noise_clip(self) -> float: ...
    @property
    def actor_every(self) -> int: ...
    @property
    def discount(self) -> float: ...
    @property
    def target_rate(self) -> float: ...
    def optimisers(self) -> tuple[optax.GradientTransformation, ...]: ...


def next_logged(store: Any, sample: Sample) -> dict[str, jax.Array]:
    """The action that was logged at s', and whether the episode goes on in the set."""
    action, logged = store.next_actions(sample.index)
    return {"next_action": action, "logged": logged}


def near_actions_update(
    held: Nearness,
    state: DeterministicState,
    phi: Phi,
    feed: Feed,
    key: jax.Array,
    here: jax.Array,
) -> tuple[DeterministicState, Metrics]:
    """ReBRAC on phi: one step of the critic, and each `actor_every`th time one of the actor."""
    batch = feed.batch
    for_actor, for_critic = held.optimisers()
    target, penalty = _near_target(held, state, phi, feed, key)
    state, metrics = critic_step(state, here, target, for_critic)

    def loss(actor: Deterministic) -> tuple[jax.Array, Metrics]:
        action = actor.mode(batch.observation)
        value = smaller(state.critic, phi(batch.observation, action))
        distance = jnp.sum((action - batch.action) ** 2, axis=-1)
        each = held.actor_penalty * distance - per_size(1.0, value) * value
        policy_loss = jnp.mean(each)
        return policy_loss, {"policy_loss": policy_loss, "cloning_loss": jnp.mean(distance)}

    state, told = actor_step(state, loss, for_actor, held.actor_every, held.target_rate)
    return state, metrics | told | {"target_penalty": penalty}


def _near_target(
    held: Nearness, state: DeterministicState, phi: Phi, feed: Feed, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """r + discount (min Q~(s', a') - critic_penalty |a' - the logged one|^2): [B].

    And the mean of the penalty. Deviation: where an episode is cut there is no logged a', and no
    penalty; the published code leaves out these rows.
    """
    batch, slow = feed.batch, state.slowly
    next_action = slow.slow_actor.mode(batch.next_observation)
    next_action = noisy(next_action, key, held.policy_noise, held.noise_clip)
    next_value = smaller(slow.slow_critic, phi(batch.next_observation, next_action))
    distance = jnp.sum((next_action - feed.columns["next_action"]) ** 2, axis=-1)
    penalty = held.critic_penalty * feed.columns["logged"] * distance
    goes_on = 1.0 - batch.terminated
    target = batch.reward + held.discount * goes_on * (next_value - penalty)
    return target, jnp.mean(goes_on * penalty)
