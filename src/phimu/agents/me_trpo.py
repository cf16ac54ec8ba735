"""ME-TRPO: an ensemble of the dynamics, and TRPO on episodes that are imagined in it.

Kurutach et al., 2018. After a round of real steps the networks are fitted, and the policy takes
many steps within a trust region. It stops when the networks no longer agree that it gets better.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phimu.agents.protocol import Phase
from phimu.agents.schedule import Collection, Preset, Presets, Schedule
from phimu.data.model_rows import beginnings, rows_to_fit
from phimu.dynamics.fitting import Dynamics, DynamicsState, examples
from phimu.dynamics.imagination import Imagination, Imagined, returns, rollout
from phimu.errors import at_least
from phimu.planning.advantages import standardised
from phimu.planning.linear_value import LinearValue
from phimu.planning.trust_region import TrustRegion
from phimu.planning.validation import Validation
from phimu.policies import Gaussian
from phimu.types import Drawn, Feed, Known, Metrics, Spec, Store


class MeTrpoState(eqx.Module):
    actor: Gaussian
    critic: jax.Array  # coefficients of V
    dynamics: DynamicsState
    rounds: jax.Array  # [] int32: fits so far
    known: Known | None = eqx.field(static=True)  # the task's own reward and end


@dataclass(frozen=True)
class MeTrpo:
    """An update of each phase is a whole round's: a fit, and all steps of the policy."""

    dynamics: Dynamics = Dynamics()
    actor_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the policy's mean."""
    initial_log_std: float = 0.0
    """Log standard deviation of the actions at the beginning of every round."""
    region: TrustRegion = TrustRegion()
    critic: LinearValue = LinearValue()
    policy_steps: int = 20
    """Steps of the policy in a round, each by new imagined episodes; the most, if validated."""
    chains: int = 50
    """Imagined episodes side by side."""
    imagined_horizon: int = 1_000
    """Steps of each chain. An episode is no longer than that, nor than the task's time limit."""
    imagined_ends: bool = True
    """Whether a chain begins a new episode where the task would end."""
    starts: int = 500
    """First observations of real episodes, drawn in every round: imagined ones begin at one of
    them, and the policy is validated from all of them."""
    validation: Validation = Validation()
    restart_every: int = 0
    """Rounds after which the networks begin anew; 0: never."""

    phases: ClassVar[tuple[Phase, ...]] = (Phase("model", 1), Phase("policy", 1))

    def __post_init__(self) -> None:
        counts = ("policy_steps", "chains", "imagined_horizon", "starts")
        at_least(1, **{name: getattr(self, name) for name in counts})
        at_least(0, restart_every=self.restart_every)
        self.validation.check(self.policy_steps)

    def init(self, spec: Spec, key: jax.Array) -> MeTrpoState:
        for_actor, for_dynamics = jax.random.split(key)
        actor = Gaussian(*spec[:2], self.actor_sizes, for_actor, self.initial_log_std)
        dynamics = self.dynamics.init(spec, spec.known is None, for_dynamics)
        rounds = jnp.zeros((), jnp.int32)
        return MeTrpoState(actor, self.critic.init(spec), dynamics, rounds, spec.known)

    def policy(self, state: MeTrpoState) -> Gaussian:
        return state.actor

    def draw(self, phase: str, store: Store, rng: Any) -> Drawn:
        """Transitions to fit; for the policy, beginnings of episodes and how long these may be.

        Deviation: published code resets the environment for every imagined episode; here they begin
        where real ones began.
        """
        if phase == "model":
            return rows_to_fit(store, rng)
        rows, limit = beginnings(store)
        limit = min(limit or self.imagined_horizon, self.imagined_horizon)
        rows = rows[rng.integers(0, len(rows), self.starts)]
        return Drawn(rows, columns={"limit": np.full(self.starts, limit, np.float32)})

    def update(
        self, phase: str, state: MeTrpoState, feed: Feed, key: jax.Array
    ) -> tuple[MeTrpoState, Metrics]:
        if phase == "model":
            return self._fit(state, feed, key)
        world = self.world(state, feed)
        (actor, critic), metrics = self.improve(world, state.actor, state.critic, key)
        return MeTrpoState(actor, critic, state.dynamics, state.rounds, state.known), metrics

    def world(self, state: MeTrpoState, feed: Feed) -> Imagination:
        """Where episodes are imagined that begin as those in the feed of the policy."""
        known, limit = state.known, feed.columns["limit"][0]
        if known is not None and not self.imagined_ends:
            known = known._replace(terminated=None)
        return Imagination(state.dynamics.ensemble, known, feed.batch.observation, limit)

    def _fit(self, state: MeTrpoState, feed: Feed, key: jax.Array) -> tuple[MeTrpoState, Metrics]:
        for_fit, for_restart = jax.random.split(key)
        learns_reward, dynamics = state.known is None, state.dynamics
        if self.restart_every:
            sizes = (feed.batch.observation.shape[-1], feed.batch.action.shape[-1])
            fresh = self.dynamics.init(Spec(*sizes), learns_reward, for_restart)
            due = state.rounds % self.restart_every == 0
            dynamics = jax.tree.map(lambda new, old: jnp.where(due, new, old), fresh, dynamics)
        rows = examples(feed.batch, learns_reward)
        dynamics, metrics = self.dynamics.fit(dynamics, *rows, feed.columns["real"], for_fit)
        after = MeTrpoState(state.actor, state.critic, dynamics, state.rounds + 1, state.known)
        return after, metrics

    def improve(
        self, world: Imagination, actor: Gaussian, critic: jax.Array, key: jax.Array
    ) -> tuple[tuple[Gaussian, jax.Array], Metrics]:
        """All steps of a round."""

        def step(carried: Any, number: jax.Array) -> tuple[Any, Metrics]:
            (actor, critic), own = carried, jax.random.fold_in(key, number)
            imagined = rollout(world, actor, self.chains, self.imagined_horizon, own)
            return self.step(actor, critic, imagined)

        def steps(carried: Any, first: jax.Array, count: int) -> tuple[Any, Metrics]:
            numbers = first + jnp.arange(count, dtype=jnp.int32)
            carried, metrics = jax.lax.scan(step, carried, numbers)
            return carried, jax.tree.map(lambda each: each[-1], metrics)

        def judge(carried: Any) -> jax.Array:
            return returns(world, carried[0], self.imagined_horizon, self.critic.discount)

        log_std = jnp.full_like(actor.log_std, self.initial_log_std)
        begun = eqx.tree_at(lambda a: a.log_std, actor, log_std), critic
        return self.validation.search(begun, self.policy_steps, steps, judge)

    def step(
        self, actor: Gaussian, critic: jax.Array, imagined: Imagined
    ) -> tuple[tuple[Gaussian, jax.Array], Metrics]:
        """TRPO's step by rows [T, N] in order; then V is fitted to their returns."""
        batch, age = imagined
        advantage, target = self.critic.advantages(critic, batch, age)
        observation, action = (
            x.reshape(-1, x.shape[-1]) for x in (batch.observation, batch.action)
        )
        advantage, age, target = (x.reshape(-1) for x in (advantage, age, target))
        actor, metrics = self.region.step(actor, observation, action, standardised(advantage))
        critic = self.critic.fit(observation, age, target)
        error = jnp.mean((self.critic(critic, observation, age) - target) ** 2)
        metrics |= {
            "value_loss": 0.5 * error,
            "value": jnp.mean(target),
            "entropy": actor.entropy,
            "imagined_reward": jnp.mean(batch.reward),
        }
        return (actor, critic), metrics


