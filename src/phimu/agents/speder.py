"""SPEDER: CTRL's agent whose phi and mu are learned by the spectral loss.

The planner, the bonus and the loop are CTRL-UCB's; `phimu.representation.spectral` says how phi is
learned.
"""

from dataclasses import replace

from phimu.agents.ctrl_ucb import UCBM
from phimu.agents.schedule import Preset, Presets
from phimu.representation.spectral import Spectral

# All but phi as ctrl-ucb-m has it under this name, and phi of the same widths.
_SMALL = replace(
    UCBM["small"].settings,
    representation=Spectral(feature_sizes=(256, 256), feature_dim=256),
)
# The paper's table; what it does not say is as in CTRL's.
_PAPER = UCBM["paper-mujoco"].settings
_PUBLISHED = replace(
    _PAPER,
    representation=Spectral(
        loss="orthonormal",
        marginal_weight=1.0,
        feature_sizes=(1024, 1024),
        feature_dim=1024,
        feature_layer_norm=False,
        phi_output="identity",
        reward_weight=0.0,
    ),
    planner=replace(_PAPER.planner, critic_width=1024),
)
ONLINE: Presets = {
    "small": Preset(_SMALL, UCBM["small"].schedule),
    "published": Preset(_PUBLISHED, UCBM["paper-mujoco"].schedule),
}
