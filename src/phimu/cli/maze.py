"""`phimu demo`, `heatmap` and `exploration`: what is learned of a maze, and found in it."""

import json
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from rich.console import Console

from phimu.agents import preset
from phimu.cli.arguments import THREADS, command, plain_table
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.evaluation.episodes import evaluate
from phimu.reports.exploration import film_strip, record
from phimu.reports.exploration import found as ways_found
from phimu.reports.figures import heat_map
from phimu.reports.maze import maze_of, panels, scores
from phimu.reports.rows import SCORES
from phimu.runs.config import RunConfig
from phimu.runs.directory import RunDirectory
from phimu.runs.files import write_atomically
from phimu.session import Order, Output, load_run, train
from phimu.settings import override
from phimu.training.online import OnlineRun

MEANINGS = {
    "total_variation_free": "learned against true transition, 70 pairs in free space; 0 is best",
    "total_variation_beside_walls": "the same for 30 pairs within one unit of a wall",
    "total_variation_beside_inner_walls": "those of them at the inner walls",
    "sampling_floor": "what a perfect ratio would score in free space on this many points",
    "mean_abs_log_z": "how far the learned transition is from integrating to one",
    "success_rate": "evaluation episodes that reached the goal",
    "mean_length": "their mean length in steps",
}

# `demo --quick`: less data, a quarter of the updates, each of half the size.
QUICK_STEPS = 42_000
QUICK = {
    "learning_starts": 30_000,
    "train_freq": 16,
    "feature_dim": 256,
    "negatives": 512,
    "batch_size": 512,
    "evaluate_every": QUICK_STEPS,
    "checkpoint_every": QUICK_STEPS,
}


@command("phimu heatmap")
def heatmap(run: Annotated[Path, tyro.conf.Positional], episodes: int = 100) -> None:
    """Draw the learned transition of a maze run beside the true one, and score it.

    Args:
        run: a run directory of CTRL in phimu/FourRooms-v0.
        episodes: evaluation episodes for the success rate.
    """
    _score(RunDirectory(run), episodes)


@command("phimu exploration")
def exploration(runs: Annotated[tuple[Path, ...], tyro.conf.Positional]) -> None:
    """Say how runs in a maze came to their goal; draw where they have been, and their bonus.

    The bonus is the one at the run's last checkpoint. Each call adds that moment to the run's
    exploration.json, and figures/exploration.png shows all moments so far: `phimu study
    exploration` stops at 5K, 20K, 50K and 100K steps for it.

    Args:
        runs: run directories in phimu/FourRooms-v0 or phimu/Serpentine-v0.
    """
    rows = []
    for path in runs:
        config, run = load_run(path)
        if not isinstance(run, OnlineRun):
            raise InputError(f"{path} was trained on logged data: name the run of a maze.")
        maze, directory = maze_of(run), RunDirectory(path)
        title = f"{config.task}, {config.agent}, seed {config.seed}"
        film_strip(directory.figures / "exploration.png", record(run, directory), maze, title)
        ways = ways_found(run)
        first = "never" if ways.first_success is None else f"{ways.first_success:,}"
        numbers = f"{run.step:,}", first, f"{ways.successes:,}", f"{ways.episodes:,}"
        rows.append([str(path), *numbers])
    titles = "steps", "first success", "successes", "episodes"
    Console(width=200).print(plain_table(["run"], rows, titles))


@command("phimu demo")
def demo(
    ratio: Literal["linear", "exponential"] = "linear",
    loss: Literal["ranking", "binary"] = "ranking",
    bonus_scale: float | None = None,
    quick: bool = False,
    steps: int | None = None,
    seed: int = 0,
    episodes: int | None = None,
    runs: Path = Path("runs"),
    threads: Annotated[int | None, tyro.conf.arg(help=THREADS)] = None,
) -> None:
    """Learn the four-room maze with CTRL-UCB and draw the paper's Figure 1.

    Args:
        ratio: <phi, mu> itself, a true linear MDP, planned on with a linear critic (CTRL-UCBL), or
            exp(<phi, mu> / temperature), in whose phi Q is not linear (CTRL-UCBM).
        loss: which noise contrastive loss.
        bonus_scale: of the exploration bonus; the preset's if not given.
        quick: under a minute instead of five: less data, smaller networks, a rougher picture.
        steps: environment steps; 300,000 if not given, with --quick 42,000.
        seed: of everything random.
        episodes: evaluation episodes for the success rate; 100 if not given, with --quick 20.
        runs: where run directories go.
    """
    del threads  # they were set before anything was imported
    changes = {"loss": loss} | ({} if bonus_scale is None else {"bonus_scale": bonus_scale})
    agent, name = {
        "linear": ("ctrl-ucb-l", "maze"),
        "exponential": ("ctrl-ucb-m", "maze-exponential"),
    }[ratio]
    settings, schedule = override(preset(agent, name), changes | (QUICK if quick else {}))
    steps = steps or (QUICK_STEPS if quick else 300_000)
    episodes = episodes or (20 if quick else 100)
    # Episodes start anywhere, so that the data covers the whole map; the success rate that is
    # reported is from the maze's own start.
    options = {"random_start": True}
    config = RunConfig("phimu/FourRooms-v0", agent, settings, schedule, seed, options)
    order = Order(config, steps, about={"preset": name})
    _score(train(order, Output(runs=runs)), episodes)


def _score(directory: RunDirectory, episodes: int) -> None:
    """Scores and heat map of a maze run, written into its directory and printed."""
    config, run = load_run(directory.path)
    if not isinstance(run, OnlineRun):
        raise InputError(f"{directory.path} was trained on logged data: name the run of a maze.")
    maze = maze_of(run)
    result = scores(run)
    own_start = open_task(config.task, **config.task_options | {"random_start": False})
    evaluation = evaluate(run.policy(), own_start, episodes, seed=0).summary()
    result |= {
        "success_rate": evaluation["terminated"],
        "mean_length": evaluation["length"],
        "episodes": episodes,
        "step": run.step,
        "updates": run.updates,
    }
    picture = directory.figures / "heatmap.png"
    heat_map(picture, panels(run), np.array(maze.rectangles), maze.size)
    scores_file = directory.path / SCORES
    write_atomically(scores_file, (json.dumps(result, indent=2) + "\n").encode())
    rows = ([name, f"{result[name]:.3f}", meaning] for name, meaning in MEANINGS.items())
    Console().print(plain_table(["score", "value", "what it means"], rows))
    print(f"\nheat map  {picture}\nscores    {scores_file}\nrun       {directory.path}")