# Networks of one value for s' - s; all of them learn from the same transitions.
# Deviation: a third of the rows is held out wherever they lie, and not the last of every round.
_SQUARED = Dynamics(
    bootstrap=False,
    model_activation="relu",
    model_objective="squared_error",
    normalise_targets=True,
    model_batch=1_000,
    held_out=1 / 3,
    check_every=5,
)
ONLINE: Presets = {
    "mbbl": Preset(
        MeTrpo(
            replace(
                _SQUARED,
                model_sizes=(1_000, 1_000, 1_000, 1_000),
                weight_decay=(1.0, 0.0),
                decay_by_count=True,
                epochs=200,
                patience=20,
                keep_best=False,
            ),
            region=TrustRegion(kl_slack=None),
            critic=LinearValue(bootstrap_time_limits=False),
            imagined_ends=False,
        ),
        Schedule(
            Collection(learning_starts=6_000, train_freq=6_000, buffer_size=300_000),
            batch_size=200_000,
        ),
    ),
    # Deviation: the authors fit s' in its own units, explore with noise on parameters and actions,
    # and shorten steps by 0.8; here targets are normalised, the noise is the policy's, and steps
    # are halved.
    "original": Preset(
        MeTrpo(
            replace(
                _SQUARED,
                model_sizes=(1_024, 1_024),
                weight_decay=(0.0,),
                epochs=2_000,
                patience=25,
            ),
            actor_sizes=(32, 32),
            region=TrustRegion(kl_slack=1.0, backtracks=15, accept_ratio=0.0),
            critic=LinearValue(discount=1.0, gae_lambda=1.0, bootstrap_time_limits=False),
            policy_steps=400,
            chains=500,
            imagined_horizon=100,
            validation=Validation(validate_every=5),
            restart_every=5,
        ),
        Schedule(
            Collection(learning_starts=3_000, train_freq=3_000, buffer_size=300_000),
            batch_size=200_000,
        ),
    ),
    "small": Preset(
        MeTrpo(
            replace(
                _SQUARED,
                model_sizes=(256, 256),
                weight_decay=(0.0,),
                model_batch=256,
                held_out=0.2,
                epochs=100,
                patience=10,
            ),
            region=TrustRegion(max_kl=0.02, kl_slack=1.0),
            policy_steps=40,
            imagined_horizon=200,
            starts=64,
            validation=Validation(validate_every=5, validation_patience=20),
        ),
        Schedule(
            Collection(learning_starts=1_000, train_freq=1_000),
            batch_size=20_000,
            evaluate_every=1_000,
            checkpoint_every=5_000,
        ),
    ),
}
