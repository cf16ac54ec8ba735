"""Diff-SR: CTRL's agent whose phi predicts the noise in s', linearly.

The planner, the bonus and the loop are CTRL-UCB's; `phimu.representation.score` says how phi is
learned.
"""

from dataclasses import replace

from phimu.agents import ctrl_sr
from phimu.agents.ctrl_ucb import UCBM
from phimu.agents.schedule import Preset, Presets
from phimu.representation.score import ScoreMatching

# All but phi as ctrl-ucb-m has it under this name, and phi of the same widths.
_SMALL = replace(
    UCBM["small"].settings,
    representation=ScoreMatching(feature_sizes=(256, 256), feature_dim=256),
)
# Planner and loop of the published code are those of CTRL-SR, with the same deviations.
_AUTHORS, _SCHEDULE = ctrl_sr.ONLINE["published"]
_PUBLISHED = replace(
    _AUTHORS,
    representation=ScoreMatching(
        noise_levels=50,
        feature_sizes=(512, 512, 512),
        feature_dim=512,
        phi_output="identity",
        reward_sizes=(512, 512),
        reward_weight=0.1,
        feature_learning_rate=1e-4,
    ),
)
ONLINE: Presets = {
    "small": Preset(_SMALL, UCBM["small"].schedule),
    "published": Preset(_PUBLISHED, _SCHEDULE),
}
