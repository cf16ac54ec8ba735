"""Soft actor-critic: the same planner with phi = concatenation, so method and baseline share it."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from phimu.agents import schedule
from phimu.agents.schedule import Collection, Preset, Presets, Schedule
from phimu.errors import at_least
from phimu.planning.critics import smaller
from phimu.planning.returns import n_step, with_ahead
from phimu.planning.soft_actor_critic import Actor, SoftActorCritic, SoftActorCriticState
from phimu.types import Drawn, Feed, Metrics, Spec, Store


def concatenate(observation: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.concatenate([observation, action], axis=-1)


@dataclass(frozen=True)
class Sac:
    """SAC, with a two- or three-layer critic. Its state is the planner's."""

    planner: SoftActorCritic = SoftActorCritic(critic="three_layer")
    n_steps: int = 1
    """Rewards that the target sums before it bootstraps; above 1 off policy without correction."""

    def __post_init__(self) -> None:
        at_least(1, n_steps=self.n_steps)

    def init(self, spec: Spec, key: jax.Array) -> SoftActorCriticState:
        return self.planner.init(spec, spec.pair_dim, key)

    def policy(self, state: SoftActorCriticState) -> Actor:
        return state.actor

    def draw(self, phase: str, store: Store, rng: Any) -> Drawn:
        sample = store.sample(rng)
        drawn = Drawn(sample.rows, columns=sample.columns)
        return with_ahead(drawn, store, sample, self.n_steps, self.planner.discount)

    def update(
        self, phase: str, state: SoftActorCriticState, feed: Feed, key: jax.Array
    ) -> tuple[SoftActorCriticState, Metrics]:
        return self.planner.update(state, concatenate, n_step(feed), key)

    def q_value(
        self, state: SoftActorCriticState, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return smaller(state.critic, concatenate(observation, action))


# As wide as its actor: the width that the paper adds is in phi and in the critic on it.
MAZE = Preset(
    Sac(
        SoftActorCritic(
            critic="three_layer",
            critic_width=128,
            actor_sizes=(128, 128),
            planner_layer_norm=True,
            actor_learning_rate=1e-3,
            critic_learning_rate=3e-3,
            initial_entropy_weight=0.01,
            discount=0.98,
        )
    ),
    Schedule(
        Collection(learning_starts=220_000, train_freq=25),
        batch_size=1_024,
        normalise_observations=True,
        evaluate_every=20_000,
        checkpoint_every=150_000,
    ),
)
# CTRL-UCB's too. Larger steps, quicker targets and more entropy help both, and the last makes them
# balance poles, where only the sign of an action counts (lab notes).
SMALL_PLANNER = SoftActorCritic(
    critic="three_layer",
    planner_layer_norm=True,
    target_rate=0.02,
    extra_entropy=1.0,
    actor_learning_rate=1e-3,
    critic_learning_rate=1e-3,
)
# Of rewards that have to be found; CTRL-UCB plans in the same way there. A bonus falls while it is
# learned from: targets that follow quickly and a short horizon forget what it was.
EXPLORE_PLANNER = SoftActorCritic(
    critic="two_layer",
    critic_width=128,
    actor_sizes=(128, 128),
    planner_layer_norm=True,
    discount=0.98,
    target_rate=0.02,
    actor_learning_rate=1e-3,
    critic_learning_rate=1e-3,
    initial_entropy_weight=0.01,
)
EXPLORE = Preset(Sac(replace(EXPLORE_PLANNER, critic="three_layer")), schedule.EXPLORING)
ONLINE: Presets = {
    "paper-mujoco": Preset(
        Sac(SoftActorCritic(critic="three_layer", initial_entropy_weight=1.0)), Schedule()
    ),
    "paper-dmc": Preset(
        Sac(SoftActorCritic(critic="three_layer", actor_sizes=(1024, 1024), critic_width=1024)),
        Schedule(Collection(learning_starts=5_000)),
    ),
    "small": Preset(Sac(SMALL_PLANNER), schedule.SMALL),
    "explore": EXPLORE,
    "maze": MAZE,
    "maze-exponential": MAZE,
    "maze-explore": EXPLORE,
}
LOGGED: Presets = {
    "paper-d4rl": Preset(
        Sac(SoftActorCritic(critic="three_layer", critic_learning_rate=1e-3)), schedule.LOGGED
    ),
    "small": Preset(
        Sac(
            SoftActorCritic(
                critic="three_layer", critic_learning_rate=1e-3, planner_layer_norm=True
            )
        ),
        schedule.LOGGED_NORMALISED,
    ),
}
