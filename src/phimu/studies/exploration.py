"""Where exploration decides: mazes whose goal has to be found, and the paper's ablations on tasks
that fit a laptop, most of them with sparse rewards.
"""

from phimu.studies.study import Study, Variant

_TASKS = (
    "MountainCarContinuous-v0",
    "dmc/cheetah-run-sparse-v0",
    "dmc/walker-run-sparse-v0",
    "dmc/cartpole-swingup_sparse-v0",
    "dmc/pendulum-swingup-v0",
    "phimu/FourRooms-v0",
)
# Does a bonus cost something where reward is dense? The paper's ablation has two of these.
_DENSE = ("dmc/cheetah-run-v0", "dmc/walker-run-v0", "dmc/hopper-hop-v0")
# Half as fast as the paper's maze and quieter: there noise alone finds the goal in one episode of
# seven, here in one of four hundred.
_QUIET = (("top_speed", 1.0), ("noise", 0.3))
_BLURRED = (("levels", (1.0,)), ("mu_output", "unit_variance"))
_NO_BONUS = (("bonus_scale", 0.0),)
_SAC = Variant("sac", "sac")

Value = str | int | float | tuple[float, ...]


def _variant(label: str, printed: str | None, *settings: tuple[str, Value]) -> Variant:
    """CTRL-UCBM with these settings, beside what the paper calls it."""
    return Variant(label, "ctrl-ucb-m", settings, printed and f"CTRL-UCBM ({printed})")


def _ablation(name: str, title: str, *variants: Variant, tasks: tuple[str, ...] = _TASKS) -> Study:
    """One of the paper's, on our tasks; 100K decisions are 200K steps of the simulator."""
    return Study(
        f"small-{name}",
        f"Ablation on small tasks: {title}",
        tasks,
        variants,
        "explore",
        steps=100_000,
        seeds=3,
        options=(
            ("dmc/action_repeat", 2),
            *((f"phimu/{option}", value) for option, value in _QUIET),
        ),
        published=f"ablation-{name}",
    )


EXPLORATION = (
    Study(
        "exploration",
        "Exploration: from one corner of a maze to the other",
        ("phimu/FourRooms-v0", "phimu/Serpentine-v0"),
        (
            *(_variant(f"bonus_scale {x}", None, ("bonus_scale", x)) for x in (0.3, 0.0)),
            _SAC,
            _variant("no bonus, uniform_mix 0.1", None, *_NO_BONUS, ("uniform_mix", 0.1)),
            _variant("no bonus, uniform_mix 0.5", None, *_NO_BONUS, ("uniform_mix", 0.5)),
            *(_variant(f"bonus_scale {x}", None, ("bonus_scale", x)) for x in (0.1, 1.0, 5.0)),
            _variant("no baseline", None, ("bonus_baseline", 0)),
        ),
        "maze-explore",
        steps=100_000,
        seeds=5,
        options=_QUIET,
        moments=(5_000, 20_000, 50_000, 100_000),
    ),
    _ablation(
        "bonus",
        "the bonus",
        _variant("bonus_scale 0.0", "alpha=0", ("bonus_scale", 0.0)),
        _variant("bonus_scale 1.0", "alpha=1", ("bonus_scale", 1.0)),
        _variant("bonus_scale 5.0", "alpha=5", ("bonus_scale", 5.0)),
        _SAC,
        # With the contrast of `small`.
        _variant("bonus_scale 1.0, blurred", None, *_BLURRED, ("bonus_scale", 1.0)),
        tasks=(*_TASKS, *_DENSE),
    ),
    _ablation(
        "feature-dim",
        "the dimension of phi",
        # The temperature bounds log ratios by the root of the dimension, as in the preset.
        _variant("feature_dim 128", None, ("feature_dim", 128), ("temperature", 11.3)),
        _variant("feature_dim 256", "h=256", ("feature_dim", 256), ("temperature", 16.0)),
        _variant("feature_dim 512", "h=512", ("feature_dim", 512), ("temperature", 22.6)),
    ),
    _ablation(
        "loss",
        "binary against ranking loss",
        _variant("loss binary", "classify", ("loss", "binary")),
        _variant("loss ranking", "rank", ("loss", "ranking")),
    ),
    _ablation(
        "sampling",
        "uniformly random actions among the policy's",
        _variant("uniform_mix 0.0", "epsilon=0", ("uniform_mix", 0.0)),
        _variant("uniform_mix 0.01", "epsilon=0.01", ("uniform_mix", 0.01)),
        _variant("uniform_mix 0.05", "epsilon=0.05", ("uniform_mix", 0.05)),
    ),
)
