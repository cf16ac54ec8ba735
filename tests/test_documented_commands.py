"""Every command and every Python block of README.md and docs/ is one that phimu understands.

Commands are parsed with all their flags and not carried out; blocks are compiled, and what they
import of phimu is there.
"""

import ast
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import phimu.cli.arguments
import phimu.cli.train
from phimu.cli import COMMANDS, USAGE, dispatch

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL = ("", "bash", "sh")
NUMBERS = {"RETURN": "1000"}  # what stands for a number; other words in capitals are names


class Parsed(BaseException):
    """Instead of what a command would do; no error, so that nobody catches it."""


def blocks(path: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(path.read_text())


def commands() -> dict[str, str]:
    """Each `phimu ...` of a shell block, once, and where it stands."""
    found: dict[str, str] = {}
    for path in PAGES:
        for language, text in blocks(path):
            lines = text.replace("\\\n", " ").splitlines() if language in SHELL else []
            for line in lines:
                if line.startswith("phimu "):
                    words = [NUMBERS.get(word, word) for word in shlex.split(line, comments=True)]
                    found.setdefault(shlex.join(words[1:]), path.name)
    return found


def python_blocks() -> list[tuple[str, str]]:
    return [
        (path.name, text)
        for path in PAGES
        for language, text in blocks(path)
        if language == "python"
    ]


@pytest.fixture
def only_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in pkgutil.iter_modules(phimu.cli.__path__):
        importlib.import_module(f"phimu.cli.{module.name}")  # or one would keep what stands in
    parse = phimu.cli.arguments.parse

    def and_no_more(*arguments, **options):
        parse(*arguments, **options)
        raise Parsed

    monkeypatch.setattr(phimu.cli.arguments, "parse", and_no_more)
    monkeypatch.setattr(phimu.cli.train, "read", and_no_more)


@pytest.mark.usefixtures("only_parse")
def test_commands_parse() -> None:
    """With every flag they have. One test for all: they share what it takes to read the first."""
    known = commands()
    assert len(known) > 60
    for line, where in known.items():
        words = shlex.split(line)
        if words[-1] in ("--help", "-h"):
            assert words[0] in COMMANDS
            continue
        try:
            dispatch(words, COMMANDS, USAGE, "command")
        except Parsed:
            continue
        except Exception as error:
            pytest.fail(f"{where}: phimu {line}: {error}")
        pytest.fail(f"{where}: phimu {line}: was carried out instead of parsed")


@pytest.mark.usefixtures("only_parse")
def test_what_does_not_parse_is_found() -> None:
    for wrong in (["train", "Pendulum-v1", "--no-such-flag"], ["evaluate"], ["no-such-command"]):
        with pytest.raises(Exception, match=r"no-such|required"):
            dispatch(wrong, COMMANDS, USAGE, "command")


def test_python_blocks_compile_and_import() -> None:
    found = python_blocks()
    assert len(found) > 25
    for where, text in found:
        tree = ast.parse(text, filename=where)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("phimu"):
                module = importlib.import_module(node.module or "")
                for name in node.names:
                    assert hasattr(module, name.name), f"{where}: {node.module}.{name.name}"
