"""p(s') as points: the mixture that s' was told apart from, and means under it."""

import numpy as np
import pytest

from phimu.agents.ctrl_ucb import CtrlUcb
from phimu.agents.sac import Sac
from phimu.agents.schedule import Collection, Schedule
from phimu.data.replay import Replay
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.training.base_measure import BaseMeasure, base_measure, mixture, of_points
from phimu.training.online import OnlineRun
from phimu.types import Spec

PLANNER = SoftActorCritic(critic_width=4, actor_sizes=(4,))


def run_of(agent: object, batch_size: int = 8) -> OnlineRun:
    schedule = Schedule(Collection(3, buffer_size=5), batch_size=batch_size)
    return OnlineRun(agent, open_task("phimu/FourRooms-v0"), schedule, seed=0)


@pytest.mark.parametrize(("in_batch", "random"), [(True, 2 / 12), (False, 2 / 4)])
def test_it_is_the_mixture_of_the_negatives(in_batch: bool, random: float) -> None:
    """4 negatives, 2 of them from the warm-up, and a batch of 8 if it serves too."""
    noise = Negatives(negatives=4, random_share=0.5, in_batch=in_batch)
    features = Contrastive(noise=noise, feature_dim=4, feature_sizes=(4,))
    run = run_of(CtrlUcb(representation=features, planner=PLANNER))
    run.replay = Replay(Spec(2, 2), capacity=5, warm_up=3)
    for step in range(7):  # wraps: the ring holds 2 to 6, the warm-up 0 to 2
        run.replay.add(np.zeros(2), np.zeros(2), 0.0, np.full(2, step), False, False)
    base = base_measure(run, most=None)
    mass = np.bincount(base.points[:, 0].astype(int), base.weights, minlength=7)
    expected = np.zeros(7)
    expected[2:] += (1 - random) / 5
    expected[:3] += random / 3
    np.testing.assert_allclose(mass, expected)


def test_without_negatives_it_is_what_is_stored() -> None:
    run = run_of(Sac(PLANNER))
    with pytest.raises(InputError, match="no next observation yet to integrate over"):
        base_measure(run)
    for _ in range(2):
        run.advance()
    base = base_measure(run)
    np.testing.assert_array_equal(base.points, run.replay.rows.next_observation[:2])
    np.testing.assert_array_equal(base.weights, [0.5, 0.5])


def test_a_sample_keeps_the_shares_and_has_no_point_twice() -> None:
    rng = np.random.default_rng(0)
    many, few = np.arange(1_000.0)[:, None], -1.0 - np.arange(10.0)[:, None]
    base = mixture([(0.75, many), (0.25, few)], 100, rng)
    assert len(np.unique(base.points)) == len(base.points) == 75 + 10
    np.testing.assert_allclose(base.weights[:75].sum(), 0.75)
    np.testing.assert_allclose(base.weights.sum(), 1)
    assert of_points(many, rng).points.shape == (1_000, 1)  # all, where there are no more
    alone = mixture([(0.75, many[:4]), (0.25, few[:0])], None, rng)
    np.testing.assert_allclose(alone.weights, 0.25)


def test_mean_against_a_direct_sum() -> None:
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(5_000, 2)), rng.uniform(size=5_000)
    base = BaseMeasure(points, weights / weights.sum())
    slopes = 5 * rng.normal(size=(3, 2))
    found = base.log_mean_exp(lambda some: slopes @ some.T + 300)  # beyond exp in float32
    direct = np.log(np.exp(slopes @ points.T) @ base.weights) + 300
    np.testing.assert_allclose(found, direct, rtol=1e-12)
