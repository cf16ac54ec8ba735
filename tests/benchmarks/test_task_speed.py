import json
from pathlib import Path

import pytest

import command
import task_speed


def test_tasks_are_compared_with_bare_bodies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mujoco", reason="the extra mujoco is not installed")
    file = tmp_path / "speeds.json"
    words = ["--rounds", "1", "--steps", "5", "--json", str(file)]
    assert (
        command.run("Tasks.", "environments", task_speed.environment_speeds, arguments=words) == 0
    )
    speeds = json.loads(file.read_text())["environments"]
    assert len(speeds) == 9
    for row in speeds:
        ratio = row["steps_per_second"] / row["bare_steps_per_second"]
        assert row["ratio"] == pytest.approx(ratio)  # of one round
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == f"{speeds[0]['ratio']:.3g}"
