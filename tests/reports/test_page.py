import base64
import csv
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from phimu.cli import main
from phimu.reports.comparison import tables
from phimu.reports.markdown import markdown, write_text
from phimu.reports.numbers import Footnotes, number, span, thousands
from phimu.reports.page import page
from phimu.reports.page.markup import Html, join, tag
from phimu.reports.rows import gather
from phimu.studies.tables import STUDIES

sys.path.insert(0, str(Path(__file__).parent))
import browser
from written_runs import write_run

DIALOG = "Page.javascriptDialogOpening"
HOSTILE = "<script>alert(1)</script>\"'&|*"


class Elements(HTMLParser):
    """The elements of a page, and the attributes of each."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def attributes(self, name: str) -> set[str]:
        return {found[name] or "" for _, found in self.found if name in found}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Known scores: CTRL-UCBM above the paper on HalfCheetah, SAC below it, CartPole near it."""
    root = tmp_path / "runs"
    for seed, value in enumerate((5_200.0, 5_300.0, 5_400.0)):
        write_run(root, "mbbl/HalfCheetah-v0", "ctrl-ucb-m", [1_000.0, value, value], seed)
    write_run(root, "mbbl/HalfCheetah-v0", "sac", [500.0, 3_000.0], asked=200_000)
    noted = write_run(root, "mbbl/CartPole-v0", "sac", [150.0, 199.0, 199.6])
    (noted / "note.txt").write_text("After a fall of *the* pole.")
    maze = write_run(
        root,
        "phimu/FourRooms-v0",
        "ctrl-ucb-l",
        [1.0],
        chosen="maze",
        options={"random_start": True},
    )
    scores = {"total_variation_free": 0.125, "mean_abs_log_z": 0.07, "success_rate": 0.99}
    (maze / "scores.json").write_text(json.dumps(scores))
    (maze / "figures").mkdir()
    (maze / "figures" / "heatmap.png").write_bytes(b"a picture")
    (maze / "film.mp4").write_bytes(b"a film")
    return root


def test_markup_escapes_all_but_markup() -> None:
    found = tag("p", "<b>", tag("i", 3), None, ["&", Html("<br>")], class_='"x"', hidden=False)
    assert found == '<p class="&quot;x&quot;">&lt;b&gt;<i>3</i>&amp;<br></p>'
    assert tag("img", src="a", data_task="t", open=True) == '<img src="a" data-task="t" open>'
    assert join(("a", None, 1.5)) == "a1.5"


def test_numbers_are_written_alike_everywhere() -> None:
    assert number(-1234.56) == "\N{MINUS SIGN}1,234.6"
    assert number(-0.04) == "0.0"
    assert [thousands(n) for n in (0, 999, 20_000, 1_000_000)] == ["0", "999", "20K", "1M"]
    assert span(5_000, 10_000) == "5K to 10K"
    notes = Footnotes()
    assert (notes.marks(["a", "b"]), notes.marks(["b"]), notes.notes) == ([1, 2], [2], ["a", "b"])


def test_the_page_has_what_was_run_and_needs_nothing_else(runs: Path, tmp_path: Path) -> None:
    text = page(gather([runs]), tmp_path / "report.html")
    elements = Elements(text)
    pictures = [found for name, found in elements.found if name == "img"]
    assert len(pictures) == 1  # in the maze's section, not once more in the run's
    assert not elements.attributes("src") - {
        f"data:{kind};base64,{base64.b64encode(content).decode()}"
        for kind, content in (("image/png", b"a picture"), ("video/mp4", b"a film"))
    }
    assert all(link.startswith("#") for link in elements.attributes("href"))
    anchors = elements.attributes("id")
    assert {link[1:] for link in elements.attributes("href")} <= anchors
    for word in ("url(", "@import", "http://", "https://"):
        assert word not in text.replace("http://www.w3.org/2000/svg", "")
    plain = re.sub(r"<[^>]+>", " ", text)
    for said in ("5,300.0 ± 100.0", "4,888.5 ± 205.8", "6 runs of 3 agents on 3 tasks", "not run"):
        assert said in plain
    assert "hours: 6.0" in plain
    assert plain.count("After a fall of *the* pole.") == 2  # under the table, and at the run
    assert "Settings that are not the same in all of ours (1)" in plain  # critic
    assert "phimu train mbbl/HalfCheetah-v0 --agent sac --preset small" in plain
    for misprint in ("843.6", "4.9 ± 4.0", "76.1 ± 8.8"):
        assert f"MBBL&#x27;s table has {misprint}" in text
    for study in ("table1", "table2", "table3", "ablation-bonus", "maze", "gymnasium", "d4rl-v2"):
        assert study in anchors


