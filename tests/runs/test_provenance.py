import sys
from pathlib import Path

import pytest

from phimu.runs.provenance import code_revision, command_line


@pytest.mark.parametrize("program", ["bin/phimu", "src/phimu/__main__.py"])
def test_the_command_can_be_typed_again(monkeypatch, program: str) -> None:
    monkeypatch.setattr(sys, "argv", [program, "train", "Pendulum-v1"])
    assert command_line() == ["phimu", "train", "Pendulum-v1"]


def fake_git(tmp_path: Path, monkeypatch, files: str, status: str) -> None:
    script = tmp_path / "git"
    script.write_text(
        f'#!/bin/sh\ncase "$2" in\n  ls-files) echo "{files}";;\n'
        f'  rev-parse) echo 0123abcd;;\n  status) echo "{status}";;\nesac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_revision_of_a_checkout(tmp_path: Path, monkeypatch) -> None:
    fake_git(tmp_path, monkeypatch, files="a.py", status="")
    assert code_revision(tmp_path) == {"commit": "0123abcd", "dirty": False}
    fake_git(tmp_path, monkeypatch, files="a.py", status=" M a.py")
    assert code_revision(tmp_path) == {"commit": "0123abcd", "dirty": True}


def test_no_revision_outside_a_checkout(tmp_path: Path, monkeypatch) -> None:
    assert code_revision(tmp_path) is None
    fake_git(tmp_path, monkeypatch, files="", status="")  # inside a repository, but not tracked
    assert code_revision(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert code_revision(tmp_path) is None
