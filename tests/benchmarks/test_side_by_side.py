import pytest

import side_by_side
from phimu.errors import InputError
from phimu.speed.loop import Job

TINY = Job(("sac", 16, 16, 0.0), learning_starts=10, batch_size=8, buffer_size=100, warm=2, steps=5)


@pytest.mark.thorough
def test_two_runs_are_timed_alone_and_at_once(monkeypatch):
    pytest.importorskip("mujoco", reason="the extra mujoco is not installed")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # most of it is compiling
    found = side_by_side.compare("tiny", TINY)
    assert found.share == pytest.approx(found.together / found.alone)  # of one round
    assert 0 < found.share < 3


def test_runs_that_fail_say_why_in_one_sentence():
    with pytest.raises(InputError, match="'Absent-v0' is not a registered Gymnasium id") as caught:
        side_by_side.compare("tiny", TINY._replace(task="Absent-v0"))
    assert "\n" not in str(caught.value)
