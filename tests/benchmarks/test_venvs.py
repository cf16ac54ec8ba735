"""Virtual environments for other libraries."""

import sys

import pytest

import venvs
from phimu.errors import InputError

MAKE = """#!/bin/sh
mkdir -p "$4/bin"
echo "#!/bin/sh
{pip}" > "$4/bin/python"
chmod +x "$4/bin/python"
"""


@pytest.fixture
def install_with(monkeypatch, tmp_path):
    """install_with(pip): a stand-in for `python -m venv --clear PATH`, with such a pip in it."""
    make = tmp_path / "make"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(make))

    def write(pip):
        make.write_text(MAKE.format(pip=pip))
        make.chmod(0o755)

    return write


def test_an_installation_that_fails_is_one_sentence_and_is_tried_again(install_with):
    install_with("echo 'ERROR: no such version'; exit 1")
    for _ in range(2):
        said = []
        with pytest.raises(InputError, match=r"peers \(no such version\); check") as caught:
            venvs.own_venv(said.append, "peers", (("torch==2.13.0",), ("sbx-rl",)))
        assert "\n" not in str(caught.value)
        assert len(said) == 1
        assert said[0].startswith("Installing torch==2.13.0 sbx-rl into ")


def test_an_installation_is_made_once_until_the_requirements_change(install_with, tmp_path):
    install_with("exit 0")
    said = []
    for requirements in ((("a==1",),), (("a==1",),), (("a==2",),)):
        assert venvs.own_venv(said.append, "x", requirements) == tmp_path / "phimu" / "x"
    assert [line.split()[1] for line in said] == ["a==1", "a==2"]
