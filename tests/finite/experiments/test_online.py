"""Exploration measured on small locks; and the table and picture of its rows."""

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite.experiments.online import OnlineRow, compete, contenders, online
from phimu.finite.models import combination_lock
from phimu.reports.theory import figures, tables
from phimu.reports.theory.arrays import cube, regret_power

SAMPLES = (10, 20, 40, 80, 160, 320)


def made_up(power=0.5, times=1):
    """CTRL-UCB and Rep-UCB with regret n^power; uniform, which never gets there."""
    rows = []
    for name, models, factor in (("CTRL-UCB", "tables", times), ("Rep-UCB", "tables", 1)):
        rows += [
            OnlineRow(
                name, models, seed, n, 1 / n, (1 + seed / 10) * n**power, 40 * factor + 10 * seed
            )
            for seed in range(3)
            for n in SAMPLES
        ]
    return rows + [
        OnlineRow("uniform", "tables", seed, 10 * n, 0.9, n, 0)
        for seed in range(3)
        for n in SAMPLES
    ]


def curve(rows, algorithm, field):
    return cube(rows, field, "seed", "samples", algorithm=algorithm)


def found(rows, algorithm):
    return cube(rows, "found", "seed", algorithm=algorithm)[1]


def test_table_has_the_numbers_of_the_rows():
    text = tables.online(made_up())
    half = "0.50 [0.50, 0.50]"
    assert f"| CTRL-UCB | 3 of 3 | 50 | 40 | 60 | 320 | {half} | {half} |" in text
    assert "| uniform | 0 of 3 |  |  |  | 3,200 | 1.00 [1.00, 1.00] |" in text
    linear = tables.online(made_up(power=1.0, times=2))
    assert "| CTRL-UCB | 3 of 3 | 90 | 80 | 100 | 320 | 1.00 [1.00, 1.00] |" in linear
    assert "| Rep-UCB | 3 of 3 | 50 | 40 | 60 | 320 | 1.00 [1.00, 1.00] |" in linear


def test_a_failure_is_in_the_table():
    rows = [row._replace(found=0) if row.seed == 1 else row for row in made_up()]
    assert "| CTRL-UCB | 2 of 3 | 50 | 40 | 60 | 320 |" in tables.online(rows)


def test_rows_are_taken_apart_by_algorithm_and_seed():
    samples, values = curve(made_up(), "CTRL-UCB", "regret")
    np.testing.assert_array_equal(samples, SAMPLES)
    np.testing.assert_allclose(values[2], 1.2 * np.sqrt(SAMPLES))
    np.testing.assert_array_equal(found(made_up(), "CTRL-UCB"), [40, 50, 60])
    assert regret_power(made_up(0.3), "CTRL-UCB", 10).value == pytest.approx(0.3)


def test_picture_has_a_line_for_each_algorithm():
    left, middle, right = figures.online(made_up()).axes
    assert len(left.lines) == 3 + 1  # and epsilon
    assert len(middle.lines) == len(right.lines) == 3


def test_ctrl_and_rep_open_a_small_lock_and_regret_is_counted():
    locks = [combination_lock(2, 3, 2, 0.95, decoy=0.1, seed=seed) for seed in range(3)]
    everyone = contenders(horizon=2, actions=3, plans=30, batch=20)
    for name in ("CTRL-UCB", "Rep-UCB"):
        rows = compete(name, everyone[name], locks, 0)
        assert (found(rows, name) > 0).all()
        samples, regret = curve(rows, name, "regret")
        suboptimality = curve(rows, name, "suboptimality")[1]
        np.testing.assert_allclose(suboptimality[:, -1], 0, atol=1e-9)
        assert samples[0] == 20
        assert samples[-1] == 600
        assert (regret[:, 0] > 0.5 * 20).all()  # the uniform policy's
        assert (np.diff(regret, axis=1) >= -1e-9).all()


@pytest.mark.slow
def test_combination_lock_of_ten_levels_and_ten_actions():
    rows = online(seeds=10, samples=30_000, horizon=10, actions=10, batch=100)
    ours, exact = found(rows, "CTRL-UCB"), found(rows, "Rep-UCB")
    assert ours.all()
    assert ours.mean() < 1.5 * exact.mean()
    for name in ("uniform", "epsilon-greedy"):
        assert not found(rows, name).any()
        assert max(row.samples for row in rows if row.algorithm == name) >= 10 * ours.max()
    assert regret_power(rows, "CTRL-UCB", 10).high < 1


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"seeds": 0}, "seeds"),
        ({"actions": 1}, "actions"),
        ({"batch": 1}, "batches"),
        ({"samples": 100}, "samples is 100"),
    ],
)
def test_impossible_settings_are_refused(settings, word):
    given = {"seeds": 2, "samples": 1_000, "horizon": 2, "actions": 2, "batch": 100} | settings
    with pytest.raises(InputError, match=word):
        online(**given)
