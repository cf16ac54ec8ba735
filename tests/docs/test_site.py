"""The site of docs/ builds without a warning and works from disk, its search included."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
import browser

pytestmark = pytest.mark.thorough
ROOT = Path(__file__).parents[2]
COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("material", "mkdocstrings"):
        pytest.importorskip(module, reason="the extra docs is not installed")
    where = tmp_path_factory.mktemp("site")
    # The flag is Material's, for what it says at every build of another project's releases.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(where)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "WARNING" not in said
    return where


def test_every_page_is_there(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    for page in pages:
        assert (site / page.with_suffix(".html")).is_file()
    for page in ("changelog", "contributing", "security", "benchmarks", "results"):
        assert (site / f"{page}.html").is_file()
    assert (site / "repository" / "results" / "theory" / "online.png").is_file()


def test_inner_products_are_no_markup(site: Path) -> None:
    """Markdown would drop <phi, mu> as an unknown tag."""
    assert "&lt;phi, mu&gt; is fitted to the ratio" in (site / "speder.html").read_text()


def test_public_names_are_in_the_reference(site: Path) -> None:
    import phimu

    text = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    for name in phimu.__all__:
        assert f"phimu.{name}" in text


def test_in_a_browser(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("websockets")
    program = browser.find()
    if program is None:
        pytest.skip("there is no Chromium on the PATH")
    chromium = browser.Browser(program, tmp_path / "profile")
    try:
        _click_through(chromium, site)
        _search(chromium, site)
        _on_a_phone(chromium, site)
        asked = [e for e in chromium.events if e.get("method") == "Network.requestWillBeSent"]
        addresses = {event["params"]["request"]["url"] for event in asked}
        own = (site.as_uri(), "data:", "blob:", "about:")
        assert not [address for address in addresses if not address.startswith(own)]
        assert not [event for event in chromium.events if event.get("method") in COMPLAINTS]
    finally:
        chromium.close()


def _title(chromium: browser.Browser) -> str:
    return chromium.value("document.querySelector('article h1').firstChild.textContent.trim()")


def _follow(chromium: browser.Browser, selector: str, title: str) -> None:
    """Click on a link and be on the page that it promises."""
    chromium.point(selector)
    heading = "document.querySelector('article h1')?.firstChild.textContent.trim()"
    chromium.wait(f"{heading} === {json.dumps(title)} && document.readyState === 'complete'")


def _click_through(chromium: browser.Browser, site: Path) -> None:
    chromium.resize(1400, 900)
    chromium.open((site / "index.html").as_uri())
    assert _title(chromium) == "phimu"
    _follow(chromium, "article a[href='tutorials/train-and-watch.html']", "Train and watch")
    _follow(chromium, "article a[href='own-environment.html']", "Your own environment")
    _follow(chromium, ".md-nav--primary a[href='../ctrl-ucb.html']", "CTRL-UCB")
    _follow(chromium, ".md-nav--primary a[href='api/models.html']", "Models")
    assert chromium.value("document.getElementById('phimu.model.Model.learn') !== null")
    _follow(chromium, ".md-nav--primary a[href='../results.html']", "Runs that were really made")
    _follow(chromium, "article a[href^='finite.html']", "Finite linear MDPs")
    loaded = "[...document.querySelectorAll('article img')].every(e => e.naturalWidth > 0)"
    chromium.wait(loaded)


def _search(chromium: browser.Browser, site: Path) -> None:
    chromium.open((site / "tutorials" / "logged-data.html").as_uri())
    chromium.point(".md-search__input")
    for letter in "density_ratio":  # as a person does: the page listens to keys
        chromium.call("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
        chromium.call("Input.dispatchKeyEvent", type="keyUp", key=letter)
    chromium.wait("document.querySelectorAll('.md-search-result__item').length > 2")
    found = "[...document.querySelectorAll('.md-search-result__item h1')].map(e => e.innerText)"
    assert "Asking a model" in chromium.value(found)
    chromium.point(".md-search-result__link")
    chromium.wait("!location.pathname.endsWith('logged-data.html')")
    chromium.wait("document.readyState === 'complete'")


def _on_a_phone(chromium: browser.Browser, site: Path) -> None:
    """Pages are as wide as the screen; only tables and code scroll."""
    chromium.resize(390, 800)
    for page in ("index", "results", "deviations", "api/features"):
        chromium.open((site / f"{page}.html").as_uri())
        assert chromium.value("document.documentElement.scrollWidth") <= 390
