"""One change at a time: which runs count, at which step, and how far each is from the first."""

import sys
from pathlib import Path

import pytest

from phimu.errors import InputError
from phimu.reports.fill import filled
from phimu.reports.rows import gather
from phimu.studies.tables import STUDIES

sys.path.insert(0, str(Path(__file__).parent))
from written_runs import write_run

CHEETAH = "mbbl/HalfCheetah-v0"


def rows(root: Path, at: int = 15_000) -> dict[str, list[str]]:
    """The cells of each row, by the name of the variant."""
    file = root / "page.md"
    marker = f"<!-- table: ablation study=recipe task={CHEETAH} at={at} -->"
    file.write_text(f"{marker}\n<!-- end -->\n")
    lines = filled(file, gather([root])).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return {name: rest for name, *rest in cells}


def test_each_variant_beside_the_first(tmp_path: Path) -> None:
    for seed, score in enumerate((10.0, 12.0, 14.0)):
        write_run(tmp_path, CHEETAH, "ctrl-ucb-m", [0.0, score, score], seed)
        blurred = {"levels": (3.0,)}
        write_run(tmp_path, CHEETAH, "ctrl-ucb-m", [0.0, 1.0, 3.0], seed, changes=blurred)
    write_run(tmp_path, CHEETAH, "sac", [0.0, 7.0, 9.0])
    found = rows(tmp_path)
    assert list(found)[2:] == [variant.label for variant in STUDIES["recipe"].variants]
    assert found["ctrl-ucb-m"] == ["3", "12.0 [10.0, 14.0]", ""]
    assert found["level 3"] == ["3", "2.0 [2.0, 2.0]", "-10.0 [-12.0, -8.0]"]
    assert found["sac"] == ["1", "8.0", "-4.0"]  # of one seed there is no interval
    assert found["plain contrast"] == ["0", "not run", ""]


def test_longer_runs_count_at_that_step_and_shorter_ones_do_not(tmp_path: Path) -> None:
    write_run(tmp_path, CHEETAH, "ctrl-ucb-m", [0.0, 1.0, 3.0, 100.0, 100.0])
    write_run(tmp_path, CHEETAH, "ctrl-ucb-m", [50.0, 50.0], 1)
    assert rows(tmp_path)["ctrl-ucb-m"] == ["1", "2.0", ""]


@pytest.mark.parametrize(
    "asked", ["study=recipe", "study=new task=x at=5", f"study=recipe task={CHEETAH} at=many"]
)
def test_what_is_not_there_is_one_sentence(tmp_path: Path, asked: str) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"<!-- table: ablation {asked} -->\n<!-- end -->\n")
    with pytest.raises(InputError, match=r"name a study, one of its tasks and a step"):
        filled(file, [])
