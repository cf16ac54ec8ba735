import pytest

import devices
import scaling
from phimu.errors import InputError


@pytest.mark.thorough
def test_updates_are_timed_on_several_devices(monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # most of it is compiling
    assert 0 < devices.update_seconds("sac 256-256", 2, rounds=1, work=1.0) < 60
    assert "devices" in scaling.SIZES


def test_devices_that_cannot_be_say_why():
    with pytest.raises(InputError, match=r"on 0 devices could not be timed .*: devices is 0: give"):
        devices.update_seconds("sac 256-256", 0, rounds=1, work=1.0)
