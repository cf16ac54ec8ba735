import json
import re
import sys
from pathlib import Path

import pytest

from phimu.cli import main
from phimu.errors import InputError
from phimu.reports.fill import MARKED, filled
from phimu.reports.rows import gather

sys.path.insert(0, str(Path(__file__).parent))
from written_runs import write_run

PROJECT = Path(__file__).parents[2]
CARTPOLE = "mbbl/CartPole-v0"


@pytest.mark.parametrize("name", ["README.md", "results/README.md"])
def test_the_tables_of_this_project_are_those_of_its_runs(name: str) -> None:
    file = PROJECT / name
    text = file.read_text()
    assert filled(file, gather([PROJECT / "results"])) == text, "run `make report`"
    # No other table there has a number that was written by hand: names and links are no numbers.
    others = re.sub(r"\[[^]]*\]\([^)]*\)|`[^`]*`", "", MARKED.sub("", text))
    assert not [line for line in others.splitlines() if re.match(r"\|.*\d", line)]


def marked(directory: Path, asked: str) -> Path:
    file = directory / "page.md"
    file.write_text(f"above\n<!-- table: {asked} -->\n| old |\n<!-- end -->\nbelow\n")
    return file


def lines(directory: Path, asked: str) -> list[str]:
    """What stands between the markers, for the runs in this directory."""
    text = filled(marked(directory, asked), gather([directory]))
    above, *inside, end, below = text.splitlines()
    assert (above, end, below) == ("above", "<!-- end -->", "below")
    assert inside[0] == f"<!-- table: {asked} -->"
    return inside[1:]


def test_a_table_is_ours_under_one_preset_beside_the_papers(tmp_path: Path) -> None:
    for seed, value in enumerate((50.0, 60.0)):
        write_run(tmp_path, CARTPOLE, "ctrl-ucb-m", [value], seed)
    write_run(tmp_path, CARTPOLE, "sac", [-1234.56])
    write_run(tmp_path, CARTPOLE, "sac", [99.0], changes={"discount": 0.9})
    write_run(tmp_path, "mbbl/AntET-v0", "sac", [88.0], chosen="paper-mujoco")
    head, _, *rows = lines(tmp_path, "table1 preset=small")
    agents = (
        "ctrl-ucb-m | ctrl-ucb-l | sac | ppo | trpo | me-trpo | pets-cem | pets-rs "
        "| deep-sf | spede"
    )
    assert head.startswith(f"| task | {agents} | the paper's CTRL-UCBM")
    assert rows[0] == (
        "| CartPole | 55.0 ± 7.1 (2 × 5K) | not run | -1,235 (1 × 5K) "
        "| not run | not run | not run | not run | not run | not run | not run "
        "| 199.4, 180.4, 199.4, 86.5, 47.3, 160.1, 195.5, 195.0, 194.5, 138.2 |"
    )
    assert rows[1] == ""
    assert rows[2].startswith("Not run: HalfCheetah, ")
    assert "Ant-ET" in rows[2]
    assert len(rows) == 3
    (ant,) = [row for row in lines(tmp_path, "table1") if row.startswith("| Ant-ET")]
    assert "| not run | not run | 88.0 (1 × 5K) |" in ant  # the study's own preset


def test_some_columns_of_a_table(tmp_path: Path) -> None:
    write_run(tmp_path, CARTPOLE, "ctrl-ucb-m", [50.0])
    write_run(tmp_path, CARTPOLE, "sac", [60.0])
    head, _, row, *_ = lines(tmp_path, "table1 preset=small columns=sac,ctrl-ucb-m")
    assert head == "| task | ctrl-ucb-m | sac | the paper's CTRL-UCBM (2-layer), SAC (3-layer) |"
    assert row == "| CartPole | 50.0 (1 × 5K) | 60.0 (1 × 5K) | 199.4, 199.4 |"
    with pytest.raises(InputError, match=r"columns=sac,td3: table1 has ctrl-ucb-l, "):
        lines(tmp_path, "table1 preset=small columns=sac,td3")


def test_the_score_of_the_data_is_that_of_the_very_file(tmp_path: Path) -> None:
    write_run(tmp_path, "hopper_medium", "ctrl-lcb", [48.0], offline=True, sha256="a" * 64)
    write_run(tmp_path, "halfcheetah_medium", "ctrl-lcb", [42.0], offline=True, sha256="b" * 64)
    sets = {"hopper_medium": {"sha256": "a" * 64, "score": 38.85}}
    (tmp_path / "sets.json").write_text(json.dumps({"sets": sets}))
    head, _, cheetah, hopper, *_ = lines(tmp_path, "table3 preset=small data=sets.json")
    assert head.startswith("| task | the data itself | ctrl-lcb |")
    assert hopper.startswith("| hopper\\_medium | 38.9 | 48.0 (1 × 5K) |")
    assert cheetah.startswith("| halfcheetah\\_medium | not recorded | 42.0 (1 × 5K) |")


