"""Datasets on disk: one stands under its name when it is whole, and not before."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from phimu.data.logged import LoggedDataset, Transitions
from phimu.data.sets.checksums import sidecar
from phimu.data.sets.hdf5 import MINARI_FILE
from phimu.data.sets.writing import Origin, write_d4rl, write_minari
from phimu.environments.task import Task
from phimu.errors import InputError
from phimu.runs.files import fingerprint, naming, remove, sync_directory, write_atomically

Layout = Literal["d4rl", "minari"]


def check_out(out: Path, layout: Layout) -> None:
    """Whether a dataset can be written there, asked before it is collected."""
    if layout not in get_args(Layout):
        raise InputError(f"layout is {layout!r}: choose {' or '.join(get_args(Layout))}.")
    if layout == "d4rl" and out.suffix not in (".hdf5", ".h5"):
        raise InputError(f"out is {out}: give a name that ends in .hdf5.")
    if os.path.lexists(out):
        raise InputError(f"out is {out}, which exists: choose another name, or delete it first.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"out is {out}, whose directory does not exist: make it first.")


def env_spec(task: Task) -> str | None:
    """Gymnasium's JSON of the environment, where it has one."""
    try:
        return None if task.env.spec is None else task.env.spec.to_json()
    except (TypeError, ValueError):  # options that have no JSON form
        return None


def origin_of(task: Task, out: Path, policy: str, seed: int | None = None) -> Origin:
    """What a dataset of this task, written as `out`, says of itself."""
    return Origin(task.name, out.stem, policy, task.action_range, seed, env_spec(task))


def joined(sets: Sequence[LoggedDataset], out: Path) -> tuple[Transitions, Origin]:
    """The transitions of datasets of one task, one dataset after the other."""
    if len(sets) < 2:
        raise InputError(f"{len(sets)} sets cannot be joined: name at least two.")
    first = sets[0]
    for other in sets[1:]:
        for what, here, there in (
            ("task", first.task, other.task),
            ("sizes", first.spec[:2], other.spec[:2]),
            ("action range", _ends(first), _ends(other)),
        ):
            if here != there:
                raise InputError(
                    f"{first.name} has {what} {here} and {other.name} has {there}: "
                    "join sets of one task."
                )
    columns = [np.concatenate(parts) for parts in zip(*(s.transitions for s in sets), strict=True)]
    rows = Transitions(*columns)
    start, episodes = 0, 0
    for each in sets:
        rows.episode[start : start + len(each)] += episodes
        start, episodes = start + len(each), episodes + int(each.transitions.episode[-1]) + 1
    words = ", then ".join(f"{each.name} with sha256 {each.sha256}" for each in sets)
    return rows, Origin(first.task, out.stem, words, first.action_range)


def _ends(data: LoggedDataset) -> tuple[list[float], list[float]]:
    return data.action_range.low.tolist(), data.action_range.high.tolist()


def save_set(
    out: Path, transitions: Transitions, origin: Origin, layout: Layout, compress: bool = False
) -> str:
    """Write a dataset; the sha256 of its HDF5 file, in D4RL's layout also written beside it."""
    check_out(out, layout)
    write = write_d4rl if layout == "d4rl" else write_minari
    with _aside(out) as aside:
        write(aside, transitions, origin, compress)
        digest = fingerprint(aside if layout == "d4rl" else aside / MINARI_FILE)["sha256"]
        if layout == "d4rl":  # before the set has its name, so that the two always agree
            line = f"{digest}  {out.name}\n"
            write_atomically(sidecar(out), line.encode())
    return digest


@contextlib.contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """A place to write in; at the end what is there is fsynced and renamed to `out`."""
    aside = out.with_name(f".{out.name}.part")
    with naming(out):
        remove(aside)  # what a kill left
        try:
            yield aside
            for path in (aside, *aside.rglob("*")):
                sync_directory(path)  # fsync knows no difference between the two
            os.rename(aside, out)
        except BaseException:
            remove(aside)
            raise
        sync_directory(out.absolute().parent)
