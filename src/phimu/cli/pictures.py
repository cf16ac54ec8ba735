"""`phimu plot` and `phimu heatmap`."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from phimu.cli.arguments import call
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.evaluation.episodes import evaluate
from phimu.reports.curves import curves_of_runs
from phimu.reports.figures import heat_map, learning_curves
from phimu.reports.maze import maze_of, panels, scores
from phimu.reports.rows import SCORES
from phimu.runs.directory import RunDirectory
from phimu.runs.files import write_atomically
from phimu.session import load_run
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


def plot(arguments: list[str]) -> None:
    def run(
        runs: Annotated[tuple[Path, ...], tyro.conf.Positional], out: Path = Path("curves.png")
    ) -> None:
        """Draw learning curves: one picture per task, seeds of a configuration as one band.

        Args:
            runs: run directories, or directories above them.
            out: a .png or .svg; with several tasks, the task is added to the name.
        """
        groups = curves_of_runs(runs)
        for task, curves in groups:
            path = out
            if len(groups) > 1:
                path = out.with_stem(f"{out.stem}-{task.replace('/', '-')}")
            learning_curves(path, curves, task)
            print(path)

    call(run, arguments, "phimu plot")


def heatmap(arguments: list[str]) -> None:
    def run(run: Annotated[Path, tyro.conf.Positional], episodes: int = 100) -> None:
        """Draw the learned transition of a maze run beside the true one, and score it.

        Args:
            run: a run directory of CTRL in phimu/FourRooms-v0.
            episodes: evaluation episodes for the success rate.
        """
        report(RunDirectory(run), episodes)

    call(run, arguments, "phimu heatmap")


def report(directory: RunDirectory, episodes: int) -> None:
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
    table = Table("score", "value", "what it means", box=None, pad_edge=False)
    for name, meaning in MEANINGS.items():
        table.add_row(name, f"{result[name]:.3f}", meaning)
    Console().print(table)
    print(f"\nheat map  {picture}\nscores    {scores_file}\nrun       {directory.path}")
