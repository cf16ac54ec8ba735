"""CTRL-SR: CTRL-UCB whose contrast is perturbed, s' and its negatives blurred at many levels.

All of it is CTRL-UCB's own code: `levels` of `phimu.representation.contrastive` are the noise.
"""

from dataclasses import replace

import numpy as np

from phimu.agents.ctrl_ucb import UCBM, CtrlUcb
from phimu.agents.schedule import Collection, Preset, Presets, Schedule
from phimu.confidence import Elliptical
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.contrastive import Contrastive
from phimu.representation.negatives import Negatives
from phimu.representation.perturbation import kept_signal
from phimu.representation.ratio import Exponential


def _levels(count: int) -> tuple[float, ...]:
    """Noise over signal at each level of the schedule."""
    return tuple(float(np.sqrt(1 / kept - 1)) for kept in kept_signal(count))


# Deviation: one of the levels per update and not all of them, one temperature for all levels, s'
# at its own size under the noise, plain layers for residual ones, a linear reward head, and soft
# actor-critic in place of TD3.
_PUBLISHED = CtrlUcb(
    representation=Contrastive(
        ratio=Exponential(
            phi_output="unit_norm", mu_output="identity", temperature=1.0, learn_temperature=True
        ),
        noise=Negatives(negatives=0),
        levels=_levels(25),
        feature_sizes=(512, 512, 512),
        feature_dim=512,
        feature_layer_norm=True,
        reward_weight=1.0,
        feature_learning_rate=1e-4,
    ),
    confidence=Elliptical(bonus_scale=0.0),
    planner=SoftActorCritic(
        critic="three_layer",
        critic_width=512,
        actor_sizes=(512, 512, 512),
        planner_layer_norm=True,
    ),
)
# All but the contrast as ctrl-ucb-m has it under this name; mu as bounded as phi, so that the
# temperature bounds log ratios for every level alike.
_CTRL = UCBM["small"].settings
_SMALL = replace(
    _CTRL,
    representation=replace(
        _CTRL.representation,
        ratio=replace(_CTRL.representation.ratio, mu_output="unit_variance"),
        noise=Negatives(negatives=0),
        levels=(0.3, 1.0, 3.0),
        reward_weight=1.0,
    ),
)
ONLINE: Presets = {
    "small": Preset(_SMALL, UCBM["small"].schedule),
    # 10K random frames are 5K steps with the published action repeat of 2, an option of the task.
    "published": Preset(
        _PUBLISHED,
        Schedule(Collection(learning_starts=5_000), batch_size=512, normalise_observations=True),
    ),
}