def test_the_page_begins_with_the_users_own_runs(tmp_path: Path) -> None:
    """What was published and nothing of it run comes last, folded."""
    write_run(tmp_path / "runs", "Pendulum-v1", "sac", [-900.0, -150.0])
    elements = Elements(page(gather([tmp_path / "runs"]), tmp_path / "report.html"))
    places = [found["id"] for name, found in elements.found if "id" in found]
    ours = ["filters", "shown", "runs", "curves", "charts", "each-run", "run-1", "not-run"]
    assert places[: len(ours)] == ours
    theirs = {"table1", "table2", "table3", "maze", "ablation-bonus", "gymnasium", "d4rl-v2"}
    assert theirs < set(places[len(ours) :])
    assert ("details", {"id": "not-run"}) in elements.found
    links = [found["href"] for name, found in elements.found if name == "a"]
    assert links[:4] == ["#runs", "#curves", "#each-run", "#not-run"]


def test_what_was_run_of_a_table_stands_before_what_was_not(runs: Path, tmp_path: Path) -> None:
    elements = Elements(page(gather([runs]), tmp_path / "report.html"))
    places = [found["id"] for _, found in elements.found if "id" in found]
    order = [name for name in places if name in ("table1", "maze", "each-run", "not-run", "table2")]
    assert order == ["table1", "maze", "each-run", "not-run", "table2"]


def write_hostile_run(root: Path) -> None:
    """Every name that a run's files hold is markup."""
    path = write_run(root, "Pendulum-v1", "sac", [1.0, 2.0])
    (path / "note.txt").write_text(HOSTILE)
    for file in ("config.json", "manifest.json"):
        content = json.loads((path / file).read_text())
        content |= {"task": HOSTILE, "agent": HOSTILE, "platform": HOSTILE, "created": HOSTILE}
        content |= {"task_options": {HOSTILE: HOSTILE}, "revision": {"commit": HOSTILE}}
        content |= {"command": ["phimu", "</script>", HOSTILE], "versions": {"jax": HOSTILE}}
        (path / file).write_text(json.dumps(content))
    with open(path / "metrics.jsonl", "a") as log:
        for step in (11_000, 12_000):
            log.write(json.dumps({"step": step, "kind": HOSTILE, HOSTILE: 1.0}) + "\n")


