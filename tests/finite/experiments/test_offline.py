"""Planning from logged data, measured; and the tables and picture of its rows."""

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite.experiments.offline import BOUND, PLANS, OfflineRow, of_cliff, of_coins, offline
from phimu.reports.theory import figures, tables
from phimu.reports.theory.arrays import cube, power, suboptimalities, worst

GAPS, SIZES, SHARES = (0.1, 0.2), (100, 400, 1_600), (0.9, 0.3, 0.1)


def made_up(worse=0.2):
    """n^-0.5 for the larger gap, less for the smaller; C*^0.5; the careful lose less."""
    rows = []
    for plan in (*PLANS, BOUND):
        for seed in range(3):
            rows += [
                OfflineRow("size", plan, gap, 1 / 3, seed, n, 12.0, gap / n**0.5)
                for gap in GAPS
                for n in SIZES
            ]
            rows += [
                OfflineRow("coverage", plan, gap, share, seed, 400, 4 / share, gap * share**-0.5)
                for gap in GAPS
                for share in SHARES
            ]
            lost = worse if plan == "no penalty" else 0.1
            rows.append(OfflineRow("missing", plan, 0.0, 0.0, seed, 400, np.inf, lost))
    return rows


def missing(rows, plan):
    return cube(rows, "suboptimality", "seed", part="missing", plan=plan)[1]


def test_rows_are_taken_apart_by_what_is_varied():
    at, values = suboptimalities(made_up(), "size", "CTRL-LCB")
    np.testing.assert_array_equal(at, SIZES)
    assert values.shape == (3, 2, 3)
    np.testing.assert_allclose(worst(values), 0.2 / np.sqrt(SIZES))
    at, values = suboptimalities(made_up(), "coverage", "no penalty")
    np.testing.assert_allclose(at, [4 / 0.9, 4 / 0.3, 40])
    np.testing.assert_allclose(worst(values), 0.2 * np.sqrt(at) / 2)
    at, values = suboptimalities(made_up(), "coverage", BOUND)
    assert power(at, values, worst).value == pytest.approx(0.5)


def test_tables_have_the_numbers_of_the_rows():
    found = tables.offline(made_up())
    assert "| plan | n = 100 | n = 400 | n = 1,600 | power |" in found
    assert "| CTRL-LCB | 0.02 | 0.01 | 0.005 | -0.50 [-0.50, -0.50] |" in found
    assert "| plan | C* = 4.44 | C* = 13.3 | C* = 40 | power |" in found
    assert "| bound | 0.211 | 0.365 | 0.632 | 0.50 [0.50, 0.50] |" in found
    assert "| CTRL-LCB | 0.1 | 0 of 3 |" in found
    assert "| no penalty | 0.2 | 3 of 3 |" in found
    assert "| no penalty | 0.05 | 0 of 3 |" in tables.offline(made_up(worse=0.05))


def test_no_power_is_fitted_to_nothing():
    rows = [row._replace(suboptimality=0.0) for row in made_up()]
    assert "| CTRL-LCB | 0 | 0 | 0 | nan [nan, nan] |" in tables.offline(rows)


def test_picture_has_three_panels():
    left, middle, right = figures.offline(made_up()).axes
    assert len(left.lines) == 4 + 1  # and one of the two gaps
    assert len(middle.lines) == 4
    assert len(right.lines) == 3 + 3


def test_coins_need_data_and_coverage():
    rows = of_coins("size", 1, 0.25, 1 / 3, 2, (40, 2_000))
    ours, trusting, clone, bound = (
        suboptimalities(rows, "size", plan)[1].mean(axis=(0, 1)) for plan in (*PLANS, BOUND)
    )
    for plan in (ours, trusting):
        assert plan[1] < 0.1 * plan[0]
    np.testing.assert_allclose(clone, 0.25 * 2 / 3 * 0.9, atol=0.03)  # the uniform behaviour's
    assert bound[1] < 0.3 * bound[0]
    assert (ours < bound).all()
    assert rows[0].coverage == pytest.approx(12, rel=0.15)  # S A, where all pairs are equally often


def test_penalty_helps_where_the_needed_action_is_missing():
    rows = of_cliff(10, 400)
    assert (missing(rows, "CTRL-LCB") < missing(rows, "no penalty") - 0.2).all()


@pytest.mark.slow
def test_rate_and_coverage():
    rows = offline(10, (64, 256, 1_024, 4_096, 16_384), 1_024)
    found, low, high = power(*suboptimalities(rows, "size", "CTRL-LCB"), worst)
    assert -0.65 < low < found < high < -0.35
    assert (missing(rows, "CTRL-LCB") < missing(rows, "no penalty")).all()


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"seeds": 0}, "seeds"), ({"samples": (64,)}, "samples"), ({"samples": (64, 32)}, "rising")],
)
def test_impossible_settings_are_refused(settings, word):
    given = {"seeds": 2, "samples": (64, 256), "coverage_samples": 64} | settings
    with pytest.raises(InputError, match=word):
        offline(**given)
