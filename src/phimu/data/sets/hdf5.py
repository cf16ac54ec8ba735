"""HDF5 files of strangers: only what is in the file itself is read, and only if it can be there."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.sets.columns import as_flags, check_finite, check_shape, most_bytes
from phimu.errors import InputError

_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """The file as h5py sees it; whatever h5py says of a damaged one becomes one sentence."""
    try:
        import h5py
    except ImportError:
        raise InputError(
            f"{path} is HDF5, which needs h5py: pip install 'phimu[offline]'"
        ) from None
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            yield file
    except _FAULTS as error:
        said = str(error).strip("'\"") or type(error).__name__
        raise InputError(f"{path} is no HDF5 file, or damaged or cut short: {said}") from error


class Hdf5Columns:
    """Reads the columns of one group of a file, each checked before memory is set aside for it."""

    def __init__(self, path: Path, group: Any):
        self.path, self.group = path, group
        self._most = most_bytes(path)
        self._checked: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return self.group.get(name, getlink=True) is not None

    def label(self, name: str) -> str:
        return f"{self.path}: {self.group.name.rstrip('/')}/{name}".replace(": /", ": ")

    def shape(self, name: str, ndim: int) -> tuple[int, ...]:
        dataset = self._dataset(name, "biuf")
        check_shape(dataset.shape, ndim, self.label(name))
        return tuple(dataset.shape)

    def numbers(self, name: str, ndim: int, out: np.ndarray | None = None) -> np.ndarray:
        """[N, size] or [N] float32, into `out` where it is given.

        HDF5 converts other types in small pieces, so there is no second copy.
        """
        dataset = self._dataset(name, "iuf")
        check_shape(dataset.shape, ndim, self.label(name))
        column = np.empty(dataset.shape, np.float32) if out is None else out
        if column.size:
            with self._naming(name):
                dataset.read_direct(column.reshape(dataset.shape))
        check_finite(column, self.label(name))
        return column if ndim == 2 else column.reshape(-1)

    def flags(self, name: str) -> np.ndarray:
        """[N] bool, of whatever type they are."""
        dataset = self._dataset(name, "biuf")
        check_shape(dataset.shape, 1, self.label(name))
        with self._naming(name):
            values = dataset[()].reshape(-1)
        return as_flags(values, self.label(name))

    def _dataset(self, name: str, kinds: str) -> Any:
        """A dataset with all of its numbers in this file."""
        with self._naming(name):
            if name not in self._checked:
                self._checked[name] = self._opened(name)
            dataset = self._checked[name]
            if dataset.dtype.kind not in kinds:
                raise InputError(f"{self.label(name)} has type {dataset.dtype}: give numbers.")
        return dataset

    def _opened(self, name: str) -> Any:
        import h5py

        label = self.label(name)
        link = self.group.get(name, getlink=True)
        if link is None:
            raise InputError(f"{label} is missing: it must be there.")
        if not isinstance(link, h5py.HardLink):
            raise InputError(f"{label} is a link to another place: copy the numbers into it.")
        dataset = self.group[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
            raise InputError(f"{label} is no array: give one number or vector per row.")
        if dataset.is_virtual or dataset.external:
            raise InputError(f"{label} lies in other files: copy the numbers into this one.")
        self._check_size(dataset, label)
        return dataset

    def _check_size(self, dataset: Any, label: str) -> None:
        """Whether the file can hold what the shape declares, before that much is allocated."""
        size = math.prod(dataset.shape) * dataset.dtype.itemsize
        if dataset.chunks is None:
            whole = size <= min(dataset.id.get_storage_size(), self.path.stat().st_size)
        else:
            chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
            count = math.prod(map(_ceil_divide, dataset.shape, dataset.chunks))
            whole = max(size, chunk) <= self._most and dataset.id.get_num_chunks() >= count
        if not whole:
            raise InputError(
                f"{label} declares {size:,} bytes in shape {dataset.shape}, which are not in the "
                f"file: it is damaged or was never written in full."
            )

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Faults of HDF5 with the name of the field."""
        try:
            yield
        except _FAULTS as error:
            raise InputError(
                f"{self.label(name)} cannot be read, it is damaged: {error}"
            ) from error


def text_attribute(group: Any, name: str) -> str | None:
    """A short string, or None where there is none."""
    if name not in group.attrs or group.attrs.get_id(name).shape != ():
        return None
    value = group.attrs[name]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _ceil_divide(rows: int, chunk: int) -> int:
    return -(-rows // chunk)
