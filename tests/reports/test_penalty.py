"""The penalty on and off the data, against float64, from a tiny run."""

import jax
import numpy as np
import pytest

from phimu.agents.ctrl_lcb import CtrlLcb
from phimu.agents.schedule import Schedule
from phimu.agents.td3_bc import Td3Bc
from phimu.confidence import Elliptical
from phimu.data.logged import LoggedDataset, Transitions
from phimu.errors import InputError
from phimu.planning.behaviour import BehaviourCloning, Regularisation
from phimu.planning.held_near import NearClone
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.reports import penalty
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.training.offline import OfflineRun

AGENT = CtrlLcb(
    representation=Contrastive(
        noise=Negatives(negatives=8, random_share=0.0), feature_sizes=(16,), feature_dim=8
    ),
    confidence=Elliptical(bonus_scale=3.0, ridge=0.5),
    planner=NearClone(
        BehaviourCloning(behaviour_updates=2, behaviour_sizes=(8,)),
        Regularisation(behaviour_weight=1.0),
        SoftActorCritic(critic_width=8, actor_sizes=(8,)),
    ),
    representation_updates=2,
)
SCHEDULE = Schedule(collection=None, batch_size=16, normalise_observations=True)


def a_set(rows: int = 200, shift: float = 0.0) -> LoggedDataset:
    rng = np.random.default_rng(0)
    observation = (5.0 + shift + 2.0 * rng.normal(size=(rows, 3))).astype(np.float32)
    columns = Transitions(
        observation,
        rng.uniform(-0.1, 0.1, (rows, 2)).astype(np.float32),
        rng.normal(size=rows).astype(np.float32),
        observation,
        np.zeros(rows, bool),
        np.zeros(rows, bool),
        np.zeros(rows, np.int32),
    )
    return LoggedDataset(columns, "here", "arrays", "0" * 64)


@pytest.fixture(scope="module")
def run():
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    found = OfflineRun(AGENT, a_set().spec, SCHEDULE, 0, a_set())
    while found.step < 6:
        found.advance(6)
    yield found
    jax.config.update("jax_disable_most_optimizations", before)


def dense(run: OfflineRun, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """min(scale sqrt(phi' Sigma^-1 phi), 2), Sigma of the run's data with a ridge of half the mean
    |phi|^2, in float64."""

    def phi(observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        seen = run.state.normaliser(observation)
        return np.asarray(AGENT.phi(run.state.agent, seen, action), np.float64)

    logged = phi(*a_set().transitions[:2])
    sigma = logged.T @ logged + 0.5 * np.mean(np.sum(logged**2, axis=1)) * np.eye(8)
    here = phi(observation, action)
    squares = np.sum(here * np.linalg.solve(sigma, here.T).T, axis=1)
    return np.minimum(3.0 * np.sqrt(squares), 2.0)


def test_every_kind_of_pair_has_its_penalty(run, monkeypatch):
    monkeypatch.setattr(penalty, "PAIRS", 50)
    data, other = a_set(), a_set(30, shift=20.0)
    found = penalty.penalties(run, data, {"elsewhere": other})
    own, chosen, everywhere, elsewhere, far = found.values()
    assert list(found)[3] == "elsewhere"
    assert [len(each) for each in found.values()] == [50, 50, 50, 30, 50]
    rows = np.linspace(0, 199, 50).astype(int)
    observation, action = (column[rows] for column in data.transitions[:2])
    np.testing.assert_allclose(own, dense(run, observation, action), rtol=1e-4)
    policy = run.policy()
    actions = np.stack([policy(each) for each in observation])
    np.testing.assert_allclose(chosen, dense(run, observation, actions), rtol=1e-3)
    np.testing.assert_allclose(elsewhere, dense(run, *other.transitions[:2]), rtol=1e-4)
    assert everywhere.mean() > own.mean()
    assert far.mean() > own.mean()
    assert elsewhere.mean() > own.mean()


def test_the_table_holds_ratios_of_means():
    found = {penalty.DATA: np.array([1.0, 2.0, 3.0]), "away": np.array([4.0, 4.0, 10.0])}
    own, away = penalty.table(found)
    assert own == (penalty.DATA, 2.0, 2.0, pytest.approx(2.9), 1.0)
    assert away == ("away", 6.0, 4.0, pytest.approx(9.4), 3.0)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_it_is_drawn(suffix, tmp_path):
    values = np.random.default_rng(0).uniform(0.01, 2, 100)
    file = tmp_path / f"penalty.{suffix}"
    penalty.penalty_figure(file, {penalty.DATA: values / 10, "away": values}, "a run")
    assert file.stat().st_size > 1_000


def test_only_agents_with_a_penalty():
    agent = Td3Bc(actor_sizes=(4,), critic_width=4)
    run = OfflineRun(agent, a_set().spec, SCHEDULE, 0)
    with pytest.raises(InputError, match="name a run of ctrl-lcb"):
        penalty.penalties(run, a_set(), {})
