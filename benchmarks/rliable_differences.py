"""Our statistics against rliable's on random scores: `python benchmarks/rliable_differences.py`.

rliable is installed into a virtual environment in your cache directory when this is first run,
which loads `phimu/reports/statistics.py` beside it; `--venv DIR` takes one that has it already.
`--json FILE` also writes the numbers: the largest difference of each statistic, and of each end of
its interval from the same samples.
"""

import argparse
import json
import platform
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np

REQUIREMENTS = (("rliable==1.2.0", "pandas<3"),)  # it does not import beside pandas 3
VENV = "statistics"
REPETITIONS = 200
THRESHOLDS = np.linspace(-1.0, 2.0, 13)


def differences(ours, matrices):
    """The largest of each kind over random matrices, some with ties."""
    from rliable import library, metrics

    found = dict.fromkeys(("iqm", "profile", "improvement"), 0.0)
    found |= {f"{name} interval": 0.0 for name in found}

    def note(name, mine, theirs):
        found[name] = max(found[name], float(np.abs(mine - theirs).max()))

    def compare(name, statistic, their_statistic, *matrices):
        """The statistic, then its interval from the samples that rliable drew."""
        note(name, statistic(*map(columns, matrices)), their_statistic(*matrices))
        scores = matrices[0] if len(matrices) == 1 else list(matrices)
        np.random.seed(0)  # noqa: NPY002 (what rliable draws from, whatever random_state it is given)
        _, theirs = library.get_interval_estimates(
            {"x": scores}, lambda *x: np.atleast_1d(their_statistic(*x)), reps=REPETITIONS
        )
        np.random.seed(0)  # noqa: NPY002
        drawn = [[sample(m) for m in matrices] for _ in range(REPETITIONS)]
        stacked = [columns(np.stack([each[i] for each in drawn])) for i in range(len(matrices))]
        low, high = ours.interval(statistic(*stacked))
        note(f"{name} interval", np.array([np.atleast_1d(low), np.atleast_1d(high)]), theirs["x"])

    rng = np.random.default_rng(0)
    for index in range(matrices):
        runs, tasks = rng.integers(2, 9), rng.integers(1, 8)
        x = rng.normal(size=(runs, tasks))
        y = rng.normal(0.3, size=(rng.integers(2, 9), tasks))
        if index % 2:
            x, y = np.round(x), np.round(y)
        compare("iqm", ours.interquartile_mean, metrics.aggregate_iqm, x)
        compare(
            "profile",
            lambda scores: ours.performance_profile(scores, THRESHOLDS),
            lambda scores: library.score_distributions(scores, THRESHOLDS),
            x,
        )
        improvement = metrics.probability_of_improvement
        compare("improvement", ours.probability_of_improvement, improvement, x, y)
    return found


def columns(matrix):
    """[..., runs, tasks] as a list of [..., runs]."""
    return [matrix[..., task] for task in range(matrix.shape[-1])]


def sample(matrix):
    """What rliable draws next."""
    chosen = np.random.choice(len(matrix), matrix.shape, replace=True)  # noqa: NPY002
    return np.take_along_axis(matrix, chosen, axis=0)


def child(venv, path, matrices):
    """The differences, found by the Python of an environment that has rliable."""
    command = [str(venv / "bin" / "python"), "-I", __file__, "--ours", str(path)]
    command += ["--matrices", str(matrices)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers into this file")
    parser.add_argument("--matrices", type=int, default=20, help="how many")
    parser.add_argument("--venv", type=Path, help="a virtual environment that has rliable already")
    parser.add_argument("--ours", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ours is not None:
        ours = SimpleNamespace(**runpy.run_path(str(asked.ours)))  # there is no phimu to import
        versions = {name: metadata.version(name) for name in ("rliable", "numpy", "scipy", "arch")}
        versions["python"] = platform.python_version()
        found = {"matrices": asked.matrices, "repetitions": REPETITIONS, "versions": versions}
        found["largest difference"] = differences(ours, asked.matrices)
        print(json.dumps(found))
        return
    from phimu.reports import statistics
    from venvs import own_venv

    venv = asked.venv or own_venv(print, VENV, REQUIREMENTS)
    text = json.dumps(child(venv, statistics.__file__, asked.matrices), indent=2)
    print(text)
    if asked.json is not None:
        asked.json.write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
