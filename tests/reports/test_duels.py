"""Who is ahead on equal terms: which runs meet, at which step, and what is said of it."""

import sys
from pathlib import Path

import numpy as np
import pytest

from phimu.reports.duels import duel_grid, duels, sentences
from phimu.reports.fill import filled
from phimu.reports.page import page
from phimu.reports.rows import gather

sys.path.insert(0, str(Path(__file__).parent))
from written_runs import write_run

CHEETAH, POLE = "mbbl/HalfCheetah-v0", "mbbl/IPendulum-v0"


def met(root: Path):
    return duels(gather([root]))


def test_terms_must_be_equal(tmp_path: Path) -> None:
    write_run(tmp_path, CHEETAH, "ctrl-ucb-m", [1.0, 2.0])
    write_run(tmp_path, CHEETAH, "sac", [1.0, 1.0], changes={"batch_size": 64})
    write_run(tmp_path, POLE, "sac", [1.0, 1.0])
    with_options = {"options": {"action_repeat": 2}}
    write_run(tmp_path, "dmc/walker-run-v0", "sac", [1.0, 1.0], **with_options)
    write_run(tmp_path, "dmc/walker-run-v0", "ctrl-ucb-m", [1.0, 1.0])
    assert met(tmp_path) == []
    write_run(tmp_path, CHEETAH, "sac", [1.0, 1.0])
    (duel,) = met(tmp_path)
    assert (duel.title, duel.agents, duel.terms) == ("HalfCheetah", ("ctrl-ucb-m", "sac"), "small")
    assert duel.paper is not None
    assert duel.paper[0] > duel.paper[1]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((10.0, 11.0, 12.0), (1.0, 2.0, 3.0), "ahead"),
        ((1.0, 2.0, 3.0), (10.0, 11.0, 12.0), "behind"),
        ((1.0, 2.0, 12.0), (3.0, 2.0, 4.0), "level"),
        ((10.0, 11.0), (1.0, 2.0, 3.0), "too few seeds"),
    ],
)
def test_verdicts(tmp_path: Path, ours, theirs, verdict) -> None:
    for agent, scores in (("ctrl-ucb-m", ours), ("sac", theirs)):
        for seed, score in enumerate(scores):
            write_run(tmp_path, CHEETAH, agent, [0.0, score, score], seed)
    (duel,) = met(tmp_path)
    assert duel.verdict == verdict
    assert duel.difference.value == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert duel.difference.low <= duel.difference.value <= duel.difference.high


def test_scores_are_of_the_same_step(tmp_path: Path) -> None:
    """15K steps against 20K and 10K: at 15K, where the run that stopped at 10K has no score."""
    write_run(tmp_path, CHEETAH, "ctrl-ucb-m", [1.0, 2.0, 4.0])
    write_run(tmp_path, CHEETAH, "sac", [0.0, 1.0, 2.0, 100.0], 0)
    write_run(tmp_path, CHEETAH, "sac", [50.0, 50.0], 1)
    (duel,) = met(tmp_path)
    assert duel.steps == 15_000
    np.testing.assert_allclose(duel.scores[0], [3.0])
    np.testing.assert_allclose(duel.scores[1], [1.5])


def test_what_is_said(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for seed in range(3):
        write_run(runs, CHEETAH, "ctrl-ucb-m", [0.0, 10.0 + seed], seed)
        write_run(runs, CHEETAH, "sac", [0.0, 1.0 + seed], seed)
    write_run(runs, POLE, "ctrl-ucb-m", [0.0, 1.0])
    write_run(runs, POLE, "sac", [0.0, 2.0])
    found = met(runs)
    (sentence,) = sentences(found)
    assert "2 tasks: ahead on 1 (HalfCheetah); with fewer than 3 seeds" in sentence
    assert "behind on I-Pendulum" in sentence
    assert "with probability 0.50 [0.50, 0.50]" in sentence
    assert "| HalfCheetah | ctrl-ucb-m / sac, small | 10K | 5.5 (3) | 1.0 (3) | 4.5 [" in duel_grid(
        found
    )
    text = page(gather([runs]), tmp_path / "report.html")
    assert text.index('id="said"') < text.index('id="filters"')
    assert text.count("<circle") == 8
    file = tmp_path / "README.md"
    file.write_text("<!-- table: said -->\n<!-- end -->\n<!-- table: duels -->\n<!-- end -->\n")
    assert "- ctrl-ucb-m against sac, preset small" in filled(file, gather([runs]))
