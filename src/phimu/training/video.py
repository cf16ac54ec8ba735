"""Films one episode: `python -m phimu.training.video RUN OUT.mp4 SEED`, as a process of its own."""

import sys
import warnings
from pathlib import Path
from typing import Any

from phimu.environments.task import Task, open_task
from phimu.errors import InputError
from phimu.training.evaluation import episode_seeds, run_episode
from phimu.training.session import load_run


def film(run: Path, out: Path, seed: int) -> None:
    """The first episode that `evaluate` runs under this seed."""
    try:
        import imageio.v2 as imageio
    except ImportError as error:
        raise InputError('A video needs imageio: pip install "phimu[video]".') from error
    if out.suffix != ".mp4":
        raise InputError(f"video is {out}: give a name that ends in .mp4.")
    # JAX warns of forks, but the child that becomes ffmpeg touches nothing of JAX.
    warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
    config, loaded = load_run(run)
    task = open_task(config.task, **config.task_options, render_mode="rgb_array")
    rate = task.env.metadata.get("render_fps", 30)
    out.parent.mkdir(parents=True, exist_ok=True)
    writer: Any
    with imageio.get_writer(out, fps=rate, macro_block_size=2) as writer:
        run_episode(
            loaded.policy(),
            task,
            episode_seeds(seed, 1)[0],
            on_step=lambda: writer.append_data(_frame(task)),
        )


def _frame(task: Task) -> Any:
    try:
        return task.env.render()
    except Exception as error:  # each renderer has its own
        raise InputError(f"{task.name} cannot be drawn: {error or type(error).__name__}") from error


if __name__ == "__main__":
    try:
        film(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    except InputError as error:
        print(f"phimu: {error}", file=sys.stderr)
        sys.exit(2)
