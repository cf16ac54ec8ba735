"""Trust region policy optimisation: one natural-gradient step per round, with a line search."""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from phimu.agents.ppo import MBBL_VALUE, ROUNDS, SIDE_BY_SIDE
from phimu.agents.protocol import Phase
from phimu.agents.schedule import Preset, Presets
from phimu.errors import InputError, at_least
from phimu.networks import Gaussian, norm
from phimu.planning.advantages import standardised
from phimu.planning.trust_region import (
    conjugate_gradient,
    divergence,
    fisher_product,
    line_search,
    longest_step,
)
from phimu.planning.value_function import ValueFunction, ValueFunctionState
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
    max_kl: float = 0.01
    """The mean KL that a step aims at: the size of the trust region."""
    kl_slack: float | None = 1.5
    """A step whose KL is above this times max_kl is made shorter; none: any KL will do."""
    damping: float = 0.1
    """What is added to the diagonal of the Fisher matrix."""
    cg_iterations: int = 10
    """Steps of conjugate gradient."""
    backtracks: int = 10
    """How often the line search tries, each time half as far."""
    accept_ratio: float = 0.1
    """A step has to gain more than this share of what the gradient promises."""
    critic: ValueFunction = ValueFunction()

    phases: ClassVar[tuple[Phase, ...]] = (Phase(updates=1, on_policy=True),)

    def __post_init__(self) -> None:
        at_least(1, cg_iterations=self.cg_iterations, backtracks=self.backtracks)
        for name in ("max_kl", "damping"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} is {getattr(self, name)}: give a positive number.")

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
        actor, metrics = self.step(
            state.actor, observation, action, standardised(advantage).reshape(-1)
        )
        critic, value_loss = self.critic.fit(state.critic, observation, target.reshape(-1), key)
        metrics |= {"value_loss": value_loss, "value": jnp.mean(target), "entropy": actor.entropy}
        return TrpoState(actor, critic), metrics

    def step(
        self, actor: Gaussian, observation: jax.Array, action: jax.Array, advantage: jax.Array
    ) -> tuple[Gaussian, Metrics]:
        """The policy after a step within the trust region; the same if no step is good enough."""
        parameters, restored = ravel_pytree(actor)
        old, old_log_density = actor(observation), actor.log_density(observation, action)

        def surrogate(parameters: jax.Array) -> jax.Array:
            log_density = restored(parameters).log_density(observation, action)
            return jnp.mean(jnp.exp(log_density - old_log_density) * advantage)

        def measure(parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
            return surrogate(parameters), divergence(old, restored(parameters)(observation))

        slope = jax.grad(surrogate)(parameters)
        product = fisher_product(lambda p: restored(p)(observation), parameters, self.damping)
        direction = conjugate_gradient(product, slope, self.cg_iterations)
        step = longest_step(direction, product, self.max_kl)
        limit = None if self.kl_slack is None else self.kl_slack * self.max_kl
        search = self.backtracks, self.accept_ratio, limit
        found = line_search(measure, parameters, step, slope, *search)
        gained, kl = measure(found.parameters)
        metrics = {
            "policy_loss": -gained,
            "divergence": kl,
            "step_share": found.share,
            "actor_gradient": norm(slope),
        }
        return restored(found.parameters), metrics

    def value(self, state: TrpoState, observation: jax.Array) -> jax.Array:
        return self.critic(state.critic, observation)


ONLINE: Presets = {
    "mbbl": Preset(Trpo(kl_slack=None, critic=replace(MBBL_VALUE, critic_minibatches=1)), ROUNDS),
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
        Trpo(max_kl=0.02, kl_slack=1.0, critic=ValueFunction(critic_learning_rate=3e-3)),
        SIDE_BY_SIDE,
    ),
}
