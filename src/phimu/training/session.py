"""One `phimu train`: a run directory, the online loop in it, its log, progress and checkpoints."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from phimu.agents.presets import AGENTS, Agent, Schedule
from phimu.environments.task import Task, open_task
from phimu.errors import InputError, NotFinite, Stopped
from phimu.training import checkpoint
from phimu.training.compilation import cache_compilation
from phimu.training.devices import use_devices
from phimu.training.evaluation import evaluate
from phimu.training.files import write_arrays
from phimu.training.lock import locked
from phimu.training.log import MetricsLog
from phimu.training.online import OnlineRun
from phimu.training.progress import Progress
from phimu.training.run_directory import (
    RunDirectory,
    from_json,
    open_run,
    read_config,
    run_path,
    sessions,
    to_json,
)
from phimu.training.stopping import Stop, stop_requests
from phimu.training.streams import EVALUATE, stream
from phimu.training.threads import threads_in_use

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
    except (KeyError, TypeError, AttributeError) as error:
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


def train(config: RunConfig, steps: int, output: Output, devices: int = 1) -> RunDirectory:
    """Run to `steps` environment steps, from the last checkpoint if there is one."""
    if steps < 1:
        raise InputError(f"steps is {steps}: give at least 1 environment step.")
    use_devices(devices)
    cache_compilation()
    task = open_task(config.task, **config.task_options)
    # Before the directory: what cannot begin leaves nothing behind.
    run = OnlineRun(config.settings, task, config.schedule, config.seed, devices)
    path = output.run_dir or config.path(output.runs, task.suite)
    with locked(path, _say):
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        machine = {"threads": threads_in_use(), "devices": devices}
        directory = open_run(path, config.to_json(), command, machine)
        saved = checkpoint.load(directory.checkpoints, say=_say)
        if saved is not None:
            run.restore(saved, say=_say)
            _compare_sessions(path)
        every = config.schedule.evaluate_every
        due = saved is not None and saved.facts.get("evaluation_due") is True
        due = due and (run.step == steps or run.step % every == 0)  # not that of a shorter run
        if run.step >= steps and not due:
            _say(f"Already trained to step {run.step:,}: {path}")
            return directory
        since = None if saved is None else run.step
        log = _open_log(config, directory, output, since, steps, due)
        with Progress(steps, run.step, output.quiet) as progress, stop_requests() as stop:
            progress.line(f"{'Training in' if saved is None else 'Resuming'} {path}")
            try:
                _Session(config, run, steps, directory, log, progress, stop).loop(due)
            except NotFinite as error:
                raise InputError(
                    f"{error}{_save_batch(directory.path, run.step, error)}"
                ) from error
            finally:
                log.close()
                task.close()
    return directory


def _compare_sessions(path: Path) -> None:
    """Say so where this session rounds otherwise than the one before."""
    before, now = sessions(path)[-2:]
    for name in ("threads", "devices"):
        if before.get(name, now[name]) != now[name]:
            _say(
                f"This run had {name} {before[name]} and now has {now[name]}, which changes "
                "rounding, so it is not a bit-exact continuation."
            )


def _open_log(
    config: RunConfig,
    directory: RunDirectory,
    output: Output,
    since: int | None,
    steps: int,
    due: bool,
) -> MetricsLog:
    every: dict[Any, int] = {
        "train": config.schedule.log_every,
        "evaluation": config.schedule.evaluate_every,
    }

    def keep(row: dict[str, Any]) -> bool:
        """Not what only the end of a shorter run wrote, nor an evaluation that is made again."""
        kind, at = row.get("kind"), row["step"]
        redone = due and kind == "evaluation" and at == since
        return not redone and (at == steps or at % (every.get(kind) or 1) == 0)

    return MetricsLog(
        directory.metrics,
        since,
        directory.path / "tensorboard" if output.tensorboard else None,
        _wandb_options(config, directory, output.wandb),
        keep,
    )


def _save_batch(path: Path, step: int, error: NotFinite) -> str:
    """What the message says of the batch that brought a number that is not finite."""
    if not error.arrays:
        return ""
    file = path / f"not-finite-step-{step:09d}.safetensors"
    try:
        write_arrays(file, error.arrays, finite=False)
    except OSError as fault:
        return f" Its batch could not be saved ({fault})."
    return f" Its batch is in {file}."


@dataclass
class _Session:
    """The loop of `train` and what it tells the outside."""

    config: RunConfig
    run: OnlineRun
    steps: int
    directory: RunDirectory
    log: MetricsLog
    progress: Progress
    stop: Stop
    shown: dict[str, Any] = field(default_factory=dict)

    def loop(self, due: bool) -> None:
        """To the last step; `due` says that the evaluation of the present step is still to do."""
        run, schedule = self.run, self.config.schedule
        evaluation_task = open_task(self.config.task, **self.config.task_options)
        saved_at = run.step
        try:
            while due or run.step < self.steps:
                if not due:
                    self.stop.check()
                    run.advance()
                    self._log_training()
                    due = bool(schedule.evaluate_every) and self._at(schedule.evaluate_every)
                if due:
                    self._evaluate(evaluation_task)
                    due = False
                if self._at(schedule.checkpoint_every):
                    self._save(due)
                    saved_at = run.step
                self.progress.update(run.step, self.shown)
        except Stopped:
            if run.step != saved_at:
                self._save(due)
            raise

    def _at(self, every: int) -> bool:
        """Whether something is done after this step; at the last one everything is."""
        return self.run.step == self.steps or self.run.step % every == 0

    def _log_training(self) -> None:
        run = self.run
        if not run.metrics or not self._at(self.config.schedule.log_every):
            return
        run.check()
        row = {name: float(value) for name, value in run.metrics.items()} | run.recent_return()
        row["simulator_steps"] = run.simulator_steps
        self.log.write(run.step, "train", row)
        self.shown |= {name: row[name] for name in ("return", *SHOWN) if name in row}

    def _evaluate(self, task: Task) -> None:
        run = self.run
        seed = int(stream(run.seed, EVALUATE, run.step).integers(2**31))
        policy = run.policy()

        def until_stopped(observation: np.ndarray) -> np.ndarray:
            self.stop.check()  # ten long episodes take longer than one who stops may wait
            return policy(observation)

        episodes = run.schedule.evaluation_episodes
        summary = evaluate(until_stopped, task, episodes, seed).summary()
        self.log.write(run.step, "evaluation", summary)
        self.shown["evaluation"] = summary["return"]
        self.progress.update(run.step, self.shown, evaluation=True)

    def _save(self, due: bool) -> None:
        self.log.sync()
        self.run.save(self.directory.checkpoints, evaluation_due=due)


def _wandb_options(
    config: RunConfig, directory: RunDirectory, project: str | None
) -> dict[str, Any] | None:
    if project is None:
        return None
    return {"project": project, "dir": str(directory.path), "config": config.to_json()}
