"""Transitions as files that others read: D4RL's layout, one HDF5 file, and Minari's, a directory.

These functions fill a place that is the caller's; `phimu.collection.sets` makes that safe.
"""

import itertools
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phimu.action_range import Actions, Choices
from phimu.data.logged import Transitions
from phimu.data.sets.hdf5 import D4RL, MINARI, MINARI_FILE, import_h5py
from phimu.errors import InputError

MINARI_VERSION = "0.5.4"  # whose layout this is


@dataclass(frozen=True)
class Origin:
    """Where a dataset comes from: what a file says of itself."""

    task: str | None  # a Gymnasium id, where it is known
    name: str  # such as hopper_medium
    policy: str  # who acted, in words
    actions: Actions  # how those of the transitions become the task's own
    seed: int | None = None
    env_spec: str | None = None  # Gymnasium's JSON of the environment, for Minari


def write_d4rl(
    path: Path, transitions: Transitions, origin: Origin, compress: bool = False
) -> None:
    """One HDF5 file with the columns of D4RL's v2 datasets; the same input gives the same bytes."""
    task_units = transitions._replace(action=_in_units_of_task(transitions.action, origin))
    with import_h5py().File(path, "w") as file:
        for key, name in D4RL.items():
            _create(file, name, getattr(task_units, key), compress)
        file.attrs.update(_attributes(origin))


def write_minari(
    directory: Path, transitions: Transitions, origin: Origin, compress: bool = False
) -> None:
    """`data/main_data.hdf5`, a group per episode, and `data/metadata.json` as Minari has them."""
    _refuse_gaps(transitions)
    file_path = directory / MINARI_FILE
    file_path.parent.mkdir(parents=True)
    task_units = transitions._replace(action=_in_units_of_task(transitions.action, origin))
    borders = np.flatnonzero(np.diff(transitions.episode, prepend=-1, append=-1)).tolist()
    with import_h5py().File(file_path, "w", track_order=True) as file:
        file.attrs.update(_attributes(origin))
        for number, (start, end) in enumerate(itertools.pairwise(borders)):
            group = file.create_group(f"episode_{number}")
            group.attrs.update({"id": number, "total_steps": end - start})
            for key, name in MINARI.items():
                column = getattr(task_units, key)[start:end]
                if key == "observation":
                    column = np.append(column, task_units.next_observation[end - 1 : end], axis=0)
                _create(group, name, column, compress)
    anything = np.full(transitions.observation.shape[1], math.inf)
    # Minari takes letters, digits, - and _, and a version at the end of an id.
    name = re.sub(r"[^-\w]", "_", origin.name)
    facts: dict[str, Any] = {
        "dataset_id": name if re.search(r"-v\d+$", name) else f"{name}-v0",
        "minari_version": MINARI_VERSION,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "total_steps": len(transitions.reward),
        "total_episodes": len(borders) - 1,
        "dataset_size": round(os.path.getsize(file_path) / 1e6, 1),  # in MB
        "observation_space": _box(-anything, anything),
        "action_space": _space(origin.actions),
        "algorithm_name": origin.policy,
        "author": ["phimu"],
    }
    if origin.env_spec is not None:
        facts["env_spec"] = origin.env_spec
    text = json.dumps(facts, indent=2, sort_keys=True)
    (file_path.parent / "metadata.json").write_text(text + "\n", encoding="utf-8")


def _create(group: Any, name: str, column: np.ndarray, compress: bool) -> None:
    group.create_dataset(name, data=column, compression="gzip" if compress else None)


def _attributes(origin: Origin) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "task": origin.task,
        "name": origin.name,
        "creator": "phimu",
        "policy": origin.policy,
        "seed": origin.seed,
    }
    if isinstance(origin.actions, Choices):
        attributes |= {"action_start": origin.actions.start, "action_count": origin.actions.size}
    else:
        attributes |= {
            "action_low": np.asarray(origin.actions.low, np.float32),
            "action_high": np.asarray(origin.actions.high, np.float32),
        }
    return {name: value for name, value in attributes.items() if value is not None}


def _space(actions: Actions) -> str:
    """Of actions, as Minari writes it."""
    if isinstance(actions, Choices):
        start, count = actions.start, actions.size
        return json.dumps({"type": "Discrete", "dtype": "int64", "start": start, "n": count})
    return _box(actions.low, actions.high)


def _box(low: np.ndarray, high: np.ndarray) -> str:
    """A space as Minari writes it: JSON within JSON, with Infinity where there is no bound."""
    bounds = {"low": np.asarray(low, np.float32), "high": np.asarray(high, np.float32)}
    lists = {name: bound.tolist() for name, bound in bounds.items()}
    return json.dumps({"type": "Box", "dtype": "float32", "shape": [len(low)], **lists})


def _in_units_of_task(action: np.ndarray, origin: Origin) -> np.ndarray:
    """As the environment got it: from [-1, 1] to [low, high], or from one-hot to integers."""
    own = origin.actions.outward(action)
    return own if isinstance(origin.actions, Choices) else own.astype(np.float32)


def _refuse_gaps(transitions: Transitions) -> None:
    """Minari keeps T + 1 observations of an episode, so each s' must be the next s."""
    within = np.diff(transitions.episode) == 0
    follows = (transitions.next_observation[:-1] == transitions.observation[1:]).all(axis=1)
    if bad := np.flatnonzero(within & ~follows).tolist():
        raise InputError(
            f"next_observation of row {bad[0]} is not the observation of the row after it, which "
            "Minari's layout cannot hold: write the d4rl layout."
        )
