import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import h5py
import minari
import numpy as np
import pytest

from phimu.action_range import ActionRange, Choices
from phimu.data.logged import Transitions
from phimu.data.sets.writing import Origin, write_d4rl, write_minari
from phimu.errors import InputError

ORIGIN = Origin(
    task="Pendulum-v1",
    name="pendulum medium",
    policy="somebody",
    actions=ActionRange(np.full(2, -1.0), np.full(2, 1.0)),
    seed=3,
)
COLUMNS = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "next_observations": "next_observation",
    "terminals": "terminated",
    "timeouts": "truncated",
}


def episodes(*lengths: int, seed: int = 0) -> Transitions:
    """Random walks; the first episode terminates, the others are cut."""
    rng = np.random.default_rng(seed)
    walks = [rng.standard_normal((length + 1, 3), np.float32) for length in lengths]
    ends = np.concatenate([np.arange(length) == length - 1 for length in lengths])
    episode = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    size = len(ends)
    return Transitions(
        np.concatenate([walk[:-1] for walk in walks]),
        rng.uniform(-1, 1, (size, 2)).astype(np.float32),
        rng.standard_normal(size, np.float32),
        np.concatenate([walk[1:] for walk in walks]),
        ends & (episode == 0),
        ends & (episode > 0),
        episode,
    )


@pytest.mark.parametrize("compress", [False, True])
def test_d4rl_columns_come_back_bit_for_bit(tmp_path: Path, compress: bool) -> None:
    written = episodes(4, 1, 3)
    write_d4rl(tmp_path / "set.hdf5", written, ORIGIN, compress)
    with h5py.File(tmp_path / "set.hdf5") as file:
        assert set(file) == set(COLUMNS)
        for name, field in COLUMNS.items():
            column = getattr(written, field)
            assert file[name].dtype == column.dtype
            assert file[name].compression == ("gzip" if compress else None)
            np.testing.assert_array_equal(file[name][:], column)
        said = {name: file.attrs[name] for name in ("task", "name", "creator", "policy", "seed")}
    assert said == {
        "task": "Pendulum-v1",
        "name": "pendulum medium",
        "creator": "phimu",
        "policy": "somebody",
        "seed": 3,
    }


def test_the_same_set_has_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.hdf5", "b.hdf5"):
        write_d4rl(tmp_path / name, episodes(4, 2), ORIGIN)
    assert (tmp_path / "a.hdf5").read_bytes() == (tmp_path / "b.hdf5").read_bytes()


def test_actions_are_written_in_the_units_of_the_task(tmp_path: Path) -> None:
    low, high = np.array([-2.0, 0.0]), np.array([2.0, 10.0])
    written = episodes(5)
    written.action[:3] = [[-1, -1], [0, 0], [1, 1]]
    write_d4rl(tmp_path / "a.hdf5", written, replace(ORIGIN, actions=ActionRange(low, high)))
    with h5py.File(tmp_path / "a.hdf5") as file:
        np.testing.assert_array_equal(file["actions"][:3], [[-2, 0], [0, 5], [2, 10]])
        expected = low + (high - low) * (written.action.astype(np.float64) + 1) / 2
        np.testing.assert_allclose(file["actions"][:], expected, atol=1e-6)
        np.testing.assert_array_equal(file.attrs["action_low"], low)
        np.testing.assert_array_equal(file.attrs["action_high"], high)


def test_one_hot_actions_are_written_as_integers(tmp_path: Path) -> None:
    """In both layouts, as the environment got them."""
    written, origin = episodes(4, 2), replace(ORIGIN, actions=Choices(3, start=-1))
    chosen = np.array([0, 2, 1, 1, 0, 2])
    written = written._replace(action=np.eye(3, dtype=np.float32)[chosen])
    write_d4rl(tmp_path / "a.hdf5", written, origin)
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert file["actions"].dtype == np.int64
        np.testing.assert_array_equal(file["actions"][:], chosen - 1)
        assert (file.attrs["action_start"], file.attrs["action_count"]) == (-1, 3)
    write_minari(tmp_path / "set", written, origin)
    loaded = minari.MinariDataset(tmp_path / "set" / "data")
    assert loaded.spec.action_space == gymnasium.spaces.Discrete(3, start=-1)
    actions = [episode.actions for episode in loaded.iterate_episodes()]
    np.testing.assert_array_equal(np.concatenate(actions), chosen - 1)


def test_minari_loads_what_was_written(tmp_path: Path) -> None:
    written = episodes(4, 1, 3)
    ends = ActionRange(np.full(2, -1.0), np.full(2, 3.0))
    write_minari(tmp_path / "set", written, replace(ORIGIN, actions=ends))
    loaded = minari.MinariDataset(tmp_path / "set" / "data")
    assert (loaded.total_steps, loaded.total_episodes) == (8, 3)
    assert loaded.spec.dataset_id == "pendulum_medium-v0"
    assert loaded.spec.observation_space.shape == (3,)
    np.testing.assert_array_equal(loaded.spec.action_space.high, [3, 3])
    for number, episode in enumerate(loaded.iterate_episodes()):
        rows = np.flatnonzero(written.episode == number)
        last = written.next_observation[rows[-1:]]
        observations = np.concatenate([written.observation[rows], last])
        np.testing.assert_array_equal(episode.observations, observations)
        np.testing.assert_allclose(episode.actions, 1 + 2 * written.action[rows], atol=1e-6)
        np.testing.assert_array_equal(episode.rewards, written.reward[rows])
        np.testing.assert_array_equal(episode.terminations, written.terminated[rows])
        np.testing.assert_array_equal(episode.truncations, written.truncated[rows])
    facts = json.loads((tmp_path / "set/data/metadata.json").read_text())
    assert facts["algorithm_name"] == "somebody"


def test_minari_refuses_a_gap_within_an_episode(tmp_path: Path) -> None:
    written = episodes(4, 3)
    written.next_observation[1, 0] += 1
    with pytest.raises(InputError, match="next_observation of row 1 is not the observation of"):
        write_minari(tmp_path / "set", written, ORIGIN)
