from pathlib import Path

import pytest

from phimu.runs import files


def test_interrupted_write_leaves_the_old_content(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "x"
    files.write_atomically(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
