"""Damaged checkpoints and segments are noticed, and the one before is taken."""

import json
from pathlib import Path

import numpy as np
import pytest

from phimu.data.replay import Replay
from phimu.errors import InputError
from phimu.runs import checkpoint
from phimu.types import Spec

SPEC = Spec(3, 2)


def filled(step: int) -> Replay:
    replay = Replay(SPEC, 40, 10)
    rng = np.random.default_rng(0)
    for _ in range(step):
        numbers = rng.normal(size=10)
        flags = False, bool(numbers[9] > 0)
        replay.add(numbers[:3], numbers[3:5], numbers[5], numbers[6:9], *flags)
    return replay


def write_run(directory: Path, *steps: int) -> None:
    last = None
    for step in steps:
        arrays = {"x": np.full(50, step, np.float32)}
        last = checkpoint.save(directory, step, arrays, {"at": step}, filled(step), last)


def load(directory: Path) -> tuple[checkpoint.Checkpoint | None, list[str]]:
    said: list[str] = []
    return checkpoint.load(directory, said.append), said


def files_of(directory: Path) -> tuple[list[Path], list[Path]]:
    """What only the newest checkpoint has, and the segments that both need."""
    folders = sorted(directory.glob("step-*"))
    older, newer = (
        {s["name"] for s in json.loads((folder / "MANIFEST.json").read_bytes())["segments"]}
        for folder in folders
    )
    own = [directory / "replay" / name for name in sorted(newer - older)]
    return [*folders[-1].iterdir(), *own], [directory / "replay" / n for n in newer & older]


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.faults)])
@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_damage_of_the_newest_is_seen_and_the_older_one_taken(
    how: str, count: int, tmp_path: Path
) -> None:
    write_run(tmp_path, 5, 30, 55)
    targets, _ = files_of(tmp_path)
    assert len(targets) == 4  # three files and a segment
    rng = np.random.default_rng(count)
    for case in range(count):
        path = targets[case % len(targets)]
        good = path.read_bytes()
        at = int(rng.integers(len(good)))
        damaged = bytearray(good[:at] if how == "truncate" else good)
        if how == "flip":
            damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        loaded, said = load(tmp_path)
        assert loaded is not None
        assert (loaded.step, len(said)) == (30, 1), f"{path} at {at}"
        replay = Replay(SPEC, 40, 10)
        loaded.restore_replay(replay)
        assert_same(replay, filled(30))
        path.write_bytes(good)
    loaded, said = load(tmp_path)
    assert loaded is not None
    assert (loaded.step, said) == (55, [])


def assert_same(replay: Replay, other: Replay) -> None:
    for column, expected in zip(replay.rows, other.rows, strict=True):
        np.testing.assert_array_equal(column, expected)
    np.testing.assert_array_equal(replay.random_next, other.random_next)


def test_damage_of_a_segment_that_both_need_is_seen(tmp_path: Path) -> None:
    write_run(tmp_path, 5, 30, 55)
    _, shared = files_of(tmp_path)
    assert len(shared) == 3
    for path in shared:
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(InputError, match=rf"{path.name} does not match its checksum"):
            load(tmp_path)
        path.write_bytes(good)
    assert load(tmp_path)[1] == []


def test_a_save_writes_only_what_is_new_and_deletes_what_nobody_needs(tmp_path: Path) -> None:
    held, last = [], None
    for step in (5, 30, 55, 80, 200):  # 200 - 80 is more than the ring holds
        last = checkpoint.save(tmp_path, step, {}, {}, filled(step), last)
        files = (path.name.split("-") for path in (tmp_path / "replay").glob("*.safetensors"))
        held.append(sorted((kind, int(first), int(end)) for kind, first, end, _ in files))
        loaded, _ = load(tmp_path)
        assert loaded is not None
        replay = Replay(SPEC, 40, 10)
        loaded.restore_replay(replay)
        assert_same(replay, filled(step))
    warm_up = [("random", 0, 5), ("random", 5, 10)]
    assert held == [
        [("random", 0, 5), ("rows", 0, 5)],
        [*warm_up, ("rows", 0, 5), ("rows", 5, 30)],
        [*warm_up, ("rows", 0, 5), ("rows", 5, 30), ("rows", 30, 55)],
        [*warm_up, ("rows", 5, 30), ("rows", 30, 55), ("rows", 55, 80)],
        [*warm_up, ("rows", 30, 55), ("rows", 55, 80), ("rows", 160, 200)],
    ]


def test_after_a_fallback_the_run_goes_on_and_the_rest_goes(tmp_path: Path) -> None:
    write_run(tmp_path, 30, 55)
    (tmp_path / "step-000000055" / "arrays.safetensors").write_bytes(b"")
    loaded, _ = load(tmp_path)
    assert loaded is not None
    last = checkpoint.Saved(loaded.step, loaded.segments)
    last = checkpoint.save(tmp_path, 60, {}, {}, filled(60), last)
    there = {path.name for path in (tmp_path / "replay").glob("*.safetensors")}
    assert there == {segment.name for segment in last.segments}
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-000000030",
        "step-000000060",
    ]
    assert load(tmp_path)[1] == []


def test_segments_that_someone_deleted_are_written_again(tmp_path: Path) -> None:
    last = checkpoint.save(tmp_path, 30, {}, {}, filled(30))
    for path in (tmp_path / "replay").glob("rows-*"):
        path.unlink()
    checkpoint.save(tmp_path, 35, {}, {}, filled(35), last)
    loaded, said = load(tmp_path)
    assert loaded is not None
    assert (loaded.step, said) == (35, [])


def test_segments_of_another_task_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 30)
    loaded, _ = load(tmp_path)
    assert loaded is not None
    with pytest.raises(InputError, match=r"holds \w+ of shape .* but the task has"):
        loaded.restore_replay(Replay(Spec(4, 2), 40, 10))
    with pytest.raises(InputError, match="lacks transitions"):
        loaded._replace(segments=loaded.segments[:1]).restore_replay(Replay(SPEC, 40, 10))
