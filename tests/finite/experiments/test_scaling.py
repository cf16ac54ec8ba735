"""Samples against sizes, measured on a small lock; and the table and picture of its rows."""

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite.experiments.scaling import EXPONENTS, ScalingRow, of_locks, rows_of, scaling
from phimu.reports.theory import figures, tables
from phimu.reports.theory.arrays import power, reached


def made_up(exponent=1.5):
    return [
        ScalingRow(varied, size, seed, round((100 + seed) * size**exponent))
        for varied in EXPONENTS
        for size in (2.0, 4.0, 8.0)
        for seed in range(3)
    ]


def test_table_has_the_numbers_of_the_rows():
    found = tables.scaling(made_up())
    assert "| d | 3 of 3 | 2 to 8 | 286 to 2,285 | 1.50 [1.50, 1.50] | 4 |" in found
    assert found.count("| 2 to 8 | 286 to 2,285 | 1.50 [1.50, 1.50] |") == 5
    assert "| 3.00 [3.00, 3.00] | 2 |" in tables.scaling(made_up(3.0))


def test_sizes_that_a_seed_did_not_reach_are_left_out():
    rows = [
        row._replace(samples=0) if (row.varied, row.size, row.seed) == ("A", 8.0, 1) else row
        for row in made_up()
    ]
    sizes, samples = reached(rows, "A")
    np.testing.assert_array_equal(sizes, [2, 4])
    assert samples.shape == (3, 2)
    assert "| A | 2 of 3 | 2 to 4 |" in tables.scaling(rows)
    assert power(sizes, samples).value == pytest.approx(1.5, abs=0.01)
    assert len(figures.scaling(rows).axes) == 5


def test_sizes_that_nobody_reached_have_no_power():
    rows = [row._replace(samples=0) if row.varied == "d" else row for row in made_up()]
    assert "| d | 0 of 3 |  |  | nan [nan, nan] | 4 |" in tables.scaling(rows)
    assert figures.scaling(rows).axes[0].get_title() == "nan [nan, nan]; theorem 4"


def test_samples_are_those_until_the_average_is_small():
    averages = np.array([[0.9, 0.3, 0.1], [0.9, 0.8, 0.7]])
    rows = rows_of("A", 4, averages, batch=50, epsilon=0.3)
    assert [row.samples for row in rows] == [100, 0]


def test_a_lock_is_learned():
    averages = of_locks(2, 2, 10, seeds=3, plans=40, batch=20)
    assert averages.shape == (3, 40)
    assert (averages[:, 0] > 0.5).all()
    assert (averages[:, -1] < 0.3).all()


@pytest.mark.parametrize(
    ("settings", "word"), [({"seeds": 0}, "seeds"), ({"samples": 10}, "samples is 10")]
)
def test_impossible_settings_are_refused(settings, word):
    with pytest.raises(InputError, match=word):
        scaling(**({"seeds": 2, "samples": 1_000, "batch": 50} | settings))
