"""Minari's sets, against what the minari package itself writes and reads."""

import json
import warnings

import gymnasium
import numpy as np
import pytest

from phimu.data.sets.opening import open_set
from phimu.errors import InputError

h5py = pytest.importorskip("h5py")
minari = pytest.importorskip("minari")

ID = "pendulum/random-v0"


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Three episodes of 20 steps and one that was left after 7, in Minari's local directory."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gymnasium.make("Pendulum-v1", max_episode_steps=20))
    env.action_space.seed(0)
    for seed, steps in enumerate((20, 20, 20, 7)):
        env.reset(seed=seed)
        for _ in range(steps):
            env.step(env.action_space.sample())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like to have an author and a description
        made = env.create_dataset(ID)
    env.close()
    return made


def test_as_minari_reads_it(recorded, tmp_path):
    read = open_set(f"minari:{ID}")
    columns = read.transitions
    assert (len(read), read.name, read.task) == (67, "pendulum-random-v0", "Pendulum-v1")
    assert (read.layout, read.action_low.tolist(), read.action_high.tolist()) == (
        "minari",
        [-2],
        [2],
    )
    assert np.flatnonzero(columns.truncated).tolist() == [19, 39, 59, 66]
    for number, episode in enumerate(recorded.iterate_episodes()):
        rows = columns.episode == number
        np.testing.assert_array_equal(columns.observation[rows], episode.observations[:-1])
        np.testing.assert_array_equal(columns.next_observation[rows], episode.observations[1:])
        np.testing.assert_array_equal(2 * columns.action[rows], episode.actions)
        np.testing.assert_array_equal(columns.reward[rows], episode.rewards.astype(np.float32))
    for source in (tmp_path / ID, f"minari:{tmp_path / ID}"):
        assert open_set(source).sha256 == read.sha256


def test_refused(recorded, tmp_path):
    path = tmp_path / ID / "data" / "main_data.hdf5"

    def refused(*parts):
        with pytest.raises(InputError) as caught:
            open_set(f"minari:{ID}")
        for part in (str(path.parent), *parts):
            assert part in str(caught.value)

    def change(name, value):
        with h5py.File(path, "a") as file:
            kept = file[f"episode_1/{name}"][:]
            del file[f"episode_1/{name}"]
            file[f"episode_1/{name}"] = value(kept)
        return lambda: change(name, lambda _: kept)

    for name, value, complaint in (
        ("observations", lambda kept: kept[:-1], "has shape (20, 3): give (21, 3)"),
        ("observations", lambda kept: kept[:, :2], "has shape (21, 2): give (21, 3)"),
        ("rewards", lambda kept: np.where(np.arange(20) == 4, np.nan, kept), "in row 4 is nan"),
        ("truncations", lambda kept: np.arange(20) == 4, "in row 4 is 1, although"),
        ("actions", lambda kept: kept[:0], "is empty: drop that episode"),
        ("actions", lambda kept: kept[:, 0], "has shape (20,)"),
    ):
        restore = change(name, value)
        refused(f"episode_1/{name}", complaint)
        restore()
    assert len(open_set(f"minari:{ID}")) == 67
    with h5py.File(path, "a") as file:
        file["episode_4"] = h5py.ExternalLink("other.hdf5", "/episode_0")
    refused("episode_4 is a link to another place")
    with h5py.File(path, "a") as file:
        del file["episode_4"]
    with h5py.File(path, "a") as file:  # one episode under many names
        file["long/actions"] = np.zeros((1_000_000, 1), np.int8)
        for number in range(4, 250):
            file[f"episode_{number}"] = file["long"]
    refused("declares 246,000,067 actions, more than it can hold")
    with pytest.raises(InputError, match="is a Minari file: name the directory"):
        open_set(path)


def test_metadata_of_strangers(recorded, tmp_path):
    beside = tmp_path / ID / "data" / "metadata.json"
    about = json.loads(beside.read_text())
    spec = json.loads(about["env_spec"]) | {"id": "os:Pendulum-v1"}
    beside.write_text(json.dumps(about | {"env_spec": json.dumps(spec), "dataset_id": "../../x"}))
    read = open_set(f"minari:{ID}")
    assert (read.task, read.name) == (None, "x")
    discrete = json.dumps({"type": "Discrete", "n": 3, "start": 0, "dtype": "int64"})
    beside.write_text(json.dumps(about | {"action_space": discrete}))
    with pytest.raises(InputError, match="actions are Discrete"):
        open_set(f"minari:{ID}")
    space = json.loads(about["action_space"]) | {"high": [float("inf")]}
    beside.write_text(json.dumps(about | {"action_space": json.dumps(space)}))
    with pytest.raises(InputError, match="give finite numbers"):
        open_set(f"minari:{ID}")
    assert len(open_set(f"minari:{ID}", action_low=-2, action_high=2)) == 67
    beside.write_text("[" * 100_000)
    with pytest.raises(InputError, match="is no JSON object"):
        open_set(f"minari:{ID}")


def test_nothing_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(InputError, match="`minari download mujoco/hopper/medium-v0`"):
        open_set("minari:mujoco/hopper/medium-v0")
    (tmp_path / "arrow" / "data").mkdir(parents=True)
    with pytest.raises(InputError, match="only Minari's HDF5 sets"):
        open_set("minari:arrow")
