"""Hostile checkpoints: one sentence each; nothing in them is run, nothing outside is read.

Their checksums are right, for whoever forges a file can forge its checksum.
"""

import io
import json
import os
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from phimu.data.replay import Replay
from phimu.errors import InputError
from phimu.runs import checkpoint
from phimu.runs.files import fingerprint, remove
from phimu.types import Spec


def write_run(directory: Path) -> None:
    """Checkpoints at 5 and 30 steps, of which the second is left, with three segments."""
    last = None
    for step in (5, 30):
        replay = Replay(Spec(3, 2), 40, 5)
        replay.added = step
        last = checkpoint.save(directory, step, {"x": np.zeros(9)}, {"at": step}, replay, last)
    remove(directory / "step-000000005")


class _Evil:
    """Pickled, it would leave a trace when it is loaded."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


def forge(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    change_manifest(folder, lambda m: m["files"].update({name: fingerprint(folder / name)}))


def change_manifest(folder: Path, change: Callable[[dict], object]) -> None:
    manifest = json.loads((folder / "MANIFEST.json").read_bytes())
    change(manifest)
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))


def forge_segment(folder: Path, content: bytes) -> None:
    """In the place of the first segment of rows, under a name that fits."""

    def change(manifest: dict) -> None:
        entry = next(s for s in manifest["segments"] if s["name"].startswith("rows"))
        path = folder.parent / "replay" / entry["name"]
        path.write_bytes(content)
        mark = fingerprint(path)
        stem = entry["name"].rpartition("-")[0]
        entry.update(mark, name=f"{stem}-{mark['sha256'][:16]}.safetensors")
        path.rename(path.with_name(entry["name"]))

    change_manifest(folder, change)


def name_segment(folder: Path, name: str) -> None:
    change_manifest(folder, lambda m: m["segments"][0].update(name=name))


def link(path: Path, target: Path) -> None:
    content = path.read_bytes()
    target.write_bytes(content)
    path.unlink()
    path.symlink_to(target)


def move_and_link(path: Path, target: Path) -> None:
    path.rename(target)
    path.symlink_to(target)


def header(text: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: list[int], offsets: list[int], dtype: str = "F32") -> bytes:
    entry = {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}
    return json.dumps(entry).encode()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "../"), content)
    return buffer.getvalue()


def npz(trace: Path) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([_Evil(trace)], object))
    return buffer.getvalue()


def columns(rows: int, dtype: type = np.float32, **more: np.ndarray) -> bytes:
    shapes = {"observation": (3,), "action": (2,), "reward": (), "next_observation": (3,)}
    arrays = {name: np.zeros((rows, *shape), dtype) for name, shape in shapes.items()}
    flags = {name: np.zeros(rows, dtype) for name in ("terminated", "truncated")}
    return save(arrays | flags | more)


ARRAYS, FACTS = "arrays.safetensors", "facts.json"
# name -> what is done to the only checkpoint, given its folder and a directory outside of the run
HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "pickle as arrays": lambda f, o: forge(f, ARRAYS, pickle.dumps(_Evil(o / "trace"))),
    "pickle as facts": lambda f, o: forge(f, FACTS, pickle.dumps(_Evil(o / "trace"))),
    "pickle as manifest": lambda f, o: (f / "MANIFEST.json").write_bytes(
        pickle.dumps(_Evil(o / "trace"))
    ),
    "pickle as segment": lambda f, o: forge_segment(f, pickle.dumps(_Evil(o / "trace"))),
    "pickle beside the rest": lambda f, o: (f / "x.pkl").write_bytes(
        pickle.dumps(_Evil(o / "trace"))
    ),
    "npz of objects": lambda f, o: forge(f, ARRAYS, npz(o / "trace")),
    "npz of objects as segment": lambda f, o: forge_segment(f, npz(o / "trace")),
    "zip slip": lambda f, o: forge(f, ARRAYS, zipped(____evil=b"x")),
    "arrays are a link": lambda f, o: link(f / ARRAYS, o / "a"),
    "facts are a link": lambda f, o: link(f / FACTS, o / "f"),
    "manifest is a link": lambda f, o: link(f / "MANIFEST.json", o / "m"),
    "segment is a link": lambda f, o: link(next((f.parent / "replay").glob("rows*")), o / "s"),
    "replay is a link": lambda f, o: move_and_link(f.parent / "replay", o / "replay"),
    "checkpoint is a link": lambda f, o: move_and_link(f, o / "step"),
    "arrays are a pipe": lambda f, o: ((f / ARRAYS).unlink(), os.mkfifo(f / ARRAYS)),
    "huge header length": lambda f, o: forge(f, ARRAYS, header(b"{}", length=2**63 - 1)),
    "header length of 99 MB": lambda f, o: forge(f, ARRAYS, header(b"{}", length=99_000_000)),
    "shape bomb": lambda f, o: forge(f, ARRAYS, header(tensor([2**40], [0, 2**42]), b"x")),
    "overflowing shape": lambda f, o: forge(f, ARRAYS, header(tensor([2**62, 8], [0, 0]))),
    "negative offsets": lambda f, o: forge(f, ARRAYS, header(tensor([1], [-4, 0]), b"1234")),
    "offsets beyond the file": lambda f, o: forge(f, ARRAYS, header(tensor([1], [4, 8]), b"1234")),
    "unknown dtype": lambda f, o: forge(f, ARRAYS, header(tensor([1], [0, 4], "PICKLE"), b"1234")),
    "nested header": lambda f, o: forge(f, ARRAYS, header(b"[" * 100_000)),
    "header bomb in a segment": lambda f, o: forge_segment(f, header(b"{}", length=2**63 - 1)),
    "nested facts": lambda f, o: forge(f, FACTS, b"[" * 100_000),
    "facts are a list": lambda f, o: forge(f, FACTS, b"[1, 2]"),
    "facts with a bomb of digits": lambda f, o: forge(f, FACTS, b'{"at": ' + b"9" * 10_000 + b"}"),
    "nested manifest": lambda f, o: (f / "MANIFEST.json").write_bytes(b'{"a":' * 100_000),
    "manifest of another format": lambda f, o: change_manifest(f, lambda m: m.update(format=1)),
    "manifest without segments": lambda f, o: change_manifest(f, lambda m: m.pop("segments")),
    "segments are numbers": lambda f, o: change_manifest(f, lambda m: m.update(segments=[1, None])),
    "segments are text": lambda f, o: change_manifest(f, lambda m: m.update(segments="rows")),
    "segment up and out": lambda f, o: name_segment(f, "../../outside/secret"),
    "segment with an absolute path": lambda f, o: name_segment(f, str(o / "secret")),
    "segment's name is a list": lambda f, o: change_manifest(
        f, lambda m: m["segments"][0].update(name=["a"])
    ),
    "last rows left out": lambda f, o: change_manifest(f, lambda m: m["segments"].pop(1)),
    "segments swapped": lambda f, o: change_manifest(f, lambda m: m["segments"].reverse()),
    "segment of whole numbers": lambda f, o: forge_segment(f, columns(5, np.int32)),
    "segment of too few rows": lambda f, o: forge_segment(f, columns(4)),
    "segment with another column": lambda f, o: forge_segment(
        f, columns(5, other=np.zeros(5, np.float32))
    ),
    "segment with one column less": lambda f, o: forge_segment(
        f, save({"action": np.zeros((5, 2), np.float32)})
    ),
}


class Watch:
    """Which files Python opens, and whether it starts anything or unpickles."""

    def __init__(self) -> None:
        self.on, self.opened, self.forbidden = False, list[str](), list[str]()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple) -> None:
        if not self.on:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            self.opened.append(os.fsdecode(arguments[0]))
        elif event in ("pickle.find_class", "subprocess.Popen", "os.system", "exec"):
            self.forbidden.append(event)


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_checkpoint_is_one_sentence(case: str, watch: Watch, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    write_run(run / "checkpoint")
    folder = run / "checkpoint" / "step-000000030"
    assert checkpoint.load(run / "checkpoint", pytest.fail) is not None
    HOSTILE[case](folder, outside)
    watch.opened, watch.forbidden, watch.on = [], [], True
    try:
        with pytest.raises(InputError, match="No checkpoint in") as refused:
            checkpoint.load(run / "checkpoint", pytest.fail)
    finally:
        watch.on = False
    assert "\n" not in str(refused.value)
    assert "secret\n" not in str(refused.value)
    assert len(str(refused.value)) < 700
    assert watch.forbidden == []
    assert [path for path in watch.opened if str(outside) in os.path.realpath(path)] == []
    assert not (outside / "trace").exists()
