"""phi kept in columns against none: how two are timed, and which rounds count."""

import numpy as np
import pytest

import columns
from phimu.agents.ctrl_lcb import CtrlLcb
from phimu.agents.schedule import LOGGED, Preset
from phimu.planning.behaviour import BehaviourCloning
from phimu.planning.held_near import NearClone
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.settings import override

TINY = Preset(
    CtrlLcb(
        representation=Contrastive(
            noise=Negatives(random_share=0.0), feature_sizes=(16,), feature_dim=8
        ),
        planner=NearClone(
            BehaviourCloning(behaviour_sizes=(16,)),
            actor_critic=SoftActorCritic(critic_width=16, actor_sizes=(16,)),
        ),
    ),
    LOGGED,
)


@pytest.mark.thorough
def test_two_are_timed_in_turns(monkeypatch):
    monkeypatch.setattr(
        columns, "_chosen", lambda name: override(TINY, {"precompute": name == "kept"})
    )
    job = {"names": ["kept", "none"], "rounds": 2, "steps": 3, "rows": 1_000}
    seconds = np.array(columns.measure(job)["seconds"])
    assert seconds.shape == (2, 2, 2)
    assert (seconds > 0).all()


def test_the_quickest_rounds_and_the_median_ratio_count():
    wall = [(2.0, 3.0), (1.0, 4.0), (4.0, 20.0)]
    rounds = [((own, 0.5), (theirs, 3.0)) for own, theirs in wall]
    assert columns.compare(("a", "b"), 100, rounds) == ("a", 100.0, "b", 100 / 3, 4.0, 6.0)


def test_columns_are_compared_with_none_for_each_planner(monkeypatch):
    asked = []

    def ours(names, rounds, steps, rows):
        asked.append((names, rows))
        return [[[1.0, 2.0], [3.0, 8.0]]] * rounds

    monkeypatch.setattr(columns, "run_ours", ours)
    found = columns.offline_speeds(rounds=2, steps=10, rows=1_000)
    first, second = columns.PLANNERS
    assert found[0].name == f"{first}, columns computed once"
    assert found[1].other == f"{second}, phi computed for each batch"
    assert [(row.ratio, row.processor_ratio) for row in found] == [(3.0, 4.0)] * 2
    assert asked == [([row.name, row.other], 1_000) for row in found]
