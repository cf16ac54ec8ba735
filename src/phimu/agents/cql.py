"""CQL (Kumar et al., 2020): soft actor-critic on logged data whose Q is low where no data is."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from phimu.agents import schedule
from phimu.agents.protocol import POLICY, Phase
from phimu.agents.sac import concatenate
from phimu.agents.schedule import Preset, Presets
from phimu.errors import InputError, at_least
from phimu.planning.critics import Twin, of_actions, smaller
from phimu.planning.soft_actor_critic import Actor, SoftActorCritic, SoftActorCriticState
from phimu.policies import TanhGaussian
from phimu.types import Batch, Feed, Metrics, Spec

WARM_START = "warm_start"
MOST = 1e6  # of the multiplier that `gap_aim` learns


class CqlState(NamedTuple):
    planner: SoftActorCriticState
    # Of `conservatism`, where `gap_aim` asks for it.
    log_multiplier: jax.Array | None  # []
    multiplier_optimiser: optax.OptState | None


def sampled_actions(
    actor: TanhGaussian, batch: Batch, count: int, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Actions [B, 3 count, A], to be judged at s, and the log density [B, 3 count] of each.

    A third is uniform on [-1, 1]^A, a third the policy's at s, a third the policy's at s' with
    their density there.
    """
    rows, dim = batch.action.shape
    for_uniform, for_policy = jax.random.split(key)
    uniform = jax.random.uniform(for_uniform, (rows, count, dim), minval=-1.0, maxval=1.0)
    noise = jax.random.normal(for_policy, (2, rows, count, dim))
    of_policy = [
        actor.with_noise(observation[:, None, :], each)
        for observation, each in zip(
            (batch.observation, batch.next_observation), noise, strict=True
        )
    ]
    density = jnp.full((rows, count), -dim * np.log(2.0))
    actions, densities = zip((uniform, density), *of_policy, strict=True)
    return jnp.concatenate(actions, axis=1), jnp.concatenate(densities, axis=1)


def value_gap(sampled: jax.Array, log_density: jax.Array, logged: jax.Array) -> jax.Array:
    """log sum exp(Q(s, a)) / density over sampled actions, less Q of the logged one: [2, B].

    `sampled` [2, B, N] are values of actions of these log densities [B, N], `logged` [2, B] those
    of the logged actions. CQL(H): dividing by the density makes it the integral of exp Q over all
    actions, up to log N.
    """
    return jax.nn.logsumexp(sampled - log_density[None], axis=-1) - logged


@dataclass(frozen=True)
class Cql:
    """CQL(H), with the values of the authors' code for D4RL."""

    conservatism: float = 5.0
    """alpha: of the gap between Q of sampled and of logged actions in the critic's loss."""
    action_samples: int = 10
    """Actions of each of three kinds that Q is lowered at: uniform, the policy's at s and at s'."""
    gap_aim: float | None = None
    """If given, conservatism is multiplied by a weight that is learned to hold conservatism times
    the gap at this (the Lagrange variant)."""
    warm_start_updates: int = 40_000
    """Updates first in which the actor clones the logged actions and the critic learns already."""
    planner: SoftActorCritic = SoftActorCritic(
        critic="four_layer",
        actor_sizes=(256, 256, 256),
        activation="relu",
        actor_learning_rate=1e-4,
        critic_learning_rate=3e-4,
        entropy_learning_rate=1e-4,
        initial_entropy_weight=1.0,
        entropy_in_target=False,
    )

    def __post_init__(self) -> None:
        at_least(1, action_samples=self.action_samples)
        at_least(0, warm_start_updates=self.warm_start_updates)
        if self.conservatism < 0:
            raise InputError(f"conservatism is {self.conservatism}: give 0 or more.")

    @property
    def phases(self) -> tuple[Phase, ...]:
        # Deviation: warm start comes before the updates that are counted, not out of them.
        first = Phase(WARM_START, self.warm_start_updates)
        return (first, *POLICY) if first.updates else POLICY

    def optimiser(self) -> optax.GradientTransformation:
        """Of the multiplier."""
        return optax.adam(self.planner.critic_learning_rate)

    def init(self, spec: Spec, key: jax.Array) -> CqlState:
        planner = self.planner.init(spec, spec.pair_dim, key)
        if self.gap_aim is None:
            return CqlState(planner, None, None)
        log_multiplier = jnp.zeros(())
        return CqlState(planner, log_multiplier, self.optimiser().init(log_multiplier))

    def policy(self, state: CqlState) -> Actor:
        return state.planner.actor

    def update(
        self, phase: str, state: CqlState, feed: Feed, key: jax.Array
    ) -> tuple[CqlState, Metrics]:
        """One update of critic, actor and entropy weight, in both phases."""
        batch = feed.batch
        for_planner, for_samples = jax.random.split(key)
        actor: Any = state.planner.actor  # logged actions are continuous
        # Drawn outside of the critic's loss: nothing of it reaches the actor.
        action, log_density = sampled_actions(actor, batch, self.action_samples, for_samples)
        multiplier = self._multiplier(state)

        def pessimism(critic: Twin, logged: jax.Array) -> tuple[jax.Array, Metrics]:
            sampled = of_actions(critic, concatenate, batch.observation, action)
            gap = jnp.mean(value_gap(sampled, log_density, logged))
            told = {"value_gap": gap, "sampled_value": jnp.mean(sampled)}
            return multiplier * (self.conservatism * gap - (self.gap_aim or 0.0)), told

        def cloning(actor: TanhGaussian) -> jax.Array:
            return actor.log_density(batch.observation, batch.action)

        planner, metrics = self.planner.update(
            state.planner,
            concatenate,
            batch,
            for_planner,
            pessimism=pessimism,
            merit=cloning if phase == WARM_START else None,
        )
        return self._held(state._replace(planner=planner), metrics)

    def _multiplier(self, state: CqlState) -> jax.Array:
        if state.log_multiplier is None:
            return jnp.ones(())
        return jnp.minimum(jnp.exp(state.log_multiplier), MOST)

    def _held(self, state: CqlState, metrics: Metrics) -> tuple[CqlState, Metrics]:
        """With a larger multiplier where the gap is above its aim, and a smaller one below it."""
        if state.log_multiplier is None:
            return state, metrics
        multiplier = self._multiplier(state)
        excess = self.conservatism * metrics["value_gap"] - (self.gap_aim or 0.0)
        updates, optimised = self.optimiser().update(
            -multiplier * excess, state.multiplier_optimiser
        )
        state = CqlState(state.planner, state.log_multiplier + updates, optimised)
        return state, metrics | {"multiplier": multiplier}

    def q_value(self, state: CqlState, observation: jax.Array, action: jax.Array) -> jax.Array:
        return smaller(state.planner.critic, concatenate(observation, action))


LOGGED: Presets = {
    "d4rl": Preset(Cql(), schedule.LOGGED),
    "small": Preset(
        Cql(
            action_samples=4,
            warm_start_updates=5_000,
            planner=SoftActorCritic(
                critic="three_layer",
                critic_learning_rate=1e-3,
                planner_layer_norm=True,
                entropy_in_target=False,
            ),
        ),
        schedule.LOGGED_NORMALISED,
    ),
}
