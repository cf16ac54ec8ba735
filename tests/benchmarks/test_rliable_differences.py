"""Our statistics are rliable's, where it is installed."""

import pytest

import rliable_differences
from phimu.reports import statistics
from phimu.runs.files import cache_directory


@pytest.mark.slow  # rliable alone takes seconds to import
def test_equal_to_rliable() -> None:
    venv = cache_directory() / rliable_differences.VENV
    if not (venv / "installed.txt").exists():
        pytest.skip("rliable is not there: python benchmarks/rliable_differences.py installs it")
    found = rliable_differences.child(venv, statistics.__file__, matrices=3)
    assert len(found["largest difference"]) == 6
    assert max(found["largest difference"].values()) < 1e-6
