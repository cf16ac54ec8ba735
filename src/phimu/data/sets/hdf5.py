"""HDF5 files of strangers: only what is in the file itself is read, and only if it can be there."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.sets.checksums import most_bytes
from phimu.data.sets.columns import FLAGS, check_type, converted
from phimu.errors import InputError

# What the two layouts call our columns.
D4RL = {
    "observation": "observations",
    "action": "actions",
    "reward": "rewards",
    "next_observation": "next_observations",
    "terminated": "terminals",
    "truncated": "timeouts",
}
MINARI = {key: name for key, name in D4RL.items() if key != "next_observation"}
MINARI |= {"terminated": "terminations", "truncated": "truncations"}
MINARI_FILE = "data/main_data.hdf5"  # in the directory of a dataset

_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)


def import_h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise InputError("HDF5 files need h5py: pip install 'phimu[offline]'.") from None
    return h5py


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """The file as h5py sees it; whatever h5py says of a damaged one becomes one sentence."""
    h5py = import_h5py()
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            yield file
    except _FAULTS as error:
        said = str(error).strip("'\"") or type(error).__name__
        raise InputError(f"{path} is no HDF5 file, or damaged or cut short: {said}") from error


class Hdf5Columns:
    """Reads the columns of one group of a file, each checked before memory is set aside for it."""

    def __init__(self, path: Path, group: Any, names: dict[str, str]):
        self.path, self.group, self.names = path, group, names
        self._opened: dict[str, Any] = {}

    def __contains__(self, key: str) -> bool:
        return self.group.get(self.names[key], getlink=True) is not None

    def label(self, key: str) -> str:
        return f"{self.path}: {self.group.name.rstrip('/')}/{self.names[key]}".replace(": /", ": ")

    def column(self, key: str, out: np.ndarray | None = None) -> np.ndarray:
        """[N, size] or [N], flags as bool and the rest as float32, into `out` where it is given."""
        dataset = self.dataset(key)
        with self._naming(key):
            if key in FLAGS:
                values = dataset[()]
            else:
                values = np.empty(dataset.shape, np.float32) if out is None else out
                if values.size:  # HDF5 converts other types in small pieces: no second copy
                    dataset.read_direct(values.reshape(dataset.shape))
        return converted(key, values, self.label(key))

    def dataset(self, key: str) -> Any:
        """A column's numbers, not read yet, but all in this file and of the right shape."""
        with self._naming(key):
            if key not in self._opened:
                self._opened[key] = self._open(key)
            dataset = self._opened[key]
            check_type(key, dataset.dtype, dataset.shape, self.label(key))
        return dataset

    def _open(self, key: str) -> Any:
        import h5py

        label, name = self.label(key), self.names[key]
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
            count = math.prod(
                -(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)
            )
            most = most_bytes(self.path)
            whole = max(size, chunk) <= most and dataset.id.get_num_chunks() >= count
        if not whole:
            raise InputError(
                f"{label} declares {size:,} bytes in shape {dataset.shape}, which are not in the "
                f"file: it is damaged or was never written in full."
            )

    @contextmanager
    def _naming(self, key: str) -> Iterator[None]:
        """Faults of HDF5 with the name of the field."""
        try:
            yield
        except _FAULTS as error:
            raise InputError(f"{self.label(key)} cannot be read, it is damaged: {error}") from error


def text_attribute(group: Any, name: str) -> str | None:
    """A short string, or None where there is none."""
    if name not in group.attrs or group.attrs.get_id(name).shape != ():
        return None
    value = group.attrs[name]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None
