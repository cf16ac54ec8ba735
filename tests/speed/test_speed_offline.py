"""Updates on logged data: what is counted."""

import numpy as np
import pytest

from phimu.agents.ctrl_lcb import CtrlLcb
from phimu.agents.schedule import LOGGED, Preset
from phimu.confidence import Elliptical
from phimu.planning.behaviour import BehaviourCloning, Regularisation
from phimu.planning.held_near import NearClone
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.settings import override
from phimu.speed import offline, updates
from phimu.speed.updates import Product
from phimu.types import Spec

AGENT = CtrlLcb(
    representation=Contrastive(
        noise=Negatives(random_share=0.0), feature_sizes=(16,), feature_dim=8
    ),
    confidence=Elliptical(bonus_scale=1.0),
    planner=NearClone(
        BehaviourCloning(behaviour_sizes=(16,)),
        Regularisation(behaviour_weight=1.0),
        SoftActorCritic(critic_width=16, actor_sizes=(16,)),
    ),
)
TINY = Preset(AGENT, LOGGED)
HOPPER = Spec(observation_dim=11, action_dim=3)


def test_a_set_of_noise_has_whole_episodes():
    rows = offline.random_set(HOPPER, 3_000)
    assert rows.observation.shape == (3_000, 11)
    assert rows.episode[-1] == 2
    assert np.flatnonzero(rows.truncated).tolist() == [999, 1_999, 2_999]
    inside = ~rows.truncated[:-1]
    np.testing.assert_array_equal(rows.next_observation[:-1][inside], rows.observation[1:][inside])
    assert abs(rows.action).max() <= 1


def test_columns_save_one_pass_of_phi_and_its_penalty():
    """phi on (11 + 3) of 16-8 for a batch of 256, and its product with the whitening."""
    rows = offline.random_set(HOPPER, 1_000)
    kept = offline.Timed(TINY, rows).products()
    none = offline.Timed(override(TINY, {"precompute": False}), rows).products()
    assert not kept - none
    assert none - kept == {Product(256, 16, 14): 1, Product(256, 8, 16): 1, Product(256, 8, 8): 1}


def test_the_planner_is_compared_with_its_own_products(monkeypatch):
    monkeypatch.setattr(offline, "preset", lambda *_, **__: TINY)
    monkeypatch.setattr(updates, "peak", lambda products, rounds: 10.0)
    found = offline.planner_speed("ctrl-lcb 256-256-256", rounds=1, work=1.0)
    assert found.name == "ctrl-lcb 256-256-256, policy"
    assert found.gflops == pytest.approx(found.gflop / found.milliseconds * 1e3)
    assert found.share == pytest.approx(found.gflops / 10.0)
