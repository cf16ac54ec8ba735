"""BRAC: soft actor-critic on a set of transitions, held near the policy that logged them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from phimu.agents.sac import concatenate
from phimu.data.device_set import DeviceSet
from phimu.networks import Precision, in_own_precision
from phimu.normalisation import Acting, Normaliser, normalise_batch, normaliser
from phimu.planning.behaviour import DIVERGENCES, BehaviourCloning
from phimu.planning.critics import smaller
from phimu.planning.dual_divergence import Dual, DualKl, kl_dual
from phimu.planning.soft_actor_critic import Planner, SoftActorCritic
from phimu.types import Batch, Metrics, Spec

# What the published code plans with. Deviation: its critics have swish, here all have ReLU.
PLANNER = SoftActorCritic(
    critic="three_layer",
    activation="relu",
    actor_learning_rate=3e-5,
    critic_learning_rate=3e-4,
    entropy_learning_rate=1e-4,
    entropy_in_target=False,
    behaviour_weight=1.0,
)


Draw = Callable[[jax.Array], Batch]  # a batch by a key, as actor and critic see it


class BracState(NamedTuple):
    normaliser: Normaliser
    held_by: Any  # a Behaviour, or of kl_dual a Dual
    planner: Planner

    @property
    def acting(self) -> Acting:
        return Acting(self.normaliser, self.planner.actor)


@dataclass(frozen=True)
class Brac:
    """BRAC-p, and with `value_penalty` BRAC-v."""

    behaviour: BehaviourCloning = field(default_factory=BehaviourCloning)
    dual: DualKl = field(default_factory=DualKl)
    planner: SoftActorCritic = PLANNER
    divergence: Literal["cross_entropy", "kl_primal", "kl_dual"] = "cross_entropy"
    """From the behaviour: -log b(a|s), log pi - log b, or their mean from logged actions alone."""
    normalise_observations: bool = False
    """Whether observations are normalised by the statistics of the set."""
    precision: Precision = "float32"
    """Of the operands of matrix products in an update; bfloat16 gains on hardware that has it."""

    @property
    def phases(self) -> tuple[tuple[str, int], ...]:
        if self.divergence == "kl_dual":
            return (("policy", 0),)
        return (("behaviour", self.behaviour.behaviour_updates), ("policy", 0))

    def init(self, spec: Spec, key: jax.Array) -> BracState:
        for_divergence, for_planner = jax.random.split(key)
        held_by = self.dual if self.divergence == "kl_dual" else self.behaviour
        state = BracState(
            normaliser(self.normalise_observations, spec.observation_dim),
            held_by.init(spec, for_divergence),
            self.planner.init(spec, sum(spec), for_planner),
        )
        return jax.tree.map(jnp.copy, state)

    def begin(self, phase: str, state: BracState, data: DeviceSet) -> tuple[BracState, DeviceSet]:
        return state._replace(normaliser=state.normaliser.of(data.observations)), data

    @in_own_precision
    def learn(
        self, phase: str, state: BracState, data: DeviceSet, key: jax.Array
    ) -> tuple[BracState, Metrics]:
        def draw(key: jax.Array) -> Batch:
            return normalise_batch(state.normaliser, data.sample(key).batch)

        return self.update(phase, state, draw, key)

    def update(
        self, phase: str, state: BracState, draw: Draw, key: jax.Array
    ) -> tuple[BracState, Metrics]:
        """One update of the clone, and in the next phase of the planner alone."""
        for_dual, for_update = jax.random.split(key)
        batch = draw(key)
        if phase == "behaviour":
            behaviour, learned = self.behaviour.update(
                state.held_by, batch.observation, batch.action, for_update
            )
            return state._replace(held_by=behaviour), learned
        told: Metrics = {}
        if self.divergence == "kl_dual":
            dual, told = self._follow(state, draw, for_dual)
            state = state._replace(held_by=dual)
            regulariser = kl_dual(dual.network, batch.observation, batch.action)
        else:
            regulariser = DIVERGENCES[self.divergence](state.held_by.policy)
        planner, planned = self.planner.update(
            state.planner, concatenate, batch, for_update, regulariser=regulariser
        )
        return state._replace(planner=planner), told | planned

    def _follow(self, state: BracState, draw: Draw, key: jax.Array) -> tuple[Dual, Metrics]:
        """`dual_steps` steps of c towards the policy as it is now, each on a batch of its own."""

        def step(dual: Dual, key: jax.Array) -> tuple[Dual, Metrics]:
            for_batch, for_action, for_share = jax.random.split(key, 3)
            batch = draw(for_batch)
            action, _ = state.planner.actor.sample(batch.observation, for_action)
            share = jax.random.uniform(for_share, batch.reward.shape)
            return self.dual.update(dual, batch.observation, action, batch.action, share)

        keys = jax.random.split(key, self.dual.dual_steps)
        dual, told = jax.lax.scan(step, state.held_by, keys)
        return dual, {name: value[-1] for name, value in told.items()}

    def act(
        self, acting: Acting, observation: jax.Array, key: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Actions in [-1, 1] for observations [..., D]."""
        return acting.act(observation, key, deterministic)

    def q_value(self, state: BracState, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The smaller of the twin Q values: [B]."""
        return smaller(state.planner.critic, concatenate(state.normaliser(observation), action))
