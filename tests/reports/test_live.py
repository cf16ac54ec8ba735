"""`phimu watch`: a frame of the terminal, and the page in a browser, while a log grows."""

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from phimu.cli import main
from phimu.reports.live.braille import Canvas, sparkline
from phimu.reports.live.server import Server
from phimu.reports.live.terminal import frame
from phimu.reports.live.watched import POINTS, Series, Watch, _thinned

sys.path.insert(0, str(Path(__file__).parent))
import browser
from written_runs import write_run

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    write_run(root, "mbbl/CartPole-v0", "sac", [10.0, 150.0, 199.0])
    write_run(root, "mbbl/CartPole-v0", "ctrl-ucb-m", [20.0, 80.0], asked=20_000)
    return root


def grow(run: Path, step: int, value: float) -> None:
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "kind": "train", "return": value, "td_loss": 2.5}))
        file.write("\n" + json.dumps({"step": step, "kind": "evaluation", "return": value}) + "\n")


def text_of(watch: Watch, width: int = 100, height: int = 40) -> str:
    console = Console(width=width, height=height, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(frame(watch.look(), width, height))
    return console.export_text()


def test_a_frame_says_how_far_runs_are(runs: Path) -> None:
    watch = Watch([runs])
    said = text_of(watch)
    assert "mbbl/CartPole-v0  sac  seed 0" in said
    assert "finished  step 15,000/15,000" in said
    assert "stopped  step 10,000/20,000" in said
    assert "evaluation 199" in said
    assert "td_loss" in said
    run = next(each.run.path for each in watch.look() if each.agent == "ctrl-ucb-m")
    grow(run, 15_000, 120.0)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 17')
    said = text_of(watch)
    assert "step 15,000/20,000" in said
    assert "training 120" in said


@pytest.mark.parametrize(("width", "height"), [(30, 10), (60, 24), (200, 60)])
def test_a_frame_fits_its_window(runs: Path, width: int, height: int) -> None:
    for seed in range(1, 5):
        write_run(runs, "mbbl/CartPole-v0", "sac", [10.0], seed)
    lines = text_of(Watch([runs]), width, height).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 14)
    assert ("more" in lines[-1]) == (width < 200)


def test_new_runs_below_a_directory_appear(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch([runs])
    write_run(runs, "mbbl/CartPole-v0", "sac", [1.0], seed=3)
    monkeypatch.setattr("phimu.reports.live.watched.SEARCH_SECONDS", 0.0)
    assert len(watch.look()) == 3


def test_curves_are_thinned_and_keep_their_end() -> None:
    series = Series(list(range(1_001)), [0.0] * 1_001)
    steps, values = _thinned(series)
    assert steps[-1] == 1_000
    assert len(steps) == len(values) <= POINTS


def test_lines_are_drawn_in_dots() -> None:
    canvas = Canvas(2, 1)
    canvas.line([(0.0, 0.0), (1.0, 1.0)], "red")
    assert [row.plain for row in canvas.rows()] == ["⡠⠊"]
    canvas.line([(0.5, 0.5)], "blue")  # a single point
    assert sparkline([1.0, 2.0, 3.0], 3) == "▁▅█"
    assert sparkline([2.0] * 9, 4) == "▁▁▁▁"
    assert sparkline([], 4) == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "There is no directory nowhere: name that of a run."),
        (["."], "There is no run in .: name a directory that has config.json below it."),
        (["runs"], "Standard output is no terminal: give --once for one frame, or --page."),
        (["runs", "--page", "--port", "70000"], "port is 70000: give one from 1 to 65535, or 0"),
    ],
)
def test_what_cannot_be_watched_is_said(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(runs.parent)
    (tmp_path / "empty").mkdir()
    if words == ["."]:
        monkeypatch.chdir(tmp_path / "empty")
    assert main(["watch", *words]) == 2
    assert said in capsys.readouterr().err


def test_once_prints_a_frame(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(runs), "--once"]) == 0
    assert "evaluation 199" in capsys.readouterr().out


@pytest.fixture
def server(runs: Path) -> Iterator[Server]:
    with Server(Watch([runs])) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_the_server_answers_this_machine_alone(server: Server) -> None:
    with urllib.request.urlopen(server.address + "data", timeout=10) as answer:
        found = json.load(answer)["runs"]
    assert [run["step"] for run in found] == [10_000, 15_000]
    assert found[1]["series"]["evaluation"] == [[5_000, 10_000, 15_000], [10.0, 150.0, 199.0]]
    for path, headers in (("x", {}), ("data", {"Host": "example.org"})):
        asked = urllib.request.Request(server.address + path, headers=headers)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(asked, timeout=10)
    assert server.server_address[0] == "127.0.0.1"


def test_a_taken_port_is_said(server: Server, runs: Path, capsys) -> None:
    assert main(["watch", str(runs), "--page", "--port", str(server.server_port)]) == 2
    assert "give another, or 0 for a free one." in capsys.readouterr().err


def test_the_page_grows_with_the_log(server: Server, runs: Path, tmp_path: Path) -> None:
    program = browser.find()
    if program is None:
        pytest.skip("no Chromium is installed")
    pytest.importorskip("websockets", reason="the browser is driven through a websocket")
    run = write_run(runs, HOSTILE, "sac", [1.0, 2.0])
    server.watch._add([run])
    chromium = browser.Browser(program, tmp_path / "profile")
    try:
        chromium.resize(1400, 900)
        chromium.open(server.address)
        chromium.wait("document.querySelectorAll('#runs tr').length === 3")
        assert chromium.value("document.querySelectorAll('h2')[1].innerText") == HOSTILE
        assert chromium.value("document.querySelectorAll('[data-measure=evaluation]').length") == 2
        grow(run, 15_000, 777.0)
        chromium.wait("document.querySelector('#runs tr:last-child').innerText.includes('777')")
        assert chromium.value("document.querySelectorAll('[data-measure=return] path').length") == 1
        chromium.value("document.getElementById('more').open = true")
        chromium.resize(390, 800)
        assert chromium.value("document.documentElement.scrollWidth") <= 390
        asked = [e for e in chromium.events if e.get("method") == "Network.requestWillBeSent"]
        addresses = {event["params"]["request"]["url"] for event in asked}
        assert {a for a in addresses if not a.startswith("data:")} == {
            server.address,
            server.address + "data",
        }
        complaints = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        assert not [e for e in chromium.events if e.get("method") in complaints]
    finally:
        chromium.close()
