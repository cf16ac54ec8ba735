"""`import phimu` makes its tasks known to Gymnasium, in whatever order the two are imported."""

import subprocess
import sys

import pytest

MADE = "assert gymnasium.make('mbbl/Pendulum-v0').unwrapped.spec.id == 'mbbl/Pendulum-v0'"
KNOWN = "assert gymnasium.spec('mbbl/HalfCheetah-v0').max_episode_steps == 1000"


@pytest.mark.parametrize(
    "lines",
    [
        ("import gymnasium", "import phimu", MADE, KNOWN),
        ("import phimu", "import gymnasium", MADE, KNOWN),
        ("import phimu.errors", "import gymnasium.spaces", "import gymnasium", MADE),
        ("from phimu.environments.task import open_task", "import gymnasium", MADE),
        ("import gymnasium", "gymnasium.make('phimu:mbbl/Pendulum-v0').reset(seed=0)"),
        ("import gymnasium", "gymnasium.make('phimu:phimu/FourRooms-v0')", KNOWN),
        # Nothing is left in the way of other imports, and Gymnasium is what it would have been.
        (
            "import sys, phimu",
            "import gymnasium",
            "assert not [f for f in sys.meta_path if type(f).__module__.startswith('phimu')]",
            "import importlib; importlib.reload(gymnasium)",
            "assert type(gymnasium.__spec__.loader).__name__ == 'SourceFileLoader'",
        ),
    ],
    ids=["after", "before", "part", "ours", "colon", "colon, maze", "clean"],
)
def test_tasks_are_known(lines: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_gymnasium_nothing_is_imported_for_it() -> None:
    code = (
        "import sys, phimu, phimu.cli; from phimu import InputError\n"
        "heavy = {'gymnasium', 'numpy', 'jax', 'phimu.environments'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_where_gymnasium_is_not_installed_the_error_is_pythons_own() -> None:
    code = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'gymnasium':\n"
        "            raise ModuleNotFoundError('No module named gymnasium', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "import phimu\n"
        "try:\n"
        "    import gymnasium\n"
        "except ModuleNotFoundError as error:\n"
        "    assert error.name == 'gymnasium'\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
