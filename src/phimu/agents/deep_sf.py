"""DeepSF: CTRL's agent whose phi are deep successor features of its own policy.

The planner, the bonus and the loop are CTRL-UCB's, as in the code of CTRL's authors;
`phimu.representation.successor` says how phi is learned.
"""

from dataclasses import replace

from phimu.agents.ctrl_ucb import UCBM
from phimu.agents.schedule import Preset, Presets
from phimu.agents.spede import AUTHORS, AUTHORS_SCHEDULE
from phimu.representation.successor import SuccessorFeatures

# All but phi as ctrl-ucb-m has it under this name, and phi of the same widths.
_SMALL = replace(
    UCBM["small"].settings,
    representation=SuccessorFeatures(feature_sizes=(256, 256), feature_dim=256),
)
# The sizes that the paper's scores are of were not published: these are those of its table for
# DM Control. Deviation: the reward of WalkerET is not divided by ten in the loss of g.
_MBBL = replace(
    AUTHORS,
    representation=SuccessorFeatures(
        feature_sizes=(1024, 1024),
        feature_dim=1024,
        feature_layer_norm=False,
        feature_output="elu",
        successor_mean=False,
        bootstrap_terminated=True,
        reward_sizes=(512, 512),
        feature_learning_rate=1e-4,
        feature_rate=0.001,
    ),
)
# What the code has where nothing is said.
_ORIGINAL = replace(
    _MBBL,
    representation=replace(_MBBL.representation, feature_sizes=(200,), feature_dim=200),
    planner=replace(_MBBL.planner, actor_sizes=(200, 200)),
)
ONLINE: Presets = {
    "small": Preset(_SMALL, UCBM["small"].schedule),
    "mbbl": Preset(_MBBL, AUTHORS_SCHEDULE),
    "original": Preset(_ORIGINAL, AUTHORS_SCHEDULE),
}
