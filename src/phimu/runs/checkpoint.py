"""Checkpoints that outlive a kill, a full disk and a flipped bit; never pickle."""

import contextlib
import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from phimu.data.replay import Replay
from phimu.errors import InputError
from phimu.runs import files
from phimu.runs import segments as segment_files
from phimu.runs.directory import RunDirectory
from phimu.runs.files import Damaged, naming, remove, sync_directory, write_synced
from phimu.runs.json_form import canonical
from phimu.runs.segments import Segment

FORMAT = 2  # format 1 held the whole replay buffer in each checkpoint; it is not read any more
KEPT = 2
SEGMENTS = "replay"
ARRAYS = "arrays.safetensors"
FACTS = "facts.json"
MANIFEST = "MANIFEST.json"


class Saved(NamedTuple):
    """What a run remembers of its last checkpoint, in order to write the next."""

    step: int
    segments: tuple[Segment, ...]


class Checkpoint(NamedTuple):
    """What `load` found: arrays by name, and everything else as JSON."""

    step: int
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    directory: Path  # where it was found, beside the segments of its replay buffer
    segments: tuple[Segment, ...]

    def restore_replay(self, replay: Replay) -> None:
        segment_files.restore(replay, self.directory / SEGMENTS, self.segments, self.step)


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The array leaves of a pytree by path, such as `features/layers/0/weight`; views, not copies.

    Functions are part of the template and stay there. A Python number is refused, since it would
    look like state and be lost.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _named_leaves(tree):
        if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic):
            raise TypeError(f"The leaf {name} is the Python number {leaf!r}: make it an array.")
        if not eqx.is_array(leaf):
            continue
        if name in arrays:
            raise ValueError(f"Two leaves are called {name}: rename one of the dictionary keys.")
        arrays[name] = np.asarray(leaf)
    return arrays


