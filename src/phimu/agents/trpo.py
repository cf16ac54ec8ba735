"""Trust region policy optimisation: one natural-gradient step per round, with a line search."""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from phimu.agents.ppo import MBBL_VALUE, ROUNDS, SIDE_BY_SIDE
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Preset, Presets
from phimu.planning.advantages import standardised
from phimu.planning.trust_region import TrustRegion
from phimu.planning.value_function import ValueFunction, ValueFunctionState
from phimu.policies import Gaussian
from phimu.types import Feed, Metrics, Spec


class TrpoState(NamedTuple):
    actor: Gaussian
    critic: ValueFunctionState


@dataclass(frozen=True)
class Trpo:
    """TRPO with a Gaussian policy (Schulman et al., 2015)."""

    actor_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the policy's mean."""
    initial_log_std: float = 0.0
    """Log standard deviation of the actions at the start, the same for all observations."""
    region: TrustRegion = TrustRegion()
    critic: ValueFunction = ValueFunction()

    phases: ClassVar[tuple[Phase, ...]] = (Phase(updates=1, on_policy=True),)

    def init(self, spec: Spec, key: jax.Array) -> TrpoState:
        for_actor, for_critic = jax.random.split(key)
        actor = Gaussian(*spec[:2], self.actor_sizes, for_actor, self.initial_log_std)
        return TrpoState(actor, self.critic.init(spec, for_critic))

    def policy(self, state: TrpoState) -> Gaussian:
        return state.actor

    def update(
        self, phase: str, state: TrpoState, feed: Feed, key: jax.Array
    ) -> tuple[TrpoState, Metrics]:
        """A step of the policy by the rows [T, envs] of the last round; then V(s) is fitted."""
        advantage, target = self.critic.advantages(state.critic, feed.batch)
        observation, action = (
            x.reshape(-1, x.shape[-1]) for x in (feed.batch.observation, feed.batch.action)
        )
        actor, metrics = self.region.step(
            state.actor, observation, action, standardised(advantage).reshape(-1)
        )
        critic, value_loss = self.critic.fit(state.critic, observation, target.reshape(-1), key)
        metrics |= {"value_loss": value_loss, "value": jnp.mean(target), "entropy": actor.entropy}
        return TrpoState(actor, critic), metrics

    def value(self, state: TrpoState, observation: jax.Array) -> jax.Array:
        return self.critic(state.critic, observation)


ONLINE: Presets = {
    "mbbl": Preset(
        Trpo(
            region=TrustRegion(kl_slack=None),
            critic=replace(MBBL_VALUE, critic_minibatches=1),
        ),
        ROUNDS,
    ),
    "original": Preset(
        Trpo(
            actor_sizes=(32, 32),
            critic=ValueFunction(
                critic_sizes=(32, 32),
                critic_learning_rate=1e-3,
                critic_epochs=5,
                critic_minibatches=16,
                gae_lambda=0.98,
            ),
        ),
        replace(ROUNDS, batch_size=1_024),
    ),
    "small": Preset(
        Trpo(
            region=TrustRegion(max_kl=0.02, kl_slack=1.0),
            critic=ValueFunction(critic_learning_rate=3e-3),
        ),
        SIDE_BY_SIDE,
    ),
}
