"""The consistency lemma, measured; and the table and picture of its rows."""

import numpy as np
import pytest

from phimu.errors import InputError
from phimu.finite.experiments.consistency import CLASSES, CONTRASTS, ConsistencyRow, consistency
from phimu.reports.theory import figures, tables
from phimu.reports.theory.arrays import cube


def made_up(binary_floor, seeds=3, sizes=(1, 10, 100)):
    return [
        ConsistencyRow(name, loss, seed, size, floor + (1 + seed) / (50 * size), 0.1, 0.08, 1e-7)
        for name in CLASSES
        for loss in CONTRASTS
        for floor in [binary_floor if (name, loss) == ("exponential", "binary") else 0.0]
        for seed in range(seeds)
        for size in sizes
    ]


def to_likelihood(rows, models, loss):
    return cube(rows, "to_likelihood", "seed", "negatives", models=models, loss=loss)[1]


@pytest.mark.slow
def test_ranking_gets_there_and_binary_only_where_z_is_constant():
    rows = consistency(seeds=10, transitions=1_000, negatives=(1, 8, 64, 512, 4_096))
    assert max(row.gradient for row in rows) <= 1e-6
    for name in CLASSES:
        far = to_likelihood(rows, name, "ranking")
        assert far.shape == (10, 5)
        assert (np.diff(far, axis=1) < 0).all()
        assert far[:, -1].max() < 0.01
    for name in CLASSES[:2]:
        assert to_likelihood(rows, name, "binary")[:, -1].max() < 0.01
    assert to_likelihood(rows, "exponential", "binary")[:, -1].min() > 0.03
    same = [to_likelihood(rows, name, "ranking") for name in CLASSES[1:]]
    np.testing.assert_allclose(*same, atol=1e-5)  # dividing by Z changes no conditional model


def lines_of(text):
    """The cells of a table by its first two columns and its heads."""
    heads, _, *lines = [row.strip("| ").split(" | ") for row in text.splitlines() if "|" in row]
    return {tuple(line[:2]): dict(zip(heads, line, strict=True)) for line in lines}


def test_table_has_the_numbers_of_the_rows():
    found = lines_of(tables.consistency(made_up(binary_floor=0.2)))
    assert len(found) == 6
    line = found["linear", "ranking"]
    assert [line[f"K = {size}"] for size in (1, 10, 100)] == ["0.04", "0.004", "0.0004"]
    assert line["falls with every K"] == "3 of 3"
    assert line["likelihood to truth"] == "0.08"
    assert line["gradient"] == "1e-07"
    failing = found["exponential", "binary"]
    assert (failing["smallest"], failing["largest"]) == ("0.2", "0.201")
    assert all(
        found[key]["largest"] == "0.0006" for key in set(found) - {("exponential", "binary")}
    )


def test_table_shows_distances_that_rise():
    risen = [row._replace(to_likelihood=1 - row.to_likelihood) for row in made_up(0.0)]
    assert lines_of(tables.consistency(risen))["linear", "binary"]["falls with every K"] == "0 of 3"


def test_rows_are_taken_apart_by_class_loss_seed_and_size():
    values = to_likelihood(made_up(0.2), "exponential", "binary")
    assert values.shape == (3, 3)
    assert values[2, 1] == pytest.approx(0.2 + 3 / 500)


def test_picture_has_a_panel_for_each_class():
    drawn = figures.consistency(made_up(0.2))
    assert [len(axes.lines) for axes in drawn.axes] == [2 * (3 + 1) + 1] * 3


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ((0, 10, (1,)), "seeds"),
        ((1, 0, (1,)), "transitions"),
        ((1, 10, ()), "negatives"),
        ((1, 10, (4, 2)), "negatives"),
        ((1, 10, (0, 2)), "negatives"),
    ],
)
def test_impossible_settings_are_refused(settings, word):
    with pytest.raises(InputError, match=word):
        consistency(*settings)
