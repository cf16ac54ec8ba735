"""The replay buffer on disk: segments that are written once, so a save costs what is new.

A file `rows-<first>-<end>-<digest>.safetensors` holds transitions first to end - 1 of the run;
`random-...` the next observations of its warm-up, which outlive the ring. Since the name has a
digest of the content, no segment is ever replaced by a different one.
"""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

from phimu.data.replay import Replay
from phimu.errors import InputError
from phimu.runs.files import Damaged, fingerprint, parsing, sync_directory, verify, write_arrays
from phimu.types import Batch

LONGEST = 50_000  # transitions in a file, so that writing one never doubles the memory
ASIDE = "new.tmp"
COLUMNS = {"rows": set(Batch._fields), "random": {"next_observation"}}
NAME = re.compile(r"(rows|random)-(\d{9,12})-(\d{9,12})-([0-9a-f]{16})\.safetensors")


class Segment(NamedTuple):
    """One file, as a checkpoint's manifest lists it."""

    name: str
    sha256: str
    size: int

    @property
    def kind(self) -> str:
        return self.name.split("-")[0]

    @property
    def span(self) -> range:
        _, first, end, _ = self.name.split("-")
        return range(int(first), int(end))


def write_new(folder: Path, replay: Replay, known: Iterable[Segment]) -> list[Segment]:
    """The segments that hold `replay`: those of `known` that are still of use, then new ones."""
    segments: list[Segment] = []
    for kind, held in replay.spans().items():
        old = [s for s in known if s.kind == kind and s.span.stop > held.start]
        paths = {folder / s.name: s.size for s in old}
        if not all(p.is_file() and p.stat().st_size == size for p, size in paths.items()):
            old = []  # someone deleted a file: what the buffer still holds is written again
        first = max(held.start, old[-1].span.stop) if old else held.start
        segments += old
        for start in range(first, held.stop, LONGEST):
            span = range(start, min(start + LONGEST, held.stop))
            segments.append(_write(folder, kind, span, replay.columns(kind, span)))
    if folder.exists():
        sync_directory(folder)
    return segments


def _write(folder: Path, kind: str, span: range, columns: dict[str, np.ndarray]) -> Segment:
    if folder.is_symlink():
        raise InputError(f"{folder} is a link: put what it leads to in its place.")
    if not folder.exists():
        folder.mkdir()
        sync_directory(folder.parent)
    # In a directory of its own, for safetensors leaves files of random names behind when killed.
    aside = folder / ASIDE / "segment"
    aside.parent.mkdir(exist_ok=True)
    write_arrays(aside, columns)
    mark = fingerprint(aside)
    name = f"{kind}-{span.start:09d}-{span.stop:09d}-{mark['sha256'][:16]}.safetensors"
    os.rename(aside, folder / name)
    return Segment(name, **mark)


def prune(folder: Path, needed: set[str]) -> None:
    """Delete the segments that no checkpoint names, and what a kill left of writing one."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.iterdir():
        if path.is_dir() and path.name == ASIDE:
            shutil.rmtree(path)
        elif NAME.fullmatch(path.name) and path.name not in needed:
            path.unlink()


def check(folder: Path, listed: Any, step: int) -> tuple[Segment, ...]:
    """The segments that a manifest lists; Damaged where one cannot be trusted."""
    if not isinstance(listed, list):
        raise Damaged(folder, "is not listed")
    if listed and (folder.is_symlink() or not folder.is_dir()):
        raise Damaged(folder, "is not a directory")
    segments: list[Segment] = []
    ends = {"rows": 0, "random": 0}
    for entry in listed:
        name = entry.get("name") if isinstance(entry, dict) else None
        match = NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None or entry.keys() != set(Segment._fields):
            raise Damaged(folder, f"cannot hold a segment called {str(name)[:80]!r}")
        segment = Segment(**entry)
        _check_content(folder / segment.name, segment)
        kind, span = segment.kind, segment.span
        # Rows may begin late, after the ring has wrapped; from there on there is no gap.
        begins = ends[kind] or (span.start if kind == "rows" else 0)
        if span.start != begins or not span:
            raise Damaged(folder / segment.name, "does not follow the segment before it")
        ends[kind] = span.stop
        segments.append(segment)
    if ends["rows"] and ends["rows"] != step:
        raise Damaged(folder, f"ends at transition {ends['rows']:,} instead of {step:,}")
    return tuple(segments)


def _check_content(path: Path, segment: Segment) -> None:
    verify(path, {"sha256": segment.sha256, "size": segment.size})
    if path.name.rpartition("-")[2] != f"{segment.sha256[:16]}.safetensors":
        raise Damaged(path, "does not match its name")
    with parsing(path), safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        parts = [file.get_slice(name) for name in names]
        kinds = {(part.get_dtype(), *part.get_shape()[:1]) for part in parts}
    rows = len(segment.span)
    if names != COLUMNS[segment.kind] or kinds != {("F32", rows)}:
        raise Damaged(path, f"does not hold the {rows:,} transitions that its name says")


def restore(replay: Replay, folder: Path, segments: Iterable[Segment], added: int) -> None:
    """Fill an empty buffer, one segment at a time; `check` has found them whole."""
    replay.added = added
    held = replay.spans()
    for kind, span in held.items():
        found = [s.span for s in segments if s.kind == kind]
        if span and (not found or found[0].start > span.start or found[-1].stop < span.stop):
            raise InputError(
                f"{folder} lacks transitions that the run needs: restore it from a copy."
            )
    for segment in segments:
        columns = load_file(folder / segment.name)
        for name, array in columns.items():
            shape = (len(segment.span), *getattr(replay.rows, name).shape[1:])
            if array.shape != shape:
                raise InputError(
                    f"{folder / segment.name} holds {name} of shape {array.shape} but the task "
                    f"has {shape}: resume with the configuration that wrote the checkpoint."
                )
        replay.put(segment.kind, segment.span, columns)
