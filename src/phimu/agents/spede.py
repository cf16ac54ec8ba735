"""SPEDE: CTRL's agent whose phi is that of dynamics with Gaussian noise.

The planner, the bonus and the loop are CTRL-UCB's, as in the code of its authors, who are CTRL's;
`phimu.representation.gaussian` says how phi is learned.
"""

from dataclasses import replace

from phimu.agents.ctrl_ucb import UCBM, CtrlUcb
from phimu.agents.schedule import Collection, Preset, Presets, Schedule
from phimu.confidence import Elliptical
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.gaussian import GaussianDynamics

# The loop of the authors' code, which deep-sf shares: one update of phi and three of the planner a
# step, on the latest 100K transitions. Of the planner all three are of the entropy weight too.
# Deviation: one phi for both heads of the critic, where the code has one each; log standard
# deviations of the policy up to 2, where it has 0.
AUTHORS = CtrlUcb(
    confidence=Elliptical(bonus_scale=0.0),
    planner=SoftActorCritic(
        critic="linear",
        actor_sizes=(256, 256),
        critic_learning_rate=1e-3,
        actor_learning_rate=1e-3,
        entropy_learning_rate=1e-3,
        initial_entropy_weight=1.0,
    ),
    planner_steps=3,
)
AUTHORS_SCHEDULE = Schedule(Collection(learning_starts=10_000, buffer_size=100_000))

# The sizes that the paper's scores are of were not published: these are those of its table for
# DM Control. Deviation: no learned scale and shift between f and the cosines, since no loss of the
# planner trains phi.
_MBBL = replace(
    AUTHORS,
    representation=GaussianDynamics(
        feature_sizes=(1024, 1024),
        feature_dim=1024,
        feature_layer_norm=False,
        feature_output="elu",
        frequency=0.05,
        waves_of_unit_variance=False,
        reward_sizes=(512, 512),
        weight_noise=1e-6,
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
# All but phi as ctrl-ucb-m has it under this name, and phi of the same widths.
_SMALL = replace(
    UCBM["small"].settings,
    representation=GaussianDynamics(feature_sizes=(256, 256), feature_dim=256),
)
ONLINE: Presets = {
    "small": Preset(_SMALL, UCBM["small"].schedule),
    "mbbl": Preset(_MBBL, AUTHORS_SCHEDULE),
    "original": Preset(_ORIGINAL, AUTHORS_SCHEDULE),
}
