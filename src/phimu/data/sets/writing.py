"""Transitions as files that others read: D4RL's layout, one HDF5 file, and Minari's, a directory.

These functions fill a place that is the caller's; `phimu.collection.sets` makes that safe.
"""

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phimu.data.logged import Transitions
from phimu.errors import InputError

MINARI_FILE = "data/main_data.hdf5"  # in the directory of a set
MINARI_VERSION = "0.5.4"  # whose layout this is


@dataclass(frozen=True)
class Origin:
    """Where a set comes from: what a file says of itself."""

    task: str | None  # a Gymnasium id, where it is known
    name: str  # such as hopper_medium
    policy: str  # who acted, in words
    action_low: np.ndarray  # [action_dim]: -1 of the transitions, in the task's own units
    action_high: np.ndarray  # [action_dim]: 1
    seed: int | None = None
    env_spec: str | None = None  # Gymnasium's JSON of the environment, for Minari


def write_d4rl(
    path: Path, transitions: Transitions, origin: Origin, compress: bool = False
) -> None:
    """One HDF5 file with the columns of D4RL's v2 sets; the same input gives the same bytes."""
    columns = {
        "observations": transitions.observation,
        "actions": _in_units_of_task(transitions.action, origin),
        "rewards": transitions.reward,
        "next_observations": transitions.next_observation,
        "terminals": transitions.terminated,
        "timeouts": transitions.truncated,
    }
    with _hdf5().File(path, "w") as file:
        for name, column in columns.items():
            file.create_dataset(name, data=column, compression="gzip" if compress else None)
        file.attrs.update(_attributes(origin))


def write_minari(
    directory: Path, transitions: Transitions, origin: Origin, compress: bool = False
) -> None:
    """`data/main_data.hdf5`, a group per episode, and `data/metadata.json` as Minari has them."""
    _refuse_gaps(transitions)
    file_path = directory / MINARI_FILE
    file_path.parent.mkdir(parents=True)
    action = _in_units_of_task(transitions.action, origin)
    episodes = 0
    with _hdf5().File(file_path, "w", track_order=True) as file:
        file.attrs.update(_attributes(origin))
        for number, rows in enumerate(_episodes(transitions.episode)):
            last = transitions.next_observation[rows.stop - 1 : rows.stop]
            columns = {
                "observations": np.concatenate([transitions.observation[rows], last]),
                "actions": action[rows],
                "rewards": transitions.reward[rows],
                "terminations": transitions.terminated[rows],
                "truncations": transitions.truncated[rows],
            }
            group = file.create_group(f"episode_{number}")
            group.attrs.update({"id": number, "total_steps": rows.stop - rows.start})
            for name, column in columns.items():
                group.create_dataset(name, data=column, compression="gzip" if compress else None)
            episodes = number + 1
    facts = _minari_facts(transitions, origin) | {
        "total_episodes": episodes,
        "dataset_size": round(os.path.getsize(file_path) / 1e6, 1),  # in MB
    }
    text = json.dumps(facts, indent=2, sort_keys=True)
    (file_path.parent / "metadata.json").write_text(text + "\n", encoding="utf-8")


def _hdf5() -> Any:
    try:
        import h5py
    except ImportError:
        raise InputError("Writing HDF5 needs h5py: pip install 'phimu[offline]'.") from None
    return h5py


def _attributes(origin: Origin) -> dict[str, Any]:
    attributes = {
        "task": origin.task,
        "name": origin.name,
        "creator": "phimu",
        "policy": origin.policy,
        "seed": origin.seed,
        "action_low": np.asarray(origin.action_low, np.float32),
        "action_high": np.asarray(origin.action_high, np.float32),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _minari_facts(transitions: Transitions, origin: Origin) -> dict[str, Any]:
    anything = np.full(transitions.observation.shape[1], math.inf)
    facts = {
        "dataset_id": _minari_id(origin.name),
        "minari_version": MINARI_VERSION,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "total_steps": len(transitions.reward),
        "observation_space": _box(-anything, anything),
        "action_space": _box(origin.action_low, origin.action_high),
        "algorithm_name": origin.policy,
        "author": ["phimu"],
        "env_spec": origin.env_spec,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _minari_id(name: str) -> str:
    """Minari takes letters, digits, - and _, and a version at the end."""
    safe = re.sub(r"[^-\w]", "_", name)
    return safe if re.search(r"-v\d+$", safe) else f"{safe}-v0"


def _box(low: np.ndarray, high: np.ndarray) -> str:
    """A space as Minari writes it: JSON within JSON, with Infinity where there is no bound."""
    bounds = {"low": np.asarray(low, np.float32), "high": np.asarray(high, np.float32)}
    lists = {name: bound.tolist() for name, bound in bounds.items()}
    return json.dumps({"type": "Box", "dtype": "float32", "shape": [len(low)], **lists})


def _in_units_of_task(action: np.ndarray, origin: Origin) -> np.ndarray:
    """From [-1, 1] to [low, high], as the environment got it."""
    low, high = (np.asarray(x, np.float64) for x in (origin.action_low, origin.action_high))
    if (low == -1).all() and (high == 1).all():
        return action
    scaled = (low / 2 + high / 2) + (high / 2 - low / 2) * action
    return np.clip(scaled, low, high).astype(np.float32)


def _episodes(episode: np.ndarray) -> Iterator[slice]:
    borders = np.flatnonzero(np.diff(episode)) + 1
    starts, ends = [0, *borders.tolist()], [*borders.tolist(), len(episode)]
    yield from map(slice, starts, ends)


def _refuse_gaps(transitions: Transitions) -> None:
    """Minari keeps T + 1 observations of an episode, so each s' must be the next s."""
    within = np.diff(transitions.episode) == 0
    follows = (transitions.next_observation[:-1] == transitions.observation[1:]).all(axis=1)
    if bad := np.flatnonzero(within & ~follows).tolist():
        raise InputError(
            f"next_observation of row {bad[0]} is not the observation of the row after it, which "
            "Minari's layout cannot hold: write the d4rl layout."
        )
