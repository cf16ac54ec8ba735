"""Films one episode: `python -m phimu.training.video RUN OUT.mp4 SEED`, as a process of its own."""

import sys
from pathlib import Path

from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.training.evaluation import run_episode
from phimu.training.session import load_run


def film(run: Path, out: Path, seed: int) -> None:
    try:
        import imageio.v2 as imageio
    except ImportError as error:
        raise InputError('A video needs imageio: pip install "phimu[video]".') from error
    if out.suffix != ".mp4":
        raise InputError(f"video is {out}: give a name that ends in .mp4.")
    config, loaded = load_run(run)
    task = open_task(config.task, **config.task_options, render_mode="rgb_array")
    rate = task.env.metadata.get("render_fps", 30)
    out.parent.mkdir(parents=True, exist_ok=True)
    with imageio.get_writer(out, fps=rate, macro_block_size=2) as writer:
        run_episode(
            loaded.policy(), task, seed, on_step=lambda: writer.append_data(task.env.render())
        )


if __name__ == "__main__":
    try:
        film(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    except InputError as error:
        print(f"phimu: {error}", file=sys.stderr)
        sys.exit(2)
