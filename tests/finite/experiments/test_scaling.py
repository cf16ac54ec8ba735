"""Samples against sizes, measured on a small lock; and that the words follow the numbers."""

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite.experiments.scaling import EXPONENTS, Row, of_locks, rows_of, scaling
from phimu.reports.theory.scaling import figure, power, reading, taken


def made_up(exponent=1.5):
    return [
        Row(varied, size, seed, round((100 + seed) * size**exponent))
        for varied in EXPONENTS
        for size in (2.0, 4.0, 8.0)
        for seed in range(3)
    ]


def test_words_follow_the_numbers():
    said = reading(made_up())
    assert said.count("1.50 (95 % interval 1.50 to 1.50; from 2 to 8 the mean") == 5
    assert "exceeded" not in said
    assert reading(made_up(3.0)).count("which is exceeded") == 3  # of A and twice of epsilon


def test_sizes_that_a_seed_did_not_reach_are_left_out():
    rows = [
        row._replace(samples=0) if (row.varied, row.size, row.seed) == ("A", 8.0, 1) else row
        for row in made_up()
    ]
    sizes, samples = taken(rows, "A")
    np.testing.assert_array_equal(sizes, [2, 4])
    assert samples.shape == (3, 2)
    assert "1 sizes were not reached by every seed" in reading(rows)
    assert power(rows, "A")[0] == pytest.approx(1.5, abs=0.01)
    assert len(figure(rows).axes) == 5


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
