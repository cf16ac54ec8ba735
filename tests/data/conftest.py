"""Sets as they come from elsewhere, made here: small, and with known answers."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def rows():
    """rows(lengths): columns of D4RL's layout, where s' is s + 1 within an episode."""

    def make(lengths=(4, 3, 5), terminal=(True, False, True), observation_dim=3, action_dim=2):
        rng = np.random.default_rng(0)
        parts = []
        for number, length in enumerate(lengths):
            start = 100 * number + rng.normal(size=observation_dim)
            parts.append(start + np.arange(length + 1)[:, None])
        ends = np.cumsum(lengths) - 1
        terminals = np.zeros(sum(lengths), bool)
        terminals[ends] = terminal
        timeouts = np.zeros(sum(lengths), bool)
        timeouts[ends] = ~np.array(terminal)
        return {
            "observations": np.concatenate([part[:-1] for part in parts]).astype(np.float32),
            "actions": rng.uniform(-1, 1, (sum(lengths), action_dim)).astype(np.float32),
            "rewards": rng.normal(size=sum(lengths)).astype(np.float32),
            "next_observations": np.concatenate([part[1:] for part in parts]).astype(np.float32),
            "terminals": terminals,
            "timeouts": timeouts,
        }

    return make


@pytest.fixture
def write(tmp_path):
    """write(columns, name): the file, HDF5 or .npz by its suffix. None leaves a column out."""

    def make(columns, name="logged.hdf5", attributes=None, **options) -> Path:
        path = tmp_path / name
        present = {key: value for key, value in columns.items() if value is not None}
        if path.suffix == ".npz":
            np.savez(path, **present)
            return path
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            for key, value in present.items():
                file.create_dataset(key, data=value, **options)
            file.attrs.update(attributes or {})
        return path

    return make
