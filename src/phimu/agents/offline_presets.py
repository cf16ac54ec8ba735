"""Agents that learn from logged data, by name, and their presets."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from phimu.agents.brac import Brac
from phimu.agents.cpc import Cpc
from phimu.agents.ctrl_lcb import CtrlLcb
from phimu.agents.presets import SMALL_FEATURES
from phimu.agents.sac import Sac
from phimu.agents.td3_bc import Td3Bc
from phimu.confidence import Elliptical
from phimu.errors import InputError
from phimu.planning.behaviour import BehaviourCloning
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.learner import Contrastive
from phimu.representation.negatives import Negatives
from phimu.representation.predictive import PredictiveCoding

OfflineSettings = CtrlLcb | Brac | Cpc | Td3Bc | Sac

LEAST = {
    "batch_size": 2,  # in-batch negatives need another row
    "evaluate_every": 0,
    "evaluation_episodes": 1,
    "checkpoint_every": 1,
    "log_every": 1,
}


@dataclass(frozen=True)
class OfflineSchedule:
    """When an offline run evaluates and saves, in updates of a phase."""

    batch_size: int = 256
    """Transitions per update."""
    evaluate_every: int = 10_000
    """Updates of the policy between two evaluations; 0 for none."""
    evaluation_episodes: int = 10
    """Episodes per evaluation, with the mode action."""
    checkpoint_every: int = 10_000
    """Updates between two checkpoints."""
    log_every: int = 1_000
    """Updates between two rows of training metrics."""

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}: give at least {least}.")


class OfflinePreset(NamedTuple):
    settings: OfflineSettings
    schedule: OfflineSchedule


OFFLINE_AGENTS: dict[str, type[OfflineSettings]] = {
    "ctrl-lcb": CtrlLcb,
    "brac": Brac,
    "cpc": Cpc,
    "td3-bc": Td3Bc,
    "sac": Sac,
}
OFFLINE_DESCRIPTIONS = {
    "ctrl-lcb": "CTRL-LCB: contrastive phi of the set, elliptical penalty, careful actor on phi",
    "brac": "behaviour-regularised actor-critic on (s, a): CTRL-LCB without phi and penalty",
    "cpc": "the same on a contrastive embedding of s alone, without penalty",
    "td3-bc": "TD3+BC: deterministic, drawn towards the actions of the set",
    "sac": "soft actor-critic as it is online: what happens without care",
}
OFFLINE_PRESET_DESCRIPTIONS = {
    "paper-d4rl": "the paper's table for D4RL: phi 512-512-512, 200K updates of phi first",
    "small": "for a laptop: phi 256-256-256, normalised, 20K updates of phi first",
}


def offline_preset(agent: str, name: str) -> OfflinePreset:
    """The settings of an offline agent under a preset."""
    if agent not in OFFLINE_AGENTS:
        known = ", ".join(OFFLINE_AGENTS)
        raise InputError(f"agent is {agent!r}: to learn from a set choose one of {known}.")
    if name not in OFFLINE_PRESET_DESCRIPTIONS:
        known = ", ".join(OFFLINE_PRESET_DESCRIPTIONS)
        raise InputError(f"preset is {name!r}: to learn from a set choose one of {known}.")
    return OfflinePreset(_SETTINGS[name][agent], OfflineSchedule())


# The table "Hyperparameters used for CTRL-LCB in D4RL evaluation" to the digit; what it leaves
# open is in docs/deviations.md.
_PAPER_PLANNER = SoftActorCritic(
    critic="two_layer",
    critic_width=512,
    actor_sizes=(256, 256),
    discount=0.99,
    target_rate=0.005,
    actor_learning_rate=3e-4,
    critic_learning_rate=1e-3,
    entropy_learning_rate=3e-4,
    behaviour_weight=1.0,
)
_PAPER_BEHAVIOUR = BehaviourCloning(behaviour_updates=200_000)
_ON_PAIRS = replace(_PAPER_PLANNER, critic="three_layer", critic_width=256)
_PAPER_BRAC = Brac(behaviour=_PAPER_BEHAVIOUR)  # with the learning rates of its published code
_PAPER: dict[str, OfflineSettings] = {
    "ctrl-lcb": CtrlLcb(
        representation=Contrastive(
            feature_sizes=(512, 512),
            feature_dim=512,
            temperature=0.2,
            feature_learning_rate=3e-4,
        ),
        confidence=Elliptical(bonus_scale=1.0),
        behaviour=_PAPER_BEHAVIOUR,
        planner=_PAPER_PLANNER,
        representation_updates=200_000,
    ),
    "brac": _PAPER_BRAC,
    "cpc": Cpc(PredictiveCoding(representation_updates=200_000), _PAPER_BRAC),
    "td3-bc": Td3Bc(),
    "sac": Sac(replace(_ON_PAIRS, behaviour_weight=0.0)),
}

NOT_HELD = -100.0  # an entropy that is never reached

_SMALL_PLANNER = replace(
    _PAPER_PLANNER,
    critic_width=256,
    planner_layer_norm=True,
    entropy_in_target=False,
    target_entropy=NOT_HELD,  # the KL divergence brings the clone's
    value_scale=10.0,
)
_SMALL_BEHAVIOUR = BehaviourCloning(
    behaviour_updates=20_000, behaviour_entropy=NOT_HELD, behaviour_least_log_std=-1.6
)
_SMALL_ON_PAIRS = replace(_SMALL_PLANNER, critic="three_layer")
_SMALL_BRAC = Brac(
    behaviour=_SMALL_BEHAVIOUR,
    planner=_SMALL_ON_PAIRS,
    divergence="kl_primal",
    normalise_observations=True,
)
_SMALL: dict[str, OfflineSettings] = {
    "ctrl-lcb": CtrlLcb(
        representation=SMALL_FEATURES,
        noise=Negatives(negatives=0, random_share=0.0),
        confidence=Elliptical(bonus_scale=1.0),
        behaviour=_SMALL_BEHAVIOUR,
        planner=_SMALL_PLANNER,
        representation_updates=20_000,
        divergence="kl_primal",
        normalise_observations=True,
        raw_beside_phi=True,
        penalty_features=1_024,
    ),
    "brac": _SMALL_BRAC,
    "cpc": Cpc(PredictiveCoding(representation_updates=20_000), _SMALL_BRAC),
    "td3-bc": Td3Bc(),
    "sac": Sac(
        replace(
            _SMALL_ON_PAIRS,
            behaviour_weight=0.0,
            value_scale=None,
            entropy_in_target=True,
            target_entropy=None,
        ),
        normalise_observations=True,
    ),
}
_SETTINGS = {"paper-d4rl": _PAPER, "small": _SMALL}
