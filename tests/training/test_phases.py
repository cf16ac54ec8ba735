"""Each phase of an agent has its own clock of `begin`, which a resumed run keeps."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents.protocol import Phase
from phimu.agents.schedule import LOGGED, Collection, Schedule
from phimu.data.device_set import DeviceSet
from phimu.data.logged import LoggedDataset, Transitions
from phimu.environments.task import open_task
from phimu.runs import checkpoint
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun
from phimu.types import Feed, Metrics, Spec

NAMES = ("model", "columns", "policy")


class ClockedState(NamedTuple):
    """As a policy, no action at all."""

    made: jax.Array  # [phases], updates
    begun: jax.Array  # [phases], what the last `begin` of each has drawn
    total: jax.Array  # [], of what updates were given

    def mode(self, observation: jax.Array) -> jax.Array:
        return jnp.zeros((*observation.shape[:-1], 1))

    def sample(self, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.mode(observation), jnp.zeros(observation.shape[:-1])


@dataclass(frozen=True)
class Clocked:
    """Writes down at which of its own updates each phase begins, and learns what that drew."""

    phases: tuple[Phase, ...]
    begins: list[tuple[str, int]] = field(default_factory=list, compare=False)

    def init(self, spec: Spec, key: jax.Array) -> ClockedState:
        return ClockedState(jnp.zeros(3), jnp.zeros(3), jnp.zeros(()))

    def policy(self, state: ClockedState) -> ClockedState:
        return state

    def begin(self, phase: str, state: ClockedState, store: Any, normaliser: Any, rng: Any) -> Any:
        place = NAMES.index(phase)
        self.begins.append((phase, int(state.made[place])))
        observation, _ = store.pairs(1, rng)
        begun = state.begun.at[place].set(float(observation[0, 0]) + state.total)
        if isinstance(store, DeviceSet):
            store = store.with_columns(noise=jax.random.normal(rng, (len(store),)))
        return state._replace(begun=begun), store

    def update(
        self, phase: str, state: ClockedState, feed: Feed, key: jax.Array
    ) -> tuple[ClockedState, Metrics]:
        place = NAMES.index(phase)
        given = jnp.mean(feed.batch.observation) + state.begun[place]
        given += jnp.mean(feed.columns.get("noise", jnp.zeros(1)))
        total = 0.5 * state.total + given
        return ClockedState(state.made.at[place].add(1.0), state.begun, total), {"total": total}


def online() -> OnlineRun:
    """Rounds of two updates of the first phase, three of the second and one of the last."""
    phases = Phase("model", 2, begin_every=3), Phase("columns"), Phase("policy", 1, begin_every=2)
    schedule = Schedule(Collection(learning_starts=5, gradient_steps=3), batch_size=4)
    task = open_task("phimu/probe-ObservationReward-v0")
    return OnlineRun(Clocked(phases), task, schedule, seed=0)


def offline() -> OfflineRun:
    """Seven updates of the first phase and four of the second."""
    phases = (
        Phase("model", 7, begin_every=3),
        Phase("columns", 4),
        Phase("policy", 0, begin_every=2),
    )
    observation = np.random.default_rng(0).normal(size=(50, 1)).astype(np.float32)
    ends = np.arange(50) == 49
    rows = Transitions(
        *(observation, np.zeros((50, 1), np.float32), np.zeros(50, np.float32), observation),
        *(np.zeros(50, bool), ends, np.zeros(50, np.int32)),
    )
    data = LoggedDataset(rows, "noise", "arrays", "0" * 64)
    schedule = replace(LOGGED, batch_size=4)
    run = OfflineRun(Clocked(phases), Spec(1, 1), schedule, seed=0, data=data)
    run._together = 64  # what begins cuts a call, whatever it takes
    return run


def advanced(run: Any, until: int) -> Any:
    while run.step < until:
        run.advance(*[until] * isinstance(run, OfflineRun))
    run.check()
    return run


def test_online_a_phase_begins_by_its_own_updates():
    run = advanced(online(), 10)  # six rounds
    assert np.asarray(run.state.agent.made).tolist() == [12, 18, 6]
    begins = run.agent.begins
    assert [done for name, done in begins if name == "model"] == [0, 3, 6, 9]
    assert [done for name, done in begins if name == "columns"] == [0]
    assert [done for name, done in begins if name == "policy"] == [0, 2, 4]


def test_on_logged_data_a_phase_begins_by_its_own_updates():
    run = advanced(offline(), 16)
    assert run.agent.begins == [
        *[("model", done) for done in (0, 3, 6)],
        ("columns", 0),
        *[("policy", done) for done in (0, 2, 4)],
    ]


@pytest.mark.parametrize("make", [online, offline])
def test_wherever_it_is_resumed_it_ends_with_the_same_bits(make: Callable[[], Any], tmp_path: Path):
    """Also between two begins of a phase, whose columns are then made again."""
    end = 12 if make is online else 16
    whole = advanced(make(), end)
    for stop in range(1, end):
        directory = tmp_path / str(stop)
        advanced(make(), stop).save(directory)
        again = make()
        again.restore(checkpoint.load(directory), pytest.fail)
        for here, there in zip(advanced(again, end).state.agent, whole.state.agent, strict=True):
            np.testing.assert_array_equal(here, there)
