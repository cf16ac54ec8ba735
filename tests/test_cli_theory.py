"""`phimu theory`."""

import csv
import json
from functools import partial

import pytest
from matplotlib.figure import Figure

from phimu.cli import main, theory
from phimu.finite.experiments.consistency import ConsistencyRow
from phimu.finite.experiments.scaling import EXPONENTS, ScalingRow
from phimu.reports.theory import figures, tables


def test_help_names_the_subcommands(capsys):
    assert main(["theory"]) == 0
    first = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert set(theory.SUBCOMMANDS) <= first  # each on its own line, apart from what it does


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["consistancy"], "Did you mean consistency?"),
        (["consistency", "--seeds", "0"], "seeds is 0"),
        (["consistency", "--negatives", "8", "1"], "negatives"),
        (["online", "--samples", "100"], "samples is 100"),
        (["offline", "--samples", "64"], "samples"),
        (["scaling", "--seeds", "0"], "seeds is 0"),
    ],
)
def test_bad_input_is_one_sentence(arguments, word, capsys):
    assert main(["theory", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert word in said


def test_what_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "consistency", lambda rows: Figure())
    monkeypatch.setattr(tables, "consistency", lambda rows: "It falls.\n")
    rows = [ConsistencyRow("linear", "ranking", 0, 8, 0.123456789, 0.5, 0.25, 1e-7)]
    assert theory.write(tmp_path / "new", "consistency", rows) == "It falls.\n"
    written = {path.suffix: path for path in (tmp_path / "new").iterdir()}
    assert set(written) == {".png", ".csv", ".md", ".json"}
    found = list(csv.DictReader(written[".csv"].open()))
    assert found[0]["to_likelihood"] == "0.123457"
    assert found[0]["negatives"] == "8"
    assert written[".md"].read_text() == "It falls.\n"
    assert {"command", "revision", "versions"} <= set(json.loads(written[".json"].read_text()))


def test_a_command_writes_what_it_measured_and_prints_its_table(tmp_path, monkeypatch, capsys):
    rows = [
        ScalingRow(varied, size, seed, 100 * int(size))
        for varied in EXPONENTS
        for size in (2.0, 4.0)
        for seed in range(2)
    ]

    def scaling(seeds: int = 10):
        """Measure nothing.

        Args:
            seeds: how many.
        """
        assert seeds == 3
        return rows

    monkeypatch.setattr(theory, "scaling", partial(theory._run, scaling))
    assert main(["theory", "scaling", "--seeds", "3", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "scaling.md").read_text() == capsys.readouterr().out == tables.scaling(rows)
    assert (tmp_path / "scaling.png").stat().st_size > 0


@pytest.mark.parametrize("name", theory.SUBCOMMANDS)
def test_every_command_has_its_table_and_its_picture(name):
    assert callable(getattr(tables, name))
    assert callable(getattr(figures, name))
