import pytest


@pytest.fixture
def fake_venv(tmp_path):
    """fake_venv(script): a virtual environment whose python is a shell script."""

    def make(script):
        python = tmp_path / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        return tmp_path / "venv"

    return make
