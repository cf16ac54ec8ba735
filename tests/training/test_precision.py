"""bfloat16 operands, through a whole run."""

import jax
import numpy as np

import phimu.environments  # noqa: F401  (registers the probes)
from phimu.environments.task import open_task
from phimu.settings import override
from phimu.training.online import OnlineRun


def test_bfloat16_trains_and_differs_from_float32(tiny):
    """Through the schedule of a whole run: the same actions to the digits that are left."""
    states = {}
    for precision in ("float32", "bfloat16"):
        chosen = override(tiny("sac"), {"precision": precision})
        task = open_task("phimu/probe-MatchObservation-v0")
        run = OnlineRun(chosen.settings, task, chosen.schedule, seed=0)
        for _ in range(chosen.schedule.collection.learning_starts + 5):
            run.advance()
        run.check()
        states[precision] = run.policy()(np.full(1, 0.5, np.float32))
        assert {leaf.dtype.name for leaf in jax.tree.leaves(run.state)} <= {"float32", "int32"}
    difference = np.abs(states["float32"] - states["bfloat16"]).max()
    assert 0 < difference < 0.1
