"""PETS: a probabilistic ensemble of the dynamics, and in every state a plan made on it.

Chua et al., 2018. There is no network of a policy: acting is random shooting or CEM on the model,
with the task's own reward where it is known and a learned one elsewhere.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from phimu.agents.protocol import Phase
from phimu.agents.schedule import Collection, Preset, Presets, Schedule
from phimu.data.model_rows import rows_to_fit
from phimu.dynamics.ensemble import Ensemble
from phimu.dynamics.fitting import Dynamics, DynamicsState, examples
from phimu.planning.shooting import Shooting, World
from phimu.types import Drawn, Feed, Known, Metrics, Spec, Store


class PetsState(eqx.Module):
    dynamics: DynamicsState
    known: Known | None = eqx.field(static=True)  # the task's own reward and end
    action_dim: int = eqx.field(static=True)


class Planned(eqx.Module):
    """Acts by the first action of a plan. It is made anew in every state.

    Deviation: a policy is a function of the observation alone, so that CEM does not begin with what
    is left of the last plan; the presets give it more iterations instead.
    """

    ensemble: Ensemble
    planner: Shooting = eqx.field(static=True)
    known: Known | None = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)

    def mode(self, observation: jax.Array) -> jax.Array:
        """By draws that depend on nothing but the observation."""
        return self._each(observation, jax.random.PRNGKey(0))

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Planned by other draws; no noise is added, so its density has no logarithm."""
        return self._each(observation, key), jnp.full(observation.shape[:-1], jnp.inf)

    def _each(self, observation: jax.Array, key: jax.Array) -> jax.Array:
        if observation.ndim == 1:
            return self._first(observation, key)
        rows = observation.reshape(-1, observation.shape[-1])
        actions = jax.lax.map(lambda row: self._first(row, key), rows)
        return actions.reshape(*observation.shape[:-1], -1)

    def _first(self, observation: jax.Array, key: jax.Array) -> jax.Array:
        bits = jax.lax.bitcast_convert_type(observation.astype(jnp.float32), jnp.uint32)
        own = jax.random.fold_in(key, jnp.sum(bits, dtype=jnp.uint32))
        world = World(self.ensemble.size, self.ensemble.predict, self.known)
        return self.planner.plan(world, observation, self.action_dim, own)[0]


@dataclass(frozen=True)
class Pets:
    """An update is a whole fit: `batch_size` transitions are what it chooses from."""

    dynamics: Dynamics = Dynamics()
    planner: Shooting = Shooting()

    phases: ClassVar[tuple[Phase, ...]] = (Phase("model"),)

    def __post_init__(self) -> None:
        self.planner.check(self.dynamics.ensemble_size)

    def init(self, spec: Spec, key: jax.Array) -> PetsState:
        known = spec.known
        state = self.dynamics.init(spec, known is None, key)
        return PetsState(state, known, spec.action_dim)

    def policy(self, state: PetsState) -> Planned:
        return Planned(state.dynamics.ensemble, self.planner, state.known, state.action_dim)

    def draw(self, phase: str, store: Store, rng: Any) -> Drawn:
        return rows_to_fit(store, rng)

    def update(
        self, phase: str, state: PetsState, feed: Feed, key: jax.Array
    ) -> tuple[PetsState, Metrics]:
        rows, real = examples(feed.batch, state.known is None), feed.columns["real"]
        dynamics, metrics = self.dynamics.fit(state.dynamics, *rows, real, key)
        return PetsState(dynamics, state.known, state.action_dim), metrics


def _by_shooting(presets: Presets, **candidates: int) -> Presets:
    """The same with random shooting, which has its whole budget at once."""
    return {
        name: chosen._replace(
            settings=replace(
                chosen.settings,
                planner=replace(
                    chosen.settings.planner, optimiser="rs", candidates=candidates[name]
                ),
            )
        )
        for name, chosen in presets.items()
    }


# One evaluation episode every five: to plan takes as long there as it does in training.
_ROUNDS = Schedule(
    Collection(learning_starts=1_000, train_freq=1_000),
    batch_size=20_000,
    evaluation_episodes=1,
)
CEM: Presets = {
    # As the benchmark's own code base ran it: propagation by expectation, on every task alike.
    "mbbl": Preset(Pets(planner=Shooting(iterations=10)), _ROUNDS),
    "original": Preset(Pets(planner=Shooting(iterations=10, propagation="ts_inf")), _ROUNDS),
    "small": Preset(
        Pets(
            Dynamics(model_sizes=(200, 200, 200), model_batch=64, epochs=50),
            Shooting(plan_horizon=15, candidates=100, elites=10, iterations=4),
        ),
        Schedule(
            Collection(learning_starts=200, train_freq=200),
            batch_size=10_000,
            evaluate_every=1_000,
            evaluation_episodes=2,
            checkpoint_every=1_000,
            log_every=200,
        ),
    ),
}
RS: Presets = _by_shooting(CEM, mbbl=2_500, original=2_500, small=400)
