"""A run that someone else trains, as it grows."""

import json
import os
import socket
from pathlib import Path

import pytest

from phimu.runs.following import Followed, MetricRows, at_work


def row(step: int, kind: str = "train", **values: float) -> str:
    return json.dumps({"step": step, "kind": kind, **values}) + "\n"


def test_only_whole_lines_are_rows(tmp_path: Path) -> None:
    log = MetricRows(tmp_path / "metrics.jsonl")
    assert log.read() == []
    log.path.write_text(row(1) + row(2)[:9])
    assert [each["step"] for each in log.read()] == [1]
    with open(log.path, "a") as file:
        file.write(row(2)[9:] + "not a row\n" + row(3))
    assert [each["step"] for each in log.read()] == [1, 2, 3]


def test_a_file_that_was_replaced_or_cut_is_read_anew(tmp_path: Path) -> None:
    log = MetricRows(tmp_path / "metrics.jsonl")
    log.path.write_text(row(1) + row(2))
    assert len(log.read()) == 2
    other = tmp_path / "other"
    other.write_text(row(1) + row(5) + row(6))
    os.replace(other, log.path)
    assert [each["step"] for each in log.read()] == [1, 5, 6]
    with open(log.path, "r+") as file:
        file.truncate(len(row(1)))
    assert [each["step"] for each in log.read()] == [1]


@pytest.mark.parametrize(
    ("lock", "found"),
    [
        ({"pid": os.getpid(), "host": socket.gethostname()}, True),
        ({"pid": 2**22 + 1, "host": socket.gethostname()}, False),  # beyond what Linux gives
        ({"pid": 2**70, "host": socket.gethostname()}, False),
        ({"pid": 1, "host": "another machine"}, True),
        ({}, False),
    ],
)
def test_a_lock_names_who_is_at_work(tmp_path: Path, lock: dict, found: bool) -> None:
    assert not at_work(tmp_path)
    (tmp_path / "lock").write_text(json.dumps(lock))
    assert at_work(tmp_path) is found


def test_speed_and_time_left_are_those_that_were_seen(tmp_path: Path) -> None:
    now = [0.0]
    manifest = {"created": "2026-01-01T00:00:00+00:00", "steps": 1_000, "sessions": []}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    run = Followed(tmp_path, lambda: now[0])
    assert (run.state, run.step, run.left) == ("waiting", 0, None)
    about = {"pid": os.getpid(), "host": socket.gethostname()}
    (tmp_path / "lock").write_text(json.dumps(about))
    for step in (100, 200, 300):
        now[0] += 2.0
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write(row(step))
        run.look()
    assert (run.state, run.step, run.rate) == ("training", 300, pytest.approx(200 / 4))
    now[0] += 100.0  # the window moves on
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(row(500))
    run.look()
    assert run.rate == pytest.approx(200 / 100)
    assert run.left == pytest.approx(500 / 2)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(row(1_000))
    run.look()
    assert (run.state, run.left) == ("finished", None)
