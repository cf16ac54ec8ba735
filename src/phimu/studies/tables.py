"""The paper as data: what each of its tables, ablations and figures runs.

Published scores are in `phimu.reports.published`, under the same names of studies, tasks, methods.
"""

from typing import Any

from phimu.studies.exploration import EXPLORATION
from phimu.studies.offline import PENALTY
from phimu.studies.study import Study, Variant

# What the paper calls each of its tasks.
_PAPER_TITLES = {
    "mbbl/HalfCheetah-v0": "HalfCheetah",
    "mbbl/Reacher-v0": "Reacher",
    "mbbl/HumanoidET-v0": "Humanoid-ET",
    "mbbl/Pendulum-v0": "Pendulum",
    "mbbl/IPendulum-v0": "I-Pendulum",
    "mbbl/AntET-v0": "Ant-ET",
    "mbbl/HopperET-v0": "Hopper-ET",
    "mbbl/SHumanoidET-v0": "S-Humanoid-ET",
    "mbbl/CartPole-v0": "CartPole",
    "mbbl/WalkerET-v0": "Walker-ET",
    "dmc/cheetah-run-v0": "cheetah_run",
    "dmc/cheetah-run-sparse-v0": "cheetah_run_sparse",
    "dmc/walker-run-v0": "walker_run",
    "dmc/walker-run-sparse-v0": "walker_run_sparse",
    "dmc/humanoid-run-v0": "humanoid_run",
    "dmc/hopper-hop-v0": "hopper_hop",
    "halfcheetah_medium": "halfcheetah-medium-v0",
    "hopper_medium": "hopper-medium-v0",
    "walker2d_medium": "walker2d-medium-v0",
    "halfcheetah_medium_expert": "halfcheetah-medium-expert-v0",
    "hopper_medium_expert": "hopper-medium-expert-v0",
    "walker2d_medium_expert": "walker2d-medium-expert-v0",
    "halfcheetah_mixed": "halfcheetah-medium-replay-v0",
    "hopper_mixed": "hopper-medium-replay-v0",
    "walker_mixed": "walker2d-medium-replay-v0",
    "phimu/FourRooms-v0": "four-room maze",
}
TASK_TITLES = _PAPER_TITLES | {
    "phimu/Serpentine-v0": "serpentine maze",
    "MountainCarContinuous-v0": "MountainCarContinuous",
    "dmc/cartpole-swingup_sparse-v0": "cartpole_swingup_sparse",
    "dmc/pendulum-swingup-v0": "pendulum_swingup",
}
TASK_NOTES = {
    "hopper_medium_expert": (
        "D4RL's v0 file is the expert's data with medium-replay behind it, not with medium.",
    ),
}

_MBBL = tuple(task for task in _PAPER_TITLES if task.startswith("mbbl/"))
_DMC = tuple(task for task in _PAPER_TITLES if task.startswith("dmc/"))
_D4RL = tuple(task for task in _PAPER_TITLES if "/" not in task)
_DENSE = ("dmc/cheetah-run-v0", "dmc/walker-run-v0", "dmc/hopper-hop-v0")
_WITH_SPARSE = ("dmc/cheetah-run-v0", "dmc/walker-run-v0", "dmc/walker-run-sparse-v0")
_UCB_M = "CTRL-UCBM (2-layer)"
_BINARY, _EXPONENTIAL = (("loss", "binary"),), "maze-exponential"


def _ablation(
    name: str, title: str, tasks: tuple[str, ...], setting: str, values: dict[Any, str]
) -> Study:
    """CTRL-UCBM with one setting at several values, each beside what the paper calls it."""
    variants = tuple(
        Variant(f"{setting} {value}", "ctrl-ucb-m", ((setting, value),), f"CTRL-UCBM ({printed})")
        for value, printed in values.items()
    )
    return Study(f"ablation-{name}", f"Ablation: {title}", tasks, variants, "paper-dmc")


# One change at a time of `small`. What all share is said, though it is that of the preset, so that
# runs of other presets are none of this study.
_OF_SMALL = {"critic_width": 256, "planner_layer_norm": True, "target_every": 0}


