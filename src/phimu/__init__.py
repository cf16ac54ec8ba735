"""phimu: reinforcement learning on learned linear-MDP representations (CTRL, ICML 2022).

Names are imported when first used, so that `import phimu` and `phimu --help` are instant. Our tasks
are known to Gymnasium from then on: `gymnasium.make("mbbl/HalfCheetah-v0")`.
"""

import importlib

from phimu.registration import register_tasks

_HOMES = {
    "Ctrl": "phimu.model:CtrlModel",
    "Sac": "phimu.model:SacModel",
    "Offline": "phimu.model:OfflineModel",
    "Model": "phimu.model:Model",
    "evaluate": "phimu.evaluation.own_range:evaluate",
    "learn_features": "phimu.features:learn_features",
    "open_set": "phimu.data.sets.opening:open_set",
    "from_arrays": "phimu.data.sets.arrays:from_arrays",
    "Contrastive": "phimu.representation.contrastive:Contrastive",
    "Elliptical": "phimu.confidence:Elliptical",
    "InputError": "phimu.errors:InputError",
    "callbacks": "phimu.callbacks",
}
__all__ = list(_HOMES)


register_tasks()


def __getattr__(name: str) -> object:
    if name in _HOMES:
        module, _, attribute = _HOMES[name].partition(":")
        home = importlib.import_module(module)
        return getattr(home, attribute) if attribute else home
    raise AttributeError(f"module 'phimu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