def restore(template: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The template with its array leaves replaced by `arrays`; NumPy leaves stay NumPy."""
    expected = flatten(template)
    for name in sorted(expected.keys() ^ arrays.keys()):
        has, lacks = ("agent", "checkpoint") if name in expected else ("checkpoint", "agent")
        raise InputError(
            f"The {has} has an array {name} that the {lacks} lacks: "
            "resume with the configuration that wrote the checkpoint."
        )
    for name, leaf in expected.items():
        for what in ("shape", "dtype"):
            there, here = getattr(arrays[name], what), getattr(leaf, what)
            if there != here:
                raise InputError(
                    f"The array {name} has {what} {there} in the checkpoint but {here} in the "
                    "agent: resume with the configuration that wrote the checkpoint."
                )
    leaves: list[Any] = []
    for name, leaf in _named_leaves(template):
        if isinstance(leaf, jax.Array):
            # a copy, or later writes to `arrays` could show through
            leaves.append(jnp.array(arrays[name]))
        else:
            leaves.append(arrays[name] if eqx.is_array(leaf) else leaf)
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def below(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with it, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def save(
    directory: Path,
    step: int,
    arrays: dict[str, np.ndarray],
    facts: dict[str, Any],
    replay: Replay | None = None,
    last: Saved | None = None,
) -> Saved:
    """Write `directory/step-<n>` aside, then rename it: at each instant one checkpoint is whole.

    `last` is the run's checkpoint before this one, here: of `replay` only what its segments lack
    is written. Any that came between are damaged ones from which the run fell back, and go.
    """
    if not directory.exists():
        directory.mkdir(parents=True)
        sync_directory(directory.parent)
    final = directory / f"step-{step:09d}"
    aside = final.with_suffix(".tmp")
    with naming(final):
        for leftover in directory.glob("step-*.tmp"):
            remove(leftover)
        _prune_segments(directory)  # on a nearly full disk their space is needed
        segments: list[Segment] = []
        if replay is not None:
            known = last.segments if last else ()
            segments = segment_files.write_new(directory / SEGMENTS, replay, known)
        aside.mkdir()
        try:
            _write_files(aside, step, arrays, facts, segments)
            if final.exists():
                # Directories cannot be swapped, so `load` knows ".old" for the moment between.
                remove(final.with_suffix(".old"))
                os.rename(final, final.with_suffix(".old"))
            os.rename(aside, final)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)  # on a full disk the space is needed
            raise
        sync_directory(directory)
        _prune(directory, step, last.step if last else step)
        _prune_segments(directory)
    return Saved(step, tuple(segments))


def _write_files(
    folder: Path,
    step: int,
    arrays: dict[str, np.ndarray],
    facts: dict[str, Any],
    segments: list[Segment],
) -> None:
    # The canonical form has no white space, so that no flipped bit in it can go unseen.
    write_synced(folder / FACTS, canonical(facts).encode())
    files.write_arrays(folder / ARRAYS, arrays)
    marks = {name: files.fingerprint(folder / name) for name in (ARRAYS, FACTS)}
    listed = [segment._asdict() for segment in segments]
    manifest = {"format": FORMAT, "step": step, "files": marks, "segments": listed}
    write_synced(folder / MANIFEST, canonical(manifest).encode())
    sync_directory(folder)


def _prune(directory: Path, step: int, last: int) -> None:
    """Keep this one and the newest up to `last`, two in all."""
    found = _found(directory)
    kept = [path for at, path in found if (at <= last or at == step) and not path.suffix][:KEPT]
    for _, path in found:
        if path not in kept:
            os.rename(path, path.with_suffix(".tmp"))  # never half deleted under its own name
            remove(path.with_suffix(".tmp"))


def _prune_segments(directory: Path) -> None:
    """Delete what no checkpoint names: the ring has wrapped, the run fell back, a save failed."""
    if not (directory / SEGMENTS).exists():
        return
    needed: set[str] = set()
    for _, folder in _found(directory):
        try:
            listed = files.read_json(folder / MANIFEST)["segments"]
            needed |= {segment["name"] for segment in listed}
        except (Damaged, KeyError, TypeError):
            continue  # it cannot be loaded, with or without its segments
        except OSError:
            return  # it may be readable again later
    segment_files.prune(directory / SEGMENTS, needed)


def _found(directory: Path) -> list[tuple[int, Path]]:
    """The finished checkpoints, newest first."""
    found = []
    for path in directory.iterdir() if directory.exists() else []:
        if match := re.fullmatch(r"step-(\d{9,})(\.old)?", path.name):
            found.append((int(match[1]), path))
    return sorted(found, key=lambda pair: (pair[0], not pair[1].suffix), reverse=True)


def load(directory: Path, say: Callable[[str], Any] = warnings.warn) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None where there is none; `say` hears of damage."""
    problems: list[Exception] = []
    for step, folder in _found(directory):
        try:
            checkpoint = _read(folder, step)
        except (Damaged, OSError) as damage:
            problems.append(damage)
            continue
        for problem in problems:
            say(f"Damaged checkpoint: {problem}; going back to step {step:,}.")
        return checkpoint
    if problems:
        raise InputError(
            f"No checkpoint in {directory} can be used ({problems[0]}): "
            "restore one from a copy, or delete that directory to start again."
        )
    return None


def glance(directory: Path) -> tuple[int, dict[str, Any]]:
    """Step and facts of the newest checkpoint, unverified; step 0 where there is none."""
    for step, folder in _found(directory):
        with contextlib.suppress(Damaged, OSError):  # a run at work deletes old ones
            return step, files.read_json(folder / FACTS)
    return 0, {}


def load_last(run: Path, say: Callable[[str], Any]) -> Checkpoint:
    """The same of a run directory, which must have one."""
    saved = load(RunDirectory(run).checkpoints, say)
    if saved is None:
        raise InputError(f"{run} has no checkpoint yet: let the run reach its first one.")
    return saved


def _read(folder: Path, step: int) -> Checkpoint:
    """Verify the files, then parse them."""
    if folder.is_symlink() or not folder.is_dir():
        raise Damaged(folder, "is not a directory")
    for path in sorted(folder.iterdir()):
        if path.name not in (ARRAYS, FACTS, MANIFEST):
            raise Damaged(path, "does not belong in a checkpoint")
    files.check_regular(folder / MANIFEST)
    manifest = files.read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        written = str(manifest.get("format"))[:20]
        raise Damaged(folder / MANIFEST, f"is in format {written}, and phimu now reads {FORMAT}")
    marks, listed = manifest.get("files"), manifest.get("segments")
    stored = marks if isinstance(marks, dict) else {}
    for name in (ARRAYS, FACTS):
        files.verify(folder / name, stored.get(name))
    expected = {"format": FORMAT, "step": step, "segments": listed}
    if len(stored) != 2 or manifest != expected | {"files": marks}:
        raise Damaged(folder / MANIFEST, "does not fit the checkpoint")
    segments = segment_files.check(folder.parent / SEGMENTS, listed, step)
    with files.parsing(folder / ARRAYS):
        arrays = load_file(folder / ARRAYS)
    return Checkpoint(step, arrays, files.read_json(folder / FACTS), folder.parent, segments)
