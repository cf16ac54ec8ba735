"""Sets that can be read: D4RL's quirks, real slices of its files, and arrays."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phimu.data.sets.arrays import from_arrays
from phimu.data.sets.opening import open_set
from phimu.data.sets.scores import V0_FILES, body_of_set, normalised_score
from phimu.errors import InputError

# Transitions, episodes and terminated episodes of the first two episodes of D4RL's files.
# v0 has no next observations: the last row of an episode that was cut is lost, in halfcheetah two.
SLICES = {
    "halfcheetah_medium": (1896, 2, 0),
    "hopper_medium": (524, 2, 2),
    "walker2d_medium": (747, 2, 2),
    "halfcheetah_random-v1": (2000, 2, 0),
    "hopper_random-v1": (50, 2, 2),
    "walker2d_random-v1": (44, 2, 2),
    "halfcheetah_medium_replay-v1": (2000, 2, 0),
    "hopper_medium_replay-v1": (49, 2, 2),
    "walker2d_medium_replay-v1": (31, 2, 2),
    "halfcheetah_medium-v2": (2000, 2, 0),
    "hopper_medium-v2": (911, 2, 2),
    "walker2d_medium-v2": (2000, 2, 0),
}
BESIDE = Path(__file__).parents[3] / "shared" / "data" / "d4rl_slices"


@pytest.mark.parametrize("name", SLICES)
def test_slices_of_d4rl(name):
    h5py = pytest.importorskip("h5py")
    path = Path(os.environ.get("PHIMU_D4RL_SLICES", BESIDE)) / f"{name}.hdf5"
    if not path.exists():
        pytest.skip("no slices of D4RL: PHIMU_D4RL_SLICES names their directory")
    read = open_set(path)
    columns, body = read.transitions, body_of_set(name)
    assert (len(read), columns.episode[-1] + 1, columns.terminated.sum()) == SLICES[name]
    assert columns.terminated.sum() + columns.truncated.sum() == 2
    assert (read.task, read.name, read.spec[:2]) == (body.task, name, body[1:3])
    with h5py.File(path) as file:
        rows = np.flatnonzero(np.diff(columns.episode, prepend=-1))  # of first rows
        first = [0, int(np.flatnonzero(file["terminals"][:] + file["timeouts"][:])[0]) + 1]
        np.testing.assert_array_equal(
            columns.observation[rows], file["observations"][:][first].astype(np.float32)
        )
        np.testing.assert_array_equal(
            columns.next_observation[:-1][~(columns.terminated | columns.truncated)[:-1]],
            columns.observation[1:][~(columns.terminated | columns.truncated)[:-1]],
        )
    cuts = [note for note in read.notes if "taken as cuts: 1" in note]
    assert len(cuts) == (name == "halfcheetah_medium")


def test_v2_keeps_every_row(rows, write):
    columns = rows()
    read = open_set(write(columns))
    assert read.layout == "d4rl"
    assert read.task is None
    assert read.notes == ()
    got = read.transitions
    for name, key in (
        ("observation", "observations"),
        ("action", "actions"),
        ("reward", "rewards"),
        ("next_observation", "next_observations"),
        ("terminated", "terminals"),
        ("truncated", "timeouts"),
    ):
        np.testing.assert_array_equal(getattr(got, name), columns[key])
    assert got.episode.tolist() == [0] * 4 + [1] * 3 + [2] * 5
    assert [column.dtype.name for column in got] == ["float32"] * 4 + ["bool", "bool", "int32"]


def test_v0_has_no_next_observations(rows, write):
    columns = rows()
    true_next = columns.pop("next_observations")
    got = open_set(write(columns)).transitions
    keep = np.setdiff1d(np.arange(12), 6)  # the last row of the episode that was cut
    np.testing.assert_array_equal(got.observation, columns["observations"][keep])
    np.testing.assert_array_equal(got.reward, columns["rewards"][keep])
    np.testing.assert_array_equal(got.terminated, columns["terminals"][keep])
    assert np.flatnonzero(got.truncated).tolist() == [5]
    assert got.episode.tolist() == [0] * 4 + [1] * 2 + [2] * 5
    known = ~got.terminated
    np.testing.assert_array_equal(got.next_observation[known], true_next[keep][known])
    # A terminated row has no s' in the file; it keeps its own s, and nothing is bootstrapped.
    np.testing.assert_array_equal(got.next_observation[~known], got.observation[~known])


def oracle(observations, terminals, timeouts):
    """(row, next row) of the transitions of a file without next observations, row by row."""
    found = []
    for row in range(len(observations)):
        if terminals[row]:
            found.append((row, row))
        elif not timeouts[row] and row + 1 < len(observations):
            found.append((row, row + 1))
    return found


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["", "terminal", "timeout", "both"]), min_size=2, max_size=30))
def test_any_flags_against_a_loop(flags):
    terminals = np.array([flag in ("terminal", "both") for flag in flags])
    timeouts = np.array([flag in ("timeout", "both") for flag in flags])
    observations = np.arange(len(flags), dtype=np.float32)[:, None]
    expected = oracle(observations, terminals, timeouts)
    data = {
        "observation": observations,
        "action": observations * 0,
        "reward": observations[:, 0],
        "terminated": terminals,
        "truncated": timeouts,
    }
    if not expected:
        with pytest.raises(InputError, match="has no transition"):
            from_arrays(**data)
        return
    got = from_arrays(**data).transitions
    assert list(zip(got.observation[:, 0], got.next_observation[:, 0], strict=True)) == expected
    np.testing.assert_array_equal(got.terminated, terminals[[row for row, _ in expected]])
    ends = got.terminated | got.truncated
    assert ends[-1]
    assert not (got.terminated & got.truncated).any()
    # Within an episode rows follow each other; the number goes up by one behind each end.
    np.testing.assert_array_equal(np.diff(got.episode), ends[:-1])
    assert (np.diff(got.observation[:, 0])[~ends[:-1]] == 1).all()


def test_halfcheetah_never_terminates(rows, write):
    columns = rows((5, 5), (True, False), 17, 6)
    for name in ("halfcheetah_medium.hdf5", "halfcheetah-medium-v0.hdf5"):
        read = open_set(write(columns | {"next_observations": None}, name))
        assert not read.transitions.terminated.any()
        assert np.flatnonzero(read.transitions.truncated).tolist() == [3, 7]
        assert any("taken as cuts: 1" in note for note in read.notes)
    assert open_set(write(columns, "other.hdf5")).transitions.terminated.any()


def test_other_types_and_shapes(rows, write):
    columns = rows()
    wide = {key: value.astype(np.float64) for key, value in columns.items()}
    wide |= {"rewards": wide["rewards"][:, None], "terminals": wide["terminals"][:, None]}
    read = open_set(write(wide, compression="gzip", chunks=True))
    for got, expected in zip(read.transitions, open_set(write(columns)).transitions, strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype


def test_without_timeouts(rows, write):
    columns = rows() | {"timeouts": None}
    read = open_set(write(columns))  # next observations tell
    assert read.transitions.episode.tolist() == [0] * 4 + [1] * 3 + [2] * 5
    assert any("cut where the next observation" in note for note in read.notes)
    # D4RL's first files had neither: its tasks stop after 1,000 steps.
    columns = rows((1000, 400), (False, False), 11, 3)
    columns |= {"timeouts": None, "next_observations": None}
    read = open_set(write(columns, "hopper_medium.hdf5"))
    assert len(read) == 1398
    assert np.flatnonzero(read.transitions.truncated).tolist() == [998, 1397]


def test_own_attributes(rows, write):
    columns = rows()
    columns["actions"] *= 2
    attributes = {"task": "Pendulum-v1", "name": "../odd name", "creator": "phimu"}
    attributes |= {"action_low": [-2.0, -2.0], "action_high": [2.0, 2.0]}
    read = open_set(write(columns, "hopper_medium.hdf5", attributes))
    assert (read.task, read.name) == ("Pendulum-v1", "odd-name")
    np.testing.assert_array_equal(read.transitions.action, columns["actions"] / 2)
    assert (read.action_low.tolist(), read.action_high.tolist()) == ([-2, -2], [2, 2])
    assert open_set(write(columns, attributes=attributes), task="X-v0").task == "X-v0"
    # "module:id" would make Gymnasium import the module.
    read = open_set(write(columns, attributes=attributes | {"task": "os:X-v0"}))
    assert read.task is None
    assert "'os:X-v0'" in read.notes[0]


def test_actions_are_scaled_and_rounding_is_clipped(rows):
    columns = rows()
    names = {"observations": "observation", "actions": "action", "rewards": "reward"}
    names |= {"terminals": "terminated", "timeouts": "truncated"}
    data = {ours: columns[theirs] for theirs, ours in names.items()}
    data["next_observation"] = columns["next_observations"]
    action = columns["actions"].astype(np.float64)
    low, high = np.array([0.0, -3.0]), np.array([10.0, 5.0])
    read = from_arrays(
        **data | {"action": low + (action + 1) / 2 * (high - low)}, action_low=low, action_high=high
    )
    np.testing.assert_allclose(read.transitions.action, action, atol=1e-6)
    data["action"] = columns["actions"].copy()
    data["action"][3, 1] = 1.00005
    before = data["action"].copy()
    read = from_arrays(**data, name="mine")
    assert read.transitions.action.max() == 1
    np.testing.assert_array_equal(data["action"], before)  # the caller's own array
    assert read.sha256 == from_arrays(**data).sha256
    assert read.sha256 != from_arrays(**data | {"reward": data["reward"] + 1}).sha256
    with pytest.raises(InputError, match=r"mine: action in row 3, column 1, is 1\.5"):
        from_arrays(
            **data | {"action": data["action"] + 0.49995 * (before == before[3, 1])}, name="mine"
        )


def walks(episodes=10, steps=20):
    """Random walks of small steps that begin far apart, one after the other; none terminates."""
    rng = np.random.default_rng(0)
    starts = rng.normal(scale=10, size=(episodes, 1, 3))
    paths = starts + np.cumsum(rng.normal(scale=0.1, size=(episodes, steps, 3)), axis=1)
    return {
        "observation": paths.reshape(-1, 3),
        "action": rng.uniform(-1, 1, (episodes * steps, 2)),
        "reward": rng.normal(size=episodes * steps),
        "terminated": np.zeros(episodes * steps, bool),
    }


def test_episodes_are_not_glued_together(tmp_path):
    """Nothing says where the ten were cut, and resets would be learned as dynamics."""
    data = walks()
    asked = r"nothing says where an episode was cut short \(from row \d*9 to \d*0 .* times as much"
    with pytest.raises(InputError, match=f"^arrays: {asked}.*give truncated, episode or next"):
        from_arrays(**data)
    np.savez(tmp_path / "glued.npz", **data)
    with pytest.raises(InputError, match=f"glued.npz: {asked}"):
        open_set(tmp_path / "glued.npz")
    for said in (
        {"truncated": np.arange(200) % 20 == 19},
        {"episode": np.arange(200) // 20},
        {"next_observation": data["observation"] + 0.01},
    ):
        got = from_arrays(**data, **said).transitions
        assert len(np.unique(got.episode)) == (200 if "next_observation" in said else 10)
        if "next_observation" not in said:
            steps = np.abs(got.next_observation - got.observation).max()
            assert steps < 1  # no reset is among them
    one = {key: column[:20] for key, column in data.items()}
    assert len(from_arrays(**one, episode=np.zeros(20))) == 19
    with pytest.raises(InputError, match="nothing says where an episode was cut short: give"):
        from_arrays(**{key: column[:1] for key, column in data.items()})


def test_arrays_in_several_words():
    data = walks(2, 5)
    expected = from_arrays(**data, episode=np.repeat([0, 1], 5))
    d4rl = {f"{key}s": data[key] for key in ("observation", "action", "reward")}
    d4rl |= {"terminals": data["terminated"], "timeouts": np.arange(10) % 5 == 4}
    minari = {f"{key}s": data[key] for key in ("observation", "action", "reward")}
    minari |= {"terminations": data["terminated"], "truncations": np.arange(10) % 5 == 4}
    for named in (d4rl, minari):
        assert from_arrays(**named).sha256 == expected.sha256
    with pytest.raises(InputError, match=r"^mine has both action and actions: keep one"):
        from_arrays(**d4rl, action=data["action"], name="mine")
    with pytest.raises(InputError, match=r"no column obsevation: did you mean observation\?"):
        from_arrays(**data, obsevation=data["observation"], episode=np.zeros(10))
    with pytest.raises(InputError, match="dones does not say whether the next observation"):
        from_arrays(**data, dones=data["terminated"])
    with pytest.raises(InputError, match="reward is missing: there is action, episode, obs"):
        from_arrays(**{k: v for k, v in data.items() if k != "reward"}, episode=np.zeros(10))
    wrong = d4rl | {"rewards": np.zeros(9)}
    with pytest.raises(InputError, match="arrays: rewards has 9 rows, but observations has 10"):
        from_arrays(**wrong)


def test_actions_of_a_dataset_are_had_in_their_own_range():
    data = walks(2, 5) | {"episode": np.repeat([0, 1], 5)}
    low, high = np.array([0.0, -3.0]), np.array([10.0, 5.0])
    own = low + (data["action"] + 1) / 2 * (high - low)
    read = from_arrays(**data | {"action": own}, action_low=low, action_high=high)
    kept = [row for row in range(10) if row % 5 != 4]
    np.testing.assert_allclose(read.action, own[kept], rtol=1e-6)
    np.testing.assert_array_equal(from_arrays(**data).action, np.float32(data["action"][kept]))


def test_npz_in_several_words(rows, write):
    columns = rows()
    expected = open_set(write(columns)).transitions
    ours = {
        "observation": columns["observations"],
        "action": columns["actions"].astype(np.float64),
        "reward": np.asfortranarray(columns["rewards"][:, None]),
        "next_observation": np.asfortranarray(columns["next_observations"]),
        "terminated": columns["terminals"].astype(np.int8),
        "episode": np.repeat([7, 3, 9], (4, 3, 5)),
        "note": np.array("text"),
    }
    for data in (columns, ours):
        read = open_set(write(data, "logged.npz"))
        for got, wanted in zip(read.transitions, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
        assert (read.layout, read.name, read.task) == ("arrays", "logged", None)
    assert read.notes == ("not read: note",)


def test_scores():
    assert normalised_score("hopper_medium", -20.272305) == pytest.approx(0)
    assert normalised_score("HalfCheetah-v4", 12135.0) == pytest.approx(100)
    assert normalised_score("walker_mixed", (1.629008 + 4592.3) / 2) == pytest.approx(50)
    assert normalised_score("walker2d-medium-expert-v2", 4592.3) == pytest.approx(100)
    for other in ("hopper_hop", "dmc/hopper_hop", "mbbl/HopperET-v0", "Ant-v4", "hopper_"):
        assert normalised_score(other, 1.0) is None
    assert len(V0_FILES) == 9
    assert len({file.sha256 for file in V0_FILES.values()}) == 9
    assert all(body_of_set(Path(name).stem) for name in V0_FILES)


MEMORY = """
import resource, sys
from phimu.data.sets.opening import open_set
small, large = sys.argv[1:]
open_set(small)  # what every first call needs: imports, HDF5's own tables
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
open_set(large)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss has other units there")
@pytest.mark.parametrize("name", ["hopper_medium.hdf5", "hopper_medium-v2.hdf5", "logged.npz"])
def test_memory_is_at_most_twice_the_file(rows, write, name):
    columns = rows((1000,) * 700, (False,) * 700, 11, 3)
    if "v2" not in name:
        del columns["next_observations"]
    large = write(columns, name)
    small = write({key: value[:1500] for key, value in columns.items()}, f"small{large.suffix}")
    child = subprocess.run(
        [sys.executable, "-c", MEMORY, small, large], capture_output=True, text=True, check=True
    )
    assert int(child.stdout) <= 2 * large.stat().st_size
