"""phimu: reinforcement learning on learned linear-MDP representations (CTRL, ICML 2022).

Names are imported when first used, so that `import phimu` and `phimu --help` are instant.
"""

import importlib

_HOMES = {
    "Ctrl": "phimu.model",
    "Sac": "phimu.model",
    "Offline": "phimu.model",
    "evaluate": "phimu.evaluation.episodes",
    "learn_features": "phimu.features",
    "open_set": "phimu.data.sets.opening",
    "from_arrays": "phimu.data.sets.arrays",
    "Contrastive": "phimu.representation.learner",
    "Elliptical": "phimu.confidence",
    "InputError": "phimu.errors",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'phimu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
