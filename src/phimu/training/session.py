"""One `phimu train`: a run directory, the online loop in it, its log, progress and checkpoints."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phimu.agents.presets import AGENTS, Agent, Schedule
from phimu.environments.task import Task, open_task
from phimu.errors import InputError
from phimu.training import checkpoint
from phimu.training.evaluation import evaluate
from phimu.training.log import MetricsLog
from phimu.training.online import EVALUATE, OnlineRun, finite_metrics, stream
from phimu.training.progress import Progress
from phimu.training.run_directory import (
    RunDirectory,
    from_json,
    open_run,
    read_config,
    run_path,
    to_json,
)

# What the progress line shows of the metrics, if the agent has them.
SHOWN = ("nce_loss", "nce_accuracy", "bonus", "td_loss")


@dataclass(frozen=True)
class RunConfig:
    """What a run is. Its directory is named after all of it but the seed."""

    task: str
    agent: str
    settings: Agent
    schedule: Schedule
    seed: int = 0
    task_options: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    def path(self, runs: Path, suite: str) -> Path:
        identity = self.to_json()
        seed = identity.pop("seed")
        return run_path(runs, suite, self.task, self.agent, identity, seed)


def load_config(path: Path) -> RunConfig:
    """The configuration of the run in a directory."""
    stored = read_config(path)
    try:
        agent = stored["agent"]
        return RunConfig(
            task=stored["task"],
            agent=agent,
            settings=from_json(AGENTS[agent], stored["settings"]),
            schedule=from_json(Schedule, stored["schedule"]),
            seed=stored["seed"],
            task_options=stored["task_options"],
        )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path}/config.json was written by another version of phimu ({error})."
        ) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def load_run(path: Path, say: Any = _say) -> tuple[RunConfig, OnlineRun]:
    """A finished or broken-off run as it was at its last checkpoint."""
    config = load_config(path)
    saved = checkpoint.load(RunDirectory(path).checkpoints, say)
    if saved is None:
        raise InputError(f"{path} has no checkpoint yet: let the run reach its first one.")
    task = open_task(config.task, **config.task_options)
    run = OnlineRun(config.settings, task, config.schedule, config.seed)
    run.restore(saved, say)
    return config, run


@dataclass(frozen=True)
class Output:
    """Where a run goes and who is told."""

    runs: Path = Path("runs")
    """Where run directories go."""
    run_dir: Path | None = None
    """Use this directory for the run instead of one named after its configuration."""
    quiet: bool = False
    """Print nothing while training."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run directory."""
    wandb: str | None = None
    """Also log to this Weights & Biases project."""


def train(config: RunConfig, steps: int, output: Output) -> RunDirectory:
    """Run to `steps` environment steps, from the last checkpoint if there is one."""
    if steps < 1:
        raise InputError(f"steps is {steps}: give at least 1 environment step.")
    task = open_task(config.task, **config.task_options)
    # Before the directory: what cannot begin leaves nothing behind.
    run = OnlineRun(config.settings, task, config.schedule, config.seed)
    path = output.run_dir or config.path(output.runs, task.suite)
    directory = open_run(path, config.to_json(), [Path(sys.argv[0]).name, *sys.argv[1:]])
    saved = checkpoint.load(directory.checkpoints, say=_say)
    if saved is not None:
        run.restore(saved, say=_say)
    if run.step >= steps:
        _say(f"Already trained to step {run.step:,}: {path}")
        return directory
    log = MetricsLog(
        directory.metrics,
        None if saved is None else saved.step,
        directory.path / "tensorboard" if output.tensorboard else None,
        _wandb_options(config, directory, output.wandb),
    )
    with Progress(steps, run.step, output.quiet) as progress:
        progress.line(f"{'Training in' if saved is None else 'Resuming'} {path}")
        try:
            _loop(config, run, steps, directory, log, progress)
        finally:
            log.close()
            task.close()
    return directory


def _loop(
    config: RunConfig,
    run: OnlineRun,
    steps: int,
    directory: RunDirectory,
    log: MetricsLog,
    progress: Progress,
) -> None:
    schedule = config.schedule
    evaluation_task = open_task(config.task, **config.task_options)
    shown: dict[str, Any] = {}
    while run.step < steps:
        run.advance()
        last = run.step == steps
        if run.metrics and (last or run.step % schedule.log_every == 0):
            row = finite_metrics(run.metrics, run.step) | run.recent_return()
            row["simulator_steps"] = run.simulator_steps
            log.write(run.step, "train", row)
            shown |= {name: row[name] for name in ("return", *SHOWN) if name in row}
        if schedule.evaluate_every and (last or run.step % schedule.evaluate_every == 0):
            shown["evaluation"] = _evaluate(run, evaluation_task, log)
            progress.update(run.step, shown, evaluation=True)
        if last or run.step % schedule.checkpoint_every == 0:
            log.sync()
            run.save(directory.checkpoints)
        progress.update(run.step, shown)


def _evaluate(run: OnlineRun, task: Task, log: MetricsLog) -> float:
    seed = int(stream(run.seed, EVALUATE, run.step).integers(2**31))
    summary = evaluate(run.policy(), task, run.schedule.evaluation_episodes, seed).summary()
    log.write(run.step, "evaluation", summary)
    return summary["return"]


def _wandb_options(
    config: RunConfig, directory: RunDirectory, project: str | None
) -> dict[str, Any] | None:
    if project is None:
        return None
    return {"project": project, "dir": str(directory.path), "config": config.to_json()}
