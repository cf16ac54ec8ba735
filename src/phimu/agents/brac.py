"""BRAC: soft actor-critic on logged data, held near the policy that logged it."""

from dataclasses import dataclass
from typing import NamedTuple

import jax

from phimu.agents import schedule
from phimu.agents.protocol import Phase
from phimu.agents.sac import concatenate
from phimu.agents.schedule import Preset, Presets
from phimu.planning.behaviour import (
    CLONED_QUICKLY,
    NOT_HELD,
    BehaviourCloning,
    BehaviourCloningState,
    Regularisation,
)
from phimu.planning.critics import smaller
from phimu.planning.soft_actor_critic import Actor, SoftActorCritic, SoftActorCriticState
from phimu.types import Feed, Metrics, Spec

# What the published code plans with. Deviation: its critics have swish, here all have ReLU.
PLANNER = SoftActorCritic(
    critic="three_layer",
    activation="relu",
    actor_learning_rate=3e-5,
    critic_learning_rate=3e-4,
    entropy_learning_rate=1e-4,
    entropy_in_target=False,
)


class BracState(NamedTuple):
    behaviour: BehaviourCloningState
    planner: SoftActorCriticState


@dataclass(frozen=True)
class Brac:
    """BRAC-p, and with `value_penalty` BRAC-v."""

    behaviour: BehaviourCloning = BehaviourCloning()
    regularisation: Regularisation = Regularisation()
    planner: SoftActorCritic = PLANNER

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("behaviour", self.behaviour.behaviour_updates), Phase("policy")

    def init(self, spec: Spec, key: jax.Array) -> BracState:
        for_behaviour, for_planner = jax.random.split(key)
        return BracState(
            self.behaviour.init(spec, for_behaviour),
            self.planner.init(spec, spec.pair_dim, for_planner),
        )

    def policy(self, state: BracState) -> Actor:
        return state.planner.actor

    def update(
        self, phase: str, state: BracState, feed: Feed, key: jax.Array
    ) -> tuple[BracState, Metrics]:
        """One update of the clone, and in the next phase of the planner alone."""
        batch = feed.batch
        if phase == "behaviour":
            behaviour, metrics = self.behaviour.update(
                state.behaviour, batch.observation, batch.action, key
            )
            return state._replace(behaviour=behaviour), metrics
        regulariser = self.regularisation.near(state.behaviour.policy)
        planner, metrics = self.planner.update(
            state.planner, concatenate, batch, key, regulariser=regulariser
        )
        return state._replace(planner=planner), metrics

    def q_value(self, state: BracState, observation: jax.Array, action: jax.Array) -> jax.Array:
        return smaller(state.planner.critic, concatenate(observation, action))

    def behaviour_log_density(
        self, state: BracState, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        """Of the action under the clone: [B]."""
        return state.behaviour.policy.log_density(observation, action)


PAPER = Brac(BehaviourCloning(behaviour_updates=200_000))
SMALL = Brac(
    CLONED_QUICKLY,
    Regularisation("kl_primal", value_scale=10.0),
    SoftActorCritic(
        critic="three_layer",
        critic_learning_rate=1e-3,
        planner_layer_norm=True,
        entropy_in_target=False,
        target_entropy=NOT_HELD,  # the KL divergence brings the clone's
    ),
)
LOGGED: Presets = {
    "paper-d4rl": Preset(PAPER, schedule.LOGGED),
    "small": Preset(SMALL, schedule.LOGGED_NORMALISED),
}
