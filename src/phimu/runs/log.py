"""The metrics of a run: one JSON object per line, mirrored to TensorBoard or W&B on request."""

import contextlib
import importlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, SupportsFloat

from phimu.errors import InputError
from phimu.runs.files import naming, write_atomically

TAIL = 32_768  # bytes: more rows than there are between two evaluations


class MetricsLog:
    """Appends rows to `path`, first dropping those that the resumed run will write again.

    `resume_step` is the step of the checkpoint, None without one: then the log starts empty.
    Write the rows of a step before its checkpoint, for only steps beyond it are run again.
    `keep` can refuse earlier rows too. `wandb` holds the keyword arguments of `wandb.init`, such
    as project, dir and config.
    """

    def __init__(
        self,
        path: Path,
        resume_step: int | None,
        tensorboard_dir: Path | None = None,
        wandb: dict[str, Any] | None = None,
        keep: Callable[[dict[str, Any]], bool] = lambda row: True,
    ):
        if path.exists():
            _drop_rows(path, resume_step, keep)
        self.path = path
        self._mirrors: list[_TensorBoard | _Wandb] = []
        if tensorboard_dir is not None:
            self._mirrors.append(_TensorBoard(tensorboard_dir, resume_step))
        if wandb is not None:
            self._mirrors.append(_Wandb(wandb))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)

    def write(self, step: int, kind: str, values: Mapping[str, SupportsFloat]) -> None:
        """One row; its kind is train, evaluation, estimate or the name of an earlier phase."""
        numbers = {name: float(value) for name, value in values.items()}
        for name, number in numbers.items():
            if not math.isfinite(number):  # JSON has none, and the run should have stopped
                raise ValueError(f"The metric {name} is {number} at step {step:,}.")
            if name in ("step", "kind"):
                raise ValueError(f"A metric cannot be called {name}.")
        with naming(self.path):
            self._file.write(json.dumps({"step": int(step), "kind": kind, **numbers}) + "\n")
            self._file.flush()
        for mirror in self._mirrors:
            mirror.write(step, kind, numbers)

    def sync(self) -> None:
        """Call before a checkpoint: a power cut must not take rows that will not be made again."""
        with naming(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with naming(self.path):
            self._file.close()  # once more tries to write a row for which there was no space
        for mirror in self._mirrors:
            mirror.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All rows, without a last line that a kill cut short."""
    if not path.is_file():
        raise InputError(f"There is no metrics log at {path}: name the metrics.jsonl of a run.")
    return [row for _, row in _parse(path)]


def last_rows(path: Path) -> list[dict[str, Any]]:
    """Some, for those who watch a run: what cannot be read just now is left out."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    rows = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            rows.append(row_of(line))
    return rows


def row_of(line: bytes) -> dict[str, Any]:
    """A line as a row; ValueError or RecursionError where it is none."""
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise ValueError("no step")
    return row


def _parse(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Each line beside its row; the line is kept so that a rewrite changes no byte of it."""
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    parsed = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append((line, row_of(line)))
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break  # cut short by a kill, or the file is empty
            raise InputError(
                f"Line {number} of {path} is not a row of metrics ({error}): repair or delete it."
            ) from error
    return parsed


def _drop_rows(path: Path, resume_step: int | None, keep: Callable[[dict[str, Any]], bool]) -> None:
    kept = b""
    if resume_step is not None:
        rows = ((line, row) for line, row in _parse(path) if row["step"] <= resume_step)
        kept = b"".join(line + b"\n" for line, row in rows if keep(row))
    if kept != path.read_bytes():
        write_atomically(path, kept)


def _import(module: str, extra: str) -> Any:
    """Late, so that only those who ask for a mirror pay for it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f'Logging to {extra} needs a package that is missing: pip install "phimu[{extra}]".'
        ) from error


class _TensorBoard:
    def __init__(self, directory: Path, resume_step: int | None):
        writer = _import("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._summary = _import("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        events = _import("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._event = events.Event
        self._writer = writer.EventFileWriter(str(directory))
        # Event files cannot be cut; a session start tells TensorBoard to drop what lies beyond.
        first_step = 0 if resume_step is None else resume_step + 1
        started = events.SessionLog(status=events.SessionLog.START)
        self._add(step=first_step, session_log=started)

    def write(self, step: int, kind: str, values: dict[str, float]) -> None:
        scalars = [
            self._summary.Value(tag=f"{kind}/{name}", simple_value=value)
            for name, value in values.items()
        ]
        self._add(step=step, summary=self._summary(value=scalars))

    def _add(self, **event: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), **event))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    def __init__(self, options: dict[str, Any]):
        self._run = _import("wandb", "wandb").init(**options)

    def write(self, step: int, kind: str, values: dict[str, float]) -> None:
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        self._run.finish()
