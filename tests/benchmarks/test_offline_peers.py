"""TD3+BC on logged data against d3rlpy's, without d3rlpy."""

import numpy as np
import pytest

import offline_peers
import our_td3_bc
from columns import HOPPER
from offline_peers import BATCH
from phimu.agents.td3_bc import Td3Bc
from phimu.errors import InputError
from phimu.speed.offline import random_set


def test_theirs_runs_in_turns_with_ours(monkeypatch, fake_venv):
    venv = fake_venv("")
    ran = []

    def child(command, job, variables):
        assert variables["OMP_NUM_THREADS"] == "1"
        assert np.load(job["data"])["observation"].shape == (1_000, 11)
        theirs = command[0] == str(venv / "bin" / "python")
        ran.append("theirs" if theirs else "ours")
        if theirs:
            return {"version": "1.2", "loop": [2.0, 3.0], "alone": [0.5, 0.5]}
        return {"seconds": [1.0, 1.0]}

    monkeypatch.setattr(offline_peers, "run_child", child)
    loop, alone = offline_peers.offline_speeds(venv, rounds=2, steps=10, rows=1_000)
    assert ran == ["ours", "theirs", "theirs", "ours"]
    assert loop == ("phimu td3-bc 256-256", 10.0, "d3rlpy 1.2 TD3+BC", 5.0, 2.0, 3.0)
    assert alone.other == "d3rlpy 1.2 TD3+BC, one batch for all updates"
    assert (alone.ratio, alone.processor_ratio) == (0.5, 0.5)


def test_a_peer_that_cannot_be_had_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="is no virtual environment"):
        offline_peers.offline_speeds(tmp_path, 1, 1)


def test_ours_is_timed_on_the_same_rows(monkeypatch, tmp_path):
    rows = random_set(HOPPER, 1_000)
    np.savez(tmp_path / "set.npz", **rows._asdict())
    timed = []

    class Timed:
        def __init__(self, chosen, given):
            timed.append((chosen, given))

        def seconds(self, count):
            return [count, 2 * count]

    monkeypatch.setattr(our_td3_bc, "Timed", Timed)
    found = our_td3_bc.measure({"data": tmp_path / "set.npz", "steps": 3})
    assert found == {"seconds": [3, 6]}
    [(chosen, given)] = timed
    assert chosen.settings == Td3Bc()
    assert chosen.schedule.batch_size == BATCH
    for expected, column in zip(rows, given, strict=True):
        np.testing.assert_array_equal(column, expected)
