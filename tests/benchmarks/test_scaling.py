"""How the time of an update grows with its sizes."""

import pytest

import scaling


def test_the_exponent_is_that_of_the_upper_half():
    sizes = (1, 2, 4, 8, 16)
    times = [100.0, 100.0, *(3 * size**1.5 for size in sizes[2:])]
    assert scaling.exponent(sizes, times) == pytest.approx(1.5)
    assert scaling.exponent((10, 100, 1_000), (9.0, 2.0, 200.0)) == pytest.approx(2.0)


def test_scaling_times_every_size_and_is_drawn(monkeypatch, tmp_path):
    monkeypatch.setitem(scaling.SIZES, "buffer_size", (50, 100, 200))
    curve = scaling.scaling("buffer_size", rounds=1)
    assert len(curve.milliseconds) == 3
    assert curve.exponent == scaling.exponent(curve.sizes, curve.milliseconds)
    scaling.scaling_curves(tmp_path / "scaling.png", [curve, curve])
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
