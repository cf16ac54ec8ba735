"""Training loops of others: what is compared, without their libraries."""

import json
import sys
from types import ModuleType

import pytest

import peers
import their_sac
from phimu.errors import InputError
from phimu.speed import peak_memory

SCRIPT = """echo '{"version": "1.2", "steps_per_second": 50, "first_update_seconds": 3.0,'\\
' "memory_mb": 400.0}'"""


def test_peers_are_compared_by_their_best_round(monkeypatch, fake_venv):
    rounds = {"sac": iter([90.0, 100.0]), "ctrl-ucb-m": iter([60.0, 55.0])}
    own = {"first_update_seconds": 6.0, "memory_mb": 200.0}
    monkeypatch.setattr(
        peers, "run_ours", lambda job: {"steps_per_second": next(rounds[job.agent.agent]), **own}
    )
    sac, ctrl, first, second = peers.peer_speeds(fake_venv(SCRIPT), rounds=2, steps=10)
    assert sac == ("phimu sac 256-256", 100.0, 1.0, 0.6, 6.0, 200.0)
    assert ctrl.name == "phimu ctrl-ucb-m 256-256-256"
    assert first == ("stable-baselines3 1.2", 50, 2.0, 1.2, 3.0, 400.0)
    assert second.name == "sbx-rl 1.2"


def test_peers_that_cannot_be_had_are_one_sentence(monkeypatch, tmp_path, fake_venv):
    monkeypatch.setattr(peers, "run_ours", lambda job: {"steps_per_second": 1.0})
    with pytest.raises(InputError, match="is no virtual environment"):
        peers.peer_speeds(tmp_path / "absent", rounds=1, steps=1)
    broken = fake_venv("echo 'No module named sbx' >&2; exit 1")
    with pytest.raises(InputError, match=r"could not be timed with .*python: No module named sbx"):
        peers.peer_speeds(broken, rounds=1, steps=1)


class Sac:
    """Learns nothing, but calls back as Stable-Baselines3's SAC does."""

    def __init__(self, policy, task, learning_starts, **settings):
        self.learning_starts = learning_starts

    def train(self):
        pass

    def learn(self, total, callback):
        for step in range(total):
            callback({}, {})
            if step >= self.learning_starts:
                self.train()


def test_their_loop_is_timed_between_two_steps(monkeypatch):
    module = ModuleType("fake_peer")
    module.SAC = Sac
    monkeypatch.setitem(sys.modules, "fake_peer", module)
    job = {"module": "fake_peer", "package": "pytest", "task": "x", "learning_starts": 3}
    job |= {"batch_size": 2, "buffer_size": 9, "width": 4, "warm": 2, "steps": 5, "began": 0.0}
    found = their_sac.measure(job | {"peak_memory": peak_memory.__file__})
    assert found["version"] == pytest.__version__
    assert found["steps_per_second"] > 0
    assert found["first_update_seconds"] > 0
    assert found["memory_mb"] == pytest.approx(peak_memory.peak_memory_mb(), rel=0.1)


def test_the_table_is_printed_and_the_json_written(monkeypatch, tmp_path, fake_venv, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PJRT_NPROC", "")  # put back afterwards
    monkeypatch.delenv("NPROC", raising=False)
    own = {"steps_per_second": 100.0, "first_update_seconds": 6.0, "memory_mb": 200.0}
    monkeypatch.setattr(peers, "run_ours", lambda job: own)
    file = tmp_path / "peers.json"
    asked = ["--venv", str(fake_venv(SCRIPT)), "--rounds", "1", "--json", str(file)]

    def run(*arguments):
        given = [*asked, *arguments]
        return peers.run_peers("Peers.", "peers", "peers", (), peers.peer_speeds, given)

    assert run() == 0
    printed = capsys.readouterr().out.splitlines()
    columns = "name steps_per_second sac_over_it ctrl_over_it first_update_seconds memory_mb"
    assert printed[0].split() == columns.replace("_", " ").split()
    assert printed[3].split() == ["stable-baselines3", "1.2", "50", "2", "2", "3", "400"]
    found = json.loads(file.read_text())
    assert found["threads"] == 1  # which OMP_NUM_THREADS asks for, of phimu's loops as well
    assert [row["steps_per_second"] for row in found["peers"]] == [100.0, 100.0, 50, 50]
    assert run("--steps", "0") == 2
    assert capsys.readouterr().err == "rounds is 1 and steps is 0: give at least 1 of each.\n"
