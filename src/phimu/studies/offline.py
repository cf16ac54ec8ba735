"""How pessimistic to be: CTRL-LCB's penalty from none to too much, on logged data."""

from phimu.studies.study import Study, Variant

# A scale then means the same on every dataset: a share of its typical reward, whatever its size.
CALIBRATED = (("bonus_unit", "reward"), ("effective_rows", 10_000))
_SCALES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)


def _variant(scale: float) -> Variant:
    return Variant(f"bonus_scale {scale}", "ctrl-lcb", (("bonus_scale", scale), *CALIBRATED))


PENALTY = Study(
    "ablation-penalty",
    "Ablation: the penalty, in units of reward",
    ("hopper_medium", "hopper_medium_expert", "halfcheetah_medium"),
    tuple(_variant(scale) for scale in _SCALES),
    "small",
    steps=100_000,
    seeds=2,
    metric="score",
)
