"""Pictures of tasks, drawn without a screen and in a process of their own.

A graphics driver that fails can abort its whole process. So each job is a JSON file, given to
`python -m phimu.environments.rendering JOB.json`, and is tried with one OpenGL after the other.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from phimu.environments.task import Task, open_task
from phimu.errors import InputError

BAD_INPUT = 2  # the exit code of a child that has said why; another OpenGL would change nothing
RANDOM_STEPS = 5  # before a snapshot


def snapshots(task_ids: Sequence[str]) -> list[np.ndarray]:
    """A frame of each task, [height, width, 3] uint8, a few random steps after its reset."""
    with tempfile.TemporaryDirectory() as scratch:
        _draw({"snapshots": list(task_ids)}, Path(scratch))
        paths = [Path(scratch) / f"{index}.npy" for index in range(len(task_ids))]
        return [np.load(path, allow_pickle=False) for path in paths]


def film(
    out: Path, task_id: str, options: dict[str, Any], seed: int, actions: np.ndarray, total: float
) -> None:
    """An MP4 of the episode of these `actions` [steps, action_dim], known again by its return."""
    job = {"film": task_id, "options": options, "seed": seed, "return": total}
    # Beside its place, so that the finished film is moved there in one go.
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        np.save(Path(scratch) / "actions.npy", actions, allow_pickle=False)
        _draw(job, Path(scratch))
        os.replace(Path(scratch) / "film.mp4", out)


def _choices() -> list[str | None]:
    """The values of MUJOCO_GL in the order of trial; None leaves the choice to MuJoCo."""
    own = os.environ.get("MUJOCO_GL")
    # Both draw into memory, and MuJoCo has them on Linux only.
    ours: list[str | None] = ["egl", "osmesa"] if sys.platform == "linux" else [None]
    return [own, *(gl for gl in ours if gl != own)] if own else ours


def _draw(job: dict[str, Any], scratch: Path) -> None:
    """Run a job in children until one succeeds; what it draws is then in `scratch`."""
    path = scratch / "job.json"
    path.write_text(json.dumps(job))
    failures = []
    for gl in _choices():
        # PYOPENGL_PLATFORM may be left over from another OpenGL: MuJoCo itself sets it.
        variables = {k: v for k, v in os.environ.items() if k != "PYOPENGL_PLATFORM"}
        variables |= {"MUJOCO_GL": gl} if gl else {}
        command = [sys.executable, "-m", "phimu.environments.rendering", str(path)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if line.strip()]
        if done.returncode == 0:
            return
        if done.returncode == BAD_INPUT and said:
            raise InputError(said[-1])
        cause = said[-1] if said else f"exit code {done.returncode}"
        failures.append(f"{gl or 'any'}: {textwrap.shorten(cause, 80, placeholder=' ...')}")
    raise InputError(
        f"No picture could be drawn with OpenGL ({'; '.join(failures)}); on Debian or Ubuntu "
        f"install libegl1 and libgl1-mesa-dri (egl), or libosmesa6 (osmesa)."
    )


def _snapshot(task_id: str) -> np.ndarray:
    task = open_task(task_id, render_mode="rgb_array")
    task.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(RANDOM_STEPS):
        *_, terminated, truncated = task.step(task.spec.random_action(rng))
        if terminated or truncated:
            break
    frame = _frame(task)
    task.close()
    return frame


def _film(job: dict[str, Any], scratch: Path) -> None:
    import imageio.v2 as imageio  # `check_video` found it

    task = open_task(job["film"], **job["options"], render_mode="rgb_array")
    task.reset(job["seed"])
    first = _frame(task)  # before the writer, which would begin a file
    rate = task.env.metadata.get("render_fps", 30)
    total = 0.0
    writer: Any
    with imageio.get_writer(scratch / "film.mp4", fps=rate, macro_block_size=2) as writer:
        writer.append_data(first)
        for action in np.load(scratch / "actions.npy", allow_pickle=False):
            _, reward, terminated, truncated = task.step(action)
            total += reward
            writer.append_data(_frame(task))
            if terminated or truncated:
                break
    if total != job["return"]:
        raise InputError(
            f"{task.name} did not repeat its episode from the same seed and actions, so it cannot "
            f"be filmed: make its reset use the seed."
        )
    task.close()


def _frame(task: Task) -> np.ndarray:
    try:
        frame = task.env.render()
    except Exception as error:  # each renderer has its own
        if "mujoco" in sys.modules:
            raise  # another OpenGL may do
        raise InputError(f"{task.name} cannot be drawn: {error or type(error).__name__}") from error
    if not isinstance(frame, np.ndarray):
        raise InputError(
            f"{task.name} cannot be drawn: its render returns {frame!r} instead of pixels."
        )
    return frame


def _main(path: Path) -> int:
    """What the child does; its exit code."""
    job = json.loads(path.read_text())
    try:
        for index, task_id in enumerate(job.get("snapshots", ())):
            np.save(path.parent / f"{index}.npy", _snapshot(task_id), allow_pickle=False)
        if "film" in job:
            _film(job, path.parent)
    except InputError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = _main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(code)  # at once: OpenGL contexts that are torn down late can still fail
