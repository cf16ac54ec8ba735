"""ME-TRPO: an ensemble of the dynamics, and TRPO on episodes that are imagined in it.

Kurutach et al., 2018. After a round of real steps the networks are fitted, and the policy takes
many steps within a trust region. It stops when the networks no longer agree that it gets better.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phimu.agents.protocol import Phase
from phimu.agents.schedule import Collection, Preset, Presets, Schedule
from phimu.data.model_rows import beginnings, rows_to_fit
from phimu.dynamics.fitting import Dynamics, DynamicsState, examples
from phimu.dynamics.imagination import Imagination, returns, rollout
from phimu.errors import InputError, at_least
from phimu.networks import Gaussian
from phimu.planning.advantages import standardised
from phimu.planning.linear_value import LinearValue
from phimu.planning.trust_region import TrustRegion
from phimu.types import Batch, Drawn, Feed, Known, Metrics, Spec, Store


class MeTrpoState(eqx.Module):
    actor: Gaussian
    critic: jax.Array  # coefficients of V
    dynamics: DynamicsState
    rounds: jax.Array  # [] int32: fits so far
    known: Known | None = eqx.field(static=True)  # the task's own reward and end


class _Search(NamedTuple):
    """What the steps of a round carry from one validation to the next."""

    actor: Gaussian
    critic: jax.Array
    done: jax.Array  # steps so far
    best: Gaussian
    returns: jax.Array  # [E]: of the best in each network
    kept: jax.Array  # steps that led to the best
    metrics: Metrics


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
    validate_every: int = 0
    """Steps of the policy between two looks at its return in each network; 0: none."""
    worse_share: float = 0.3
    """A policy is kept if its return has fallen in at most this share of the networks."""
    validation_patience: int = 25
    """Steps without a policy to keep, after which the round ends with the last one kept."""
    restart_every: int = 0
    """Rounds after which the networks begin anew; 0: never."""

    phases: ClassVar[tuple[Phase, ...]] = (Phase("model", 1), Phase("policy", 1))

    def __post_init__(self) -> None:
        counts = ("policy_steps", "chains", "imagined_horizon", "starts", "validation_patience")
        at_least(1, **{name: getattr(self, name) for name in counts})
        at_least(0, validate_every=self.validate_every, restart_every=self.restart_every)
        if self.validate_every and self.policy_steps % self.validate_every:
            raise InputError(
                f"policy_steps is {self.policy_steps}: give a multiple of validate_every, "
                f"{self.validate_every}."
            )

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
        known = state.known
        if known is not None and not self.imagined_ends:
            known = known._replace(terminated=None)
        limit = feed.columns["limit"][0]
        world = Imagination(state.dynamics.ensemble, known, feed.batch.observation, limit)
        actor, critic, metrics = self.improve(world, state.actor, state.critic, key)
        return MeTrpoState(actor, critic, state.dynamics, state.rounds, state.known), metrics

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
    ) -> tuple[Gaussian, jax.Array, Metrics]:
        """All steps of a round: the policy, V and metrics."""
        fresh = jnp.full_like(actor.log_std, self.initial_log_std)
        actor = eqx.tree_at(lambda a: a.log_std, actor, fresh)
        if not self.validate_every:
            return self._steps(world, actor, critic, jnp.int32(0), self.policy_steps, key)

        def judged(actor: Gaussian) -> jax.Array:
            return returns(world, actor, self.imagined_horizon, self.critic.discount)

        def going_on(at: _Search) -> jax.Array:
            return (at.done < self.policy_steps) & (at.done - at.kept < self.validation_patience)

        def body(at: _Search) -> _Search:
            count = self.validate_every
            actor, critic, metrics = self._steps(world, at.actor, at.critic, at.done, count, key)
            done, found = at.done + count, judged(actor)
            keep = jnp.mean(found < at.returns) <= self.worse_share
            best, earned, kept = jax.tree.map(
                lambda new, old: jnp.where(keep, new, old),
                (actor, found, done),
                (at.best, at.returns, at.kept),
            )
            return _Search(actor, critic, done, best, earned, kept, metrics)

        zero = jnp.int32(0)
        shapes = jax.eval_shape(
            lambda: self._steps(world, actor, critic, zero, self.validate_every, key)[2]
        )
        blank = {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}
        begun = _Search(actor, critic, zero, actor, judged(actor), zero, blank)
        last = jax.lax.while_loop(going_on, body, begun)
        metrics = last.metrics | {
            "validation_return": jnp.mean(last.returns),
            "steps_made": last.done.astype(jnp.float32),
            "steps_kept": last.kept.astype(jnp.float32),
        }
        return last.best, last.critic, metrics

    def _steps(
        self,
        world: Imagination,
        actor: Gaussian,
        critic: jax.Array,
        first: jax.Array,
        count: int,
        key: jax.Array,
    ) -> tuple[Gaussian, jax.Array, Metrics]:
        """`count` steps from number `first` on; the metrics are those of the last."""

        def step(carried: Any, number: jax.Array) -> tuple[Any, Metrics]:
            actor, critic = carried
            own = jax.random.fold_in(key, number)
            batch, age = rollout(world, actor, self.chains, self.imagined_horizon, own)
            return self._step(actor, critic, batch, age)

        numbers = first + jnp.arange(count, dtype=jnp.int32)
        (actor, critic), metrics = jax.lax.scan(step, (actor, critic), numbers)
        return actor, critic, jax.tree.map(lambda each: each[-1], metrics)

    def _step(
        self, actor: Gaussian, critic: jax.Array, batch: Batch, age: jax.Array
    ) -> tuple[tuple[Gaussian, jax.Array], Metrics]:
        """TRPO's step by rows [T, N] in order; then V is fitted to their returns."""
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
            validate_every=5,
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
            validate_every=5,
            validation_patience=10,
        ),
        Schedule(
            Collection(learning_starts=1_000, train_freq=1_000),
            batch_size=20_000,
            evaluate_every=1_000,
            checkpoint_every=5_000,
        ),
    ),
}
