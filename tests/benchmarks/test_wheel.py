"""What is published as the wheel is phimu, without the comparisons."""

from pathlib import Path

import pytest


def test_the_wheel_has_no_benchmarks() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    builder = wheel.WheelBuilder(str(Path(__file__).parents[2]))
    names = [file.distribution_path for file in builder.recurse_included_files()]
    assert "phimu/speed/updates.py" in names
    assert all(name.startswith("phimu/") for name in names)
    assert not [name for name in names if "peer" in name or "their" in name]