def _recipe(label: str, agent: str = "ctrl-ucb-m", **changes: Any) -> Variant:
    return Variant(label, agent, tuple((_OF_SMALL | changes).items()))


_WITH_BONUS: dict[str, Any] = {"bonus_scale": 1.0, "bonus_baseline": 2_000, "refresh_every": 250}
_SMALLER: dict[str, Any] = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}

# CTRL-UCBM with another loss of phi, or another phi. The width is said, though it is that of the
# preset, so that runs of the paper's widths are none of this study.
_WIDTH = (("feature_dim", 256),)
_OTHER_PHI = ("speder", "diff-sr", "lv-rep", "spede", "deep-sf")

_ALL = (
    Study(
        "table1",
        "Table 1: MuJoCo tasks as in MBBL",
        _MBBL,
        (
            Variant("ctrl-ucb-m", "ctrl-ucb-m", (), _UCB_M),
            Variant("ctrl-ucb-l", "ctrl-ucb-l", (), "CTRL-UCBL"),
            Variant("sac", "sac", (), "SAC (3-layer)"),
            Variant("ppo", "ppo", (), "PPO", "mbbl"),
            Variant("trpo", "trpo", (), "TRPO", "mbbl"),
            Variant("me-trpo", "me-trpo", (), "ME-TRPO", "mbbl"),
            Variant("pets-cem", "pets-cem", (), "PETS-CEM", "mbbl"),
            Variant("pets-rs", "pets-rs", (), "PETS-RS", "mbbl"),
            Variant("deep-sf", "deep-sf", (), "DeepSF", "mbbl"),
            Variant("spede", "spede", (), "SPEDE", "mbbl"),
        ),
        "paper-mujoco",
    ),
    Study(
        "table2",
        "Table 2: DeepMind Control Suite",
        _DMC,
        (
            Variant("ctrl-ucb-m", "ctrl-ucb-m", (), _UCB_M),
            Variant("sac", "sac", (), "SAC (3-layer)"),
            Variant("sac, two layers", "sac", (("critic", "two_layer"),), "SAC (2-layer)"),
            Variant("ppo", "ppo", (), "PPO", "mbbl"),
            Variant("deep-sf", "deep-sf", (), "DeepSF", "mbbl"),
        ),
        "paper-dmc",
    ),
    Study(
        "table3",
        "Table 3: D4RL, normalised scores",
        _D4RL,
        (
            Variant("ctrl-lcb", "ctrl-lcb", (), "CTRL-LCB"),
            Variant("brac", "brac", (), "BRAC"),
            Variant("cpc", "cpc", (), "CPC"),
            Variant("sac", "sac", (), "SAC"),
            Variant("td3-bc", "td3-bc", (), "TD3+BC (d3rlpy)"),
            Variant("rebrac", "rebrac", (), None, "d4rl"),
            Variant("cql", "cql", (), "CQL", "d4rl"),
            Variant("bcq", "bcq", (), "BCQ", "d4rl"),
            Variant("bear", "bear", (), "BEAR", "d4rl"),
        ),
        "paper-d4rl",
        steps=1_000_000,  # the paper does not say; so did the code that it most likely grew from
        metric="score",
    ),
    _ablation(
        "bonus",
        "the bonus",
        _WITH_SPARSE,
        "bonus_scale",
        {0.0: "alpha=0", 1.0: "alpha=1", 5.0: "alpha=5"},
    ),
    _ablation(
        "feature-dim",
        "the dimension of phi",
        _DENSE,
        "feature_dim",
        {256: "h=256", 512: "h=512", 1024: "h=1024"},
    ),
    _ablation(
        "loss",
        "binary against ranking loss",
        _DENSE,
        "loss",
        {"binary": "classify", "ranking": "rank"},
    ),
    _ablation(
        "sampling",
        "uniformly random actions among the policy's",
        _WITH_SPARSE,
        "uniform_mix",
        {0.0: "epsilon=0", 0.01: "epsilon=0.01", 0.05: "epsilon=0.05"},
    ),
    Study(
        "recipe",
        "What makes the contrast work, one change at a time",
        ("mbbl/HalfCheetah-v0", "mbbl/HopperET-v0", "dmc/walker-run-v0"),
        (
            _recipe("ctrl-ucb-m"),
            _recipe("sac", "sac"),
            _recipe("plain contrast", levels=()),
            _recipe("level 0.3", levels=(0.3,)),
            _recipe("level 3", levels=(3.0,)),
            _recipe("levels 0.3, 1, 3", levels=(0.3, 1.0, 3.0)),
            _recipe("multi-step 0.7", multi_step=0.7),
            _recipe("two planner updates", planner_steps=2),
            _recipe("sac, two updates", "sac", gradient_steps=2),
            _recipe("reward head", reward_weight=0.1),
            _recipe("critic trains phi", critic_trains_phi=2.0),
            _recipe("the same without contrast", critic_trains_phi=2.0, contrast_weight=0.0),
            _recipe("phi alone in the critic", beside_phi="nothing"),
            _recipe("inputs of phi normalised", normalise_inputs=True),
            _recipe("two hidden layers", critic="three_layer"),
            _recipe("sac, three hidden layers", "sac", critic="four_layer"),
            _recipe("phi and targets copied", feature_every=250, target_every=250),
            _recipe("sac, targets copied", "sac", target_every=250),
            _recipe("smaller steps", **_SMALLER),
            _recipe("sac, smaller steps", "sac", **_SMALLER),
            _recipe("a bonus, inputs of phi normalised", normalise_inputs=True, **_WITH_BONUS),
            _recipe("errors bounded", error_bound=1.0),
            _recipe("sac, errors bounded", "sac", error_bound=1.0),
            _recipe("slower targets", target_rate=0.005),
            _recipe("sac, slower targets", "sac", target_rate=0.005),
            _recipe("the usual entropy", extra_entropy=0.0),
            _recipe("sac, the usual entropy", "sac", extra_entropy=0.0),
            _recipe("three-step returns", n_steps=3),
            _recipe("sac, three-step returns", "sac", n_steps=3),
        ),
        "small",
        steps=30_000,
        seeds=3,
        options=(("dmc/action_repeat", 2),),
    ),
    Study(
        "representations",
        "Which loss of phi: one planner, one budget, one representation after the other",
        ("mbbl/HalfCheetah-v0", "mbbl/HopperET-v0", "dmc/walker-run-v0"),
        (
            Variant("sac", "sac", (("critic_width", 256),)),
            Variant("ctrl-ucb-m", "ctrl-ucb-m", _WIDTH),
            # The others have a reward head, which trains phi too.
            Variant("ctrl-ucb-m, reward head", "ctrl-ucb-m", (*_WIDTH, ("reward_weight", 1.0))),
            Variant("ctrl-sr", "ctrl-sr", _WIDTH),
            *(Variant(agent, agent, _WIDTH) for agent in _OTHER_PHI),
        ),
        "small",
        steps=50_000,
        seeds=2,
        options=(("dmc/action_repeat", 2),),
    ),
    Study(
        "maze",
        "Figure 1: the learned transition of the four-room maze",
        ("phimu/FourRooms-v0",),
        (
            Variant("linear ratio", "ctrl-ucb-l"),
            Variant("linear ratio, no bonus", "ctrl-ucb-l", (("bonus_scale", 0.0),)),
            Variant("linear ratio, binary loss", "ctrl-ucb-l", _BINARY),
            Variant("exponential ratio", "ctrl-ucb-m", (), None, _EXPONENTIAL),
            Variant("exponential ratio, binary loss", "ctrl-ucb-m", _BINARY, None, _EXPONENTIAL),
        ),
        "maze",
        steps=300_000,
        metric="total_variation_free",
        options=(("random_start", True),),
    ),
)
STUDIES = {study.name: study for study in (*_ALL, *EXPLORATION, PENALTY)}
