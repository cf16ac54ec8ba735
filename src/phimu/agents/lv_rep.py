"""LV-Rep: CTRL's agent whose phi are features of a latent variable's distribution.

The planner, the bonus and the loop are CTRL-UCB's; `phimu.representation.latent` says how phi is
learned.
"""

from dataclasses import replace

from phimu.agents import ctrl_sr
from phimu.agents.ctrl_ucb import UCBM
from phimu.agents.schedule import Preset, Presets
from phimu.representation.latent import LatentVariable

# All but phi as ctrl-ucb-m has it under this name, and phi of the same widths.
_SMALL = replace(
    UCBM["small"].settings,
    representation=LatentVariable(feature_sizes=(256, 256), feature_dim=256),
)
# Planner and loop of the published code are those of CTRL-SR, with the same deviations.
# Deviation: s' in units of its deviation; one depth for prior and posterior.
_AUTHORS, _SCHEDULE = ctrl_sr.ONLINE["published"]
_PUBLISHED = replace(
    _AUTHORS,
    representation=LatentVariable(
        latent_dim=512,
        feature_dim=512,
        feature_sizes=(512, 512, 512),
        # 0.1 with a balance of 0.5, which stops half of the gradient on either side.
        kl_weight=0.05,
        reward_sizes=(512, 512, 512),
    ),
)
ONLINE: Presets = {
    "small": Preset(_SMALL, UCBM["small"].schedule),
    "published": Preset(_PUBLISHED, replace(_SCHEDULE, normalise_observations=False)),
}
