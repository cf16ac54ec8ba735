"""The registry: every agent by name, what it is, what it learns from, and its presets.

Another agent is a file of its own that ends with its presets, a line in AGENTS and a page in docs.
Nothing is imported before it is asked for.
"""

import importlib
from typing import TYPE_CHECKING, NamedTuple

from phimu.errors import InputError

if TYPE_CHECKING:
    from phimu.agents.schedule import Preset, Presets


class Entry(NamedTuple):
    """An agent's line in the registry."""

    module: str
    summary: str
    online: str | None = None  # the name of its presets for an environment, if it learns in one
    logged: str | None = None  # of those for logged data
    page: str = ""  # in docs, if not the agent's own name
    discrete: bool = False  # whether it can also choose one of finitely many actions, online

    def presets(self, logged: bool) -> "Presets":
        """Empty where it does not learn so."""
        name = self.logged if logged else self.online
        return {} if name is None else getattr(importlib.import_module(self.module), name)


AGENTS = {
    "ctrl-ucb-m": Entry(
        "phimu.agents.ctrl_ucb",
        "CTRL-UCBM: contrastive phi, two-layer critic on phi, elliptical bonus (bonus_scale)",
        online="UCBM",
        page="ctrl-ucb",
        discrete=True,
    ),
    "ctrl-ucb-l": Entry(
        "phimu.agents.ctrl_ucb",
        "CTRL-UCBL: the same with a linear critic and phi made to predict the bonus",
        online="UCBL",
        page="ctrl-ucb",
        discrete=True,
    ),
    "sac": Entry(
        "phimu.agents.sac",
        "soft actor-critic: the same planner on (s, a); critic two_layer or three_layer",
        online="ONLINE",
        logged="LOGGED",
        discrete=True,
    ),
    "ppo": Entry(
        "phimu.agents.ppo",
        "proximal policy optimisation: on policy, clipped ratios, a Gaussian policy",
        online="ONLINE",
    ),
    "trpo": Entry(
        "phimu.agents.trpo",
        "trust region policy optimisation: on policy, a natural-gradient step per round",
        online="ONLINE",
    ),
    "me-trpo": Entry(
        "phimu.agents.me_trpo",
        "ME-TRPO: an ensemble of the dynamics, TRPO on episodes imagined in it",
        online="ONLINE",
    ),
    "pets-cem": Entry(
        "phimu.agents.pets",
        "PETS: a probabilistic ensemble of the dynamics, a plan by CEM in every state",
        online="CEM",
        page="pets",
    ),
    "pets-rs": Entry(
        "phimu.agents.pets",
        "the same with plans by random shooting",
        online="RS",
        page="pets",
    ),
    "deep-sf": Entry(
        "phimu.agents.deep_sf",
        "DeepSF: CTRL-UCBM whose phi are deep successor features of its policy",
        online="ONLINE",
        discrete=True,
    ),
    "spede": Entry(
        "phimu.agents.spede",
        "SPEDE: CTRL-UCBM whose phi are Fourier features of dynamics with Gaussian noise",
        online="ONLINE",
        discrete=True,
    ),
    "speder": Entry(
        "phimu.agents.speder",
        "SPEDER: CTRL-UCBM whose phi and mu are a singular value decomposition of the ratio",
        online="ONLINE",
        discrete=True,
    ),
    "ctrl-sr": Entry(
        "phimu.agents.ctrl_sr",
        "CTRL-SR: CTRL-UCBM whose contrast is of s' blurred by noise at many levels",
        online="ONLINE",
        discrete=True,
    ),
    "diff-sr": Entry(
        "phimu.agents.diff_sr",
        "Diff-SR: CTRL-UCBM whose phi predicts the noise in a perturbed s', linearly",
        online="ONLINE",
        discrete=True,
    ),
    "lv-rep": Entry(
        "phimu.agents.lv_rep",
        "LV-Rep: CTRL-UCBM whose phi are Fourier features of a latent variable's distribution",
        online="ONLINE",
        discrete=True,
    ),
    "ctrl-lcb": Entry(
        "phimu.agents.ctrl_lcb",
        "CTRL-LCB: contrastive phi of the dataset, elliptical penalty, careful actor on phi",
        logged="LOGGED",
    ),
    "brac": Entry(
        "phimu.agents.brac",
        "behaviour-regularised actor-critic on (s, a): CTRL-LCB without phi and penalty",
        logged="LOGGED",
    ),
    "cpc": Entry(
        "phimu.agents.cpc",
        "the same on a contrastive embedding of s alone, without penalty",
        logged="LOGGED",
    ),
    "td3-bc": Entry(
        "phimu.agents.td3_bc",
        "TD3+BC: deterministic, pulled towards the actions of the dataset",
        logged="LOGGED",
    ),
    "rebrac": Entry(
        "phimu.agents.rebrac",
        "ReBRAC: TD3+BC with LayerNorm in the critics and a second penalty in the target of Q",
        logged="LOGGED",
    ),
    "cql": Entry(
        "phimu.agents.cql",
        "CQL: soft actor-critic whose Q is kept low where the dataset has no actions",
        logged="LOGGED",
    ),
    "bcq": Entry(
        "phimu.agents.bcq",
        "BCQ: the best by Q of actions that a model of the behaviour proposes, moved a little",
        logged="LOGGED",
    ),
    "bear": Entry(
        "phimu.agents.bear",
        "BEAR: an actor within a maximum mean discrepancy of a model of the behaviour",
        logged="LOGGED",
    ),
}
PRESETS = {
    "paper-mujoco": "the paper's table for MuJoCo: phi 1024-1024-2048, bonus_scale 0",
    "paper-dmc": "the paper's table for DM Control: phi 1024-1024-1024, bonus_scale 5",
    "paper-d4rl": "the paper's table for D4RL: phi 512-512-512, 200K updates of phi first",
    "d4rl": "cql, rebrac, bcq and bear as published code ran them on D4RL",
    "mbbl": "ppo, trpo, me-trpo and pets as MBBL ran them, which the paper has their scores from; "
    "deep-sf and spede as in the code of the paper's authors, phi 1024-1024-1024",
    "original": "ppo, trpo, me-trpo, pets, deep-sf and spede as in their authors' code",
    "published": "speder, ctrl-sr, diff-sr and lv-rep with the sizes and steps of their authors",
    "small": "for a laptop: phi 256-256-256, with (s, a) beside phi in the critic; online no bonus",
    "perturbed": "small with s' blurred in the contrast, as was best online",
    "explore": "for rewards that have to be found: early learning, small networks, a bonus",
    "maze": "the four-room maze of Figure 1: a linear ratio on Fourier features",
    "maze-exponential": "the same with the exponential ratio",
    "maze-explore": "the same for a maze whose goal has to be found, with a smaller bonus",
}


def learners(logged: bool) -> dict[str, Entry]:
    """The agents that learn in an environment, or those that learn from logged data."""
    return {
        name: entry for name, entry in AGENTS.items() if (entry.logged if logged else entry.online)
    }


def check_discrete(agent: str, task: str) -> None:
    """InputError where an agent cannot choose one of finitely many actions, as a task asks."""
    if not AGENTS[agent].discrete:
        able = ", ".join(name for name, entry in learners(False).items() if entry.discrete)
        raise InputError(
            f"{agent} needs continuous actions, but those of {task} are discrete: choose one of "
            f"{able}."
        )


def preset(agent: str, name: str, logged: bool = False) -> "Preset":
    """The settings of an agent under a preset, in an environment or on logged data."""
    known = learners(logged)
    if agent not in known:
        learn = "learn from logged data" if logged else "train in an environment"
        raise InputError(f"agent is {agent!r}: to {learn} choose one of {', '.join(known)}.")
    presets = known[agent].presets(logged)
    if name not in presets:
        raise InputError(f"preset is {name!r}: {agent} has {', '.join(presets)}.")
    return presets[name]