def test_names_from_files_are_text_and_nothing_else(tmp_path: Path) -> None:
    write_hostile_run(tmp_path)
    results = gather([tmp_path])
    text = page(results, tmp_path / "report.html")
    scripts = [found for name, found in Elements(text).found if name == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert "<script>alert" not in text
    (data,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["curves"][0]["task"] == HOSTILE
    assert "<script>" not in "".join(markdown(table) for table in tables(results))


def test_large_films_are_linked_and_links_are_left_alone(runs: Path, tmp_path: Path) -> None:
    (run,) = (run for run in gather([runs]) if run.agent == "sac" and "Cart" in run.task)
    (run.path / "long film.mp4").write_bytes(bytes(2_000_001))
    (run.path / "elsewhere.mp4").symlink_to("/etc/hostname")
    text = page(gather([runs]), tmp_path / "report.html")
    where = (run.path / "long film.mp4").relative_to(tmp_path).as_posix().replace(" ", "%20")
    assert f'href="{where}"' in text
    assert "elsewhere" not in text


def test_tables_as_markdown_and_csv(runs: Path, tmp_path: Path) -> None:
    written = write_text(gather([runs]), tmp_path / "text")
    assert {file.name for file in written} >= {"table1.md", "table1.csv", "ablation-loss.csv"}
    lines = (tmp_path / "text" / "table1.md").read_text().splitlines()
    heads, (cheetah,) = lines[2], [line for line in lines if line.startswith("| HalfCheetah ")]
    assert heads.startswith("| task | ctrl-ucb-m, ours (small) | ctrl-ucb-m, paper (CTRL-UCBM")
    assert cheetah.startswith("| HalfCheetah | **5,300.0 ± 100.0** (3 × 15K) | 4,888.5 ± 205.8 |")
    assert cheetah.count("|") == heads.count("|")
    assert any(line.endswith(". After a fall of \\*the\\* pole.") for line in lines)
    with open(tmp_path / "text" / "table1.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = 2 * len(STUDIES["table1"].variants) + 1  # ours, the paper's, and the best of others
    assert len(rows) == 10 * columns
    mine = [row for row in rows if row["whose"] == "ours" and row["mean"]]
    assert {(row["task"], row["variant"], float(row["mean"])) for row in mine} == {
        ("mbbl/HalfCheetah-v0", "ctrl-ucb-m", 5300.0),
        ("mbbl/HalfCheetah-v0", "sac", 1750.0),
        ("mbbl/CartPole-v0", "sac", 199.3),
    }
    maze = (tmp_path / "text" / "maze.md").read_text().splitlines()
    assert maze[-1] == (
        "| ctrl-ucb-l (maze, random\\_start=True) | 0.125 | not scored | 0.070 | 0.990 | 1 |"
    )
    assert maze[2].count("|") == maze[-1].count("|") + 2  # |log Z|, escaped
    with open(tmp_path / "text" / "maze.csv", newline="") as file:
        values = {row["score"]: float(row["value"]) for row in csv.DictReader(file)}
    assert values == {"total_variation_free": 0.125, "mean_abs_log_z": 0.07, "success_rate": 0.99}


def test_the_command_writes_the_page_and_refuses_in_one_sentence(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(runs), "-o", str(out), "--text", str(tmp_path / "text")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == str(out)
    assert len(said) == 1 + 2 * len(STUDIES)
    assert out.read_text().startswith("<!doctype html>")
    (tmp_path / "empty").mkdir()
    for wrong, about in (
        ([str(tmp_path / "empty"), "-o", str(out)], "no run"),
        ([str(tmp_path / "absent"), "-o", str(out)], "no run"),
        ([str(runs), "-o", "report.pdf"], "html"),
        ([str(runs), "-o", str(tmp_path / "absent" / "report.html")], "no directory"),
    ):
        assert main(["report", *wrong]) == 2
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1
        assert about in said[0]


def test_in_a_browser(runs: Path, tmp_path: Path) -> None:
    """Filters, charts and links work; nothing is complained of, and nothing is asked of anyone."""
    pytest.importorskip("websockets")
    program = browser.find()
    if program is None:
        pytest.skip("there is no Chromium on the PATH")
    out = tmp_path / "report.html"
    out.write_text(page(gather([runs]), out))
    write_hostile_run(tmp_path / "hostile")
    hostile = tmp_path / "hostile.html"
    hostile.write_text(page(gather([tmp_path / "hostile"]), hostile))
    chromium = browser.Browser(program, tmp_path / "profile")
    try:
        _try_out(chromium, out.as_uri())
        chromium.open(hostile.as_uri())
        chromium.value("document.querySelectorAll('details').forEach(each => each.open = true)")
        chromium.wait("document.querySelectorAll('.metrics svg').length > 1")
        assert chromium.value("document.querySelector('#charts h3').innerText") == HOSTILE
        asked = [e for e in chromium.events if e.get("method") == "Network.requestWillBeSent"]
        addresses = {event["params"]["request"]["url"] for event in asked}
        assert {a for a in addresses if not a.startswith("data:")} == {
            out.as_uri(),
            hostile.as_uri(),
        }
        complaints = (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            DIALOG,
        )
        assert not [event for event in chromium.events if event.get("method") in complaints]
    finally:
        chromium.close()


def _try_out(chromium: browser.Browser, address: str) -> None:
    value, point = chromium.value, chromium.point
    shown = "[...document.querySelectorAll('{}')].filter(e => !e.hidden).length"
    texts = "[...document.querySelectorAll('{}')].map(e => e.innerText)"
    chromium.resize(1400, 900)
    chromium.open(address)
    assert value("document.getElementById('shown').innerText") == "6 of 6 runs shown"
    assert value(texts.format("#charts h3")) == ["HalfCheetah", "CartPole", "four-room maze"]
    cells = value(texts.format('#table1 tr[data-task="mbbl/HalfCheetah-v0"] td'))
    assert cells[0].startswith("5,300.0 ± 100.0")
    assert "3 seeds at 15K" in cells[0]
    assert cells[1] == "4,888.5 ± 205.8"
    looks = "[...document.querySelectorAll('#table1 tr[data-task=\"mbbl/HalfCheetah-v0\"] td')]"
    classes = value(f"{looks}.map(e => e.className)")
    assert classes[:6] == ["ours ahead", "", "none", "", "", "paper near"]  # its SAC had more steps
    assert set(classes[6:]) == {"none", ""}  # agents that were not run, and the best of others
    # The filters.
    point('input[value="mbbl/CartPole-v0"] + span')
    assert value("document.getElementById('shown').innerText") == "1 of 6 runs shown"
    assert value(texts.format("#charts h3")) == ["CartPole"]
    assert value(shown.format("#table1 .compare tbody tr")) == 1
    assert value(shown.format(".ran tbody")) == 1
    point('input[value="mbbl/CartPole-v0"] + span')
    point('input[value="sac"] + span')
    assert value("document.getElementById('shown').innerText") == "2 of 6 runs shown"
    assert value("document.querySelectorAll('#charts path.mean').length") == 2
    point('input[value="sac"] + span')
    assert value("document.getElementById('shown').innerText") == "6 of 6 runs shown"
    # What the mouse is on is said.
    point("#charts svg", "move", across=0.98)
    said = value("document.getElementById('tip').innerText").splitlines()
    assert said == ["15K steps", "ctrl-ucb-m (small): 5300 (5200 to 5400), 3 seeds"]
    point("h1", "move")
    assert value("document.getElementById('tip').hidden")
    # A link to a run opens it and draws its metrics.
    point("#table1 td small a")
    chromium.wait("document.querySelector(location.hash).open")
    chromium.wait("document.querySelectorAll('details.run[open] .metrics svg').length === 2")
    # On a phone the page is as wide as the screen; only tables scroll.
    chromium.resize(390, 800)
    chromium.open(address)
    assert value("document.documentElement.scrollWidth") <= 390
    assert value("document.querySelector('#table1 .scroll').scrollWidth") > 390