def test_a_stand_in_for_the_studys_preset_gives_way_to_the_one_asked_for(tmp_path: Path) -> None:
    """cql has no paper-d4rl: there its column is of d4rl, and under small of small."""
    for chosen, value in (("small", 41.0), ("d4rl", 43.0)):
        write_run(tmp_path, "hopper_medium", "cql", [value], offline=True, chosen=chosen)
    for marker, value in (("table3 preset=small", "41.0"), ("table3", "43.0")):
        (row,) = [row for row in lines(tmp_path, marker) if row.startswith("| hopper")]
        assert row.count("(1 × 5K)") == 1
        assert f"| {value} (1 × 5K) |" in row


def test_the_maze_by_variant(tmp_path: Path) -> None:
    for changes, distance in (({}, 0.1), ({"loss": "binary"}, 0.2), ({"discount": 0.5}, 0.3)):
        options = {"random_start": True}
        run = write_run(
            tmp_path,
            "phimu/FourRooms-v0",
            "ctrl-ucb-l",
            [1.0],
            chosen="maze",
            changes=changes,
            options=options,
        )
        (run / "scores.json").write_text(json.dumps({"total_variation_free": distance}))
    _, _, *rows = lines(tmp_path, "maze")
    found = {row.split(" | ")[0]: row.split(" | ")[1] for row in rows}
    assert found == {
        "| linear ratio": "0.100",
        "| linear ratio, no bonus": "not scored",
        "| linear ratio, binary loss": "0.200",
        "| exponential ratio": "not scored",
        "| exponential ratio, binary loss": "not scored",
    }


def test_every_evaluation_of_a_study_or_a_task(tmp_path: Path) -> None:
    write_run(tmp_path, CARTPOLE, "sac", [1.0, 2.0])
    write_run(tmp_path, CARTPOLE, "sac", [3.0], seed=2)
    write_run(tmp_path, CARTPOLE, "sac", [4.0], changes={"critic_width": 512}, every=10_000)
    write_run(tmp_path, "Pendulum-v1", "sac", [-1000.4])
    head, _, *rows = lines(tmp_path, "evaluations study=table1")
    assert head == "| task | agent | evaluated every | seed 0 | seed 2 |"
    assert rows == [
        "| CartPole | sac (small) | 5K | 1.0, 2.0 | 3.0 |",
        "| CartPole | sac (small, critic\\_width=512) | 10K | 4.0 | not run |",
    ]
    _, _, *rows = lines(tmp_path, "evaluations task=Pendulum-v1")
    assert rows == ["| Pendulum-v1 | sac (small) | 5K | -1,000 |"]


@pytest.mark.parametrize(
    "asked", ["table9", "table1 colour=red", "maze preset=small", "evaluations seed=3", "table1 x"]
)
def test_what_cannot_be_asked_for_is_one_sentence(tmp_path: Path, asked: str) -> None:
    write_run(tmp_path, CARTPOLE, "sac", [1.0])
    with pytest.raises(InputError, match=r"page\.md asks for the table") as caught:
        lines(tmp_path, asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "no JSON", "{}", '{"sets": [1]}', '{"sets": {"a": 1}}'])
def test_scores_of_data_that_are_not_there_are_one_sentence(
    tmp_path: Path, content: str | None
) -> None:
    write_run(tmp_path, CARTPOLE, "sac", [1.0])
    if content is not None:
        (tmp_path / "sets.json").write_text(content)
    with pytest.raises(InputError, match=r"sets\.json does not hold scores"):
        lines(tmp_path, "table3 data=sets.json")


def test_a_lost_end_swallows_no_text(tmp_path: Path) -> None:
    write_run(tmp_path, CARTPOLE, "sac", [1.0])
    file = tmp_path / "page.md"
    for text in (
        "<!-- table: maze -->\nkept\n<!-- table: maze -->\n<!-- end -->\n",
        "<!-- table: maze --> kept\n<!-- end -->\nkept\n<!-- end -->\n",
    ):
        file.write_text(text)
        with pytest.raises(InputError, match="<!-- end --> below it"):
            filled(file, gather([tmp_path]))


def test_the_command_fills_all_files_or_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "report.html"
    write_run(runs, CARTPOLE, "sac", [1.0])
    file = marked(tmp_path, "table1 preset=small")
    before = file.read_text()
    command = ["report", str(runs), "-o", str(out), "--fill", str(file)]
    assert main([*command, str(tmp_path / "absent.md")]) == 2
    assert file.read_text() == before
    assert "There is no" in capsys.readouterr().err
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [str(out), str(file)]
    once = file.read_text()
    assert "1.0 (1 × 5K)" in once
    assert main(command) == 0
    assert file.read_text() == once


def test_the_page_of_this_project_is_built(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(PROJECT / "results"), "-o", str(out)]) == 0
    assert "199.9 ± 0.1" in out.read_text()
