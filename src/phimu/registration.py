"""Our tasks in Gymnasium's registry: at once where it is loaded, or else as soon as it is.

Since 1.0 Gymnasium loads no plugins, so a package registers its tasks when it is imported. To
import Gymnasium for that would take several times as long as all of `phimu --help`.
"""

import importlib
import sys

TYPE_CHECKING = False  # that of `typing`, which would take longer to import than all the rest
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def register_tasks() -> None:
    """`gymnasium.make("mbbl/HalfCheetah-v0")` works from now on, wherever Gymnasium comes in."""
    if "gymnasium" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _Watch())


def _register() -> None:
    importlib.import_module("phimu.environments")  # which registers when it is imported


class _Watch:
    """Finds Gymnasium as Python would, once, and has the tasks registered when it is loaded."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> "ModuleSpec | None":
        if fullname != "gymnasium":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        found = find_spec(fullname)
        if found is None or found.loader is None:
            return None
        load = found.loader.exec_module

        def load_and_register(module: "ModuleType") -> None:
            load(module)
            _register()

        found.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return found
