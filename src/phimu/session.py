"""One `phimu train`: a run directory, a loop in it, its log, progress and checkpoints."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from phimu.agents import check_discrete
from phimu.data.logged import LoggedDataset
from phimu.data.sets.opening import absolute, is_there
from phimu.data.sets.scores import normalised_score
from phimu.environments.task import Task, open_task
from phimu.environments.vector import open_tasks
from phimu.errors import InputError, NotFinite, Stopped, at_least, by_environment
from phimu.evaluation.episodes import evaluate
from phimu.runs import checkpoint
from phimu.runs.config import RunConfig, load_config
from phimu.runs.directory import RunDirectory, add_facts, open_run, sessions
from phimu.runs.files import cache_compilation, write_arrays
from phimu.runs.lock import locked
from phimu.runs.log import MetricsLog
from phimu.runs.progress import Progress
from phimu.runs.provenance import command_line
from phimu.runs.stopping import Stop, stop_requests
from phimu.training.devices import use_devices
from phimu.training.measures import falls_on, measured, shown
from phimu.training.offline import OfflineRun, preparation
from phimu.training.online import OnlineRun
from phimu.training.streams import EVALUATE, stream
from phimu.training.threads import threads_in_use

Run = OnlineRun | OfflineRun


def say(text: str) -> None:
    """On standard error, which no other program reads."""
    print(text, file=sys.stderr)


def load_run(path: Path, data: LoggedDataset | None = None) -> tuple[RunConfig, Run]:
    """A finished or broken-off run as it was at its last checkpoint; offline also with data."""
    config = load_config(path)
    saved = checkpoint.load_last(path, say)
    run = new_run(config, data=data)
    run.restore(saved, say)
    return config, run


def new_run(
    config: RunConfig,
    task: Task | Sequence[Task] | None = None,
    data: LoggedDataset | None = None,
    devices: int = 1,
) -> Run:
    """At its beginning; `task` is for one without a Gymnasium id, `data` what it may learn from."""
    if config.dataset is not None:
        return OfflineRun(config.settings, config.dataset.spec, config.schedule, config.seed, data)
    if task is None and config.environment is not None:
        raise InputError(
            f"This model learned in {config.environment}, which its id alone does not make: load "
            "it in Python with that environment as env."
        )
    if task is None:
        task = open_tasks(config.task, config.envs, **config.task_options)
    first = task if isinstance(task, Task) else task[0]
    if first.spec.discrete:
        check_discrete(config.agent, first.name)
    return OnlineRun(config.settings, task, config.schedule, config.seed, devices)


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


@dataclass(frozen=True)
class Order:
    """A run and how far it is to be trained."""

    config: RunConfig
    steps: int
    """Environment steps; on logged data updates of the policy, before which the others come."""
    data: str | None = None
    """Where the logged data is, as `phimu train` takes it."""
    about: dict[str, Any] = field(default_factory=dict)
    """What the manifest says of the run: its preset, and its place in a study."""

    @property
    def last_step(self) -> int:
        """Where its checkpoints end."""
        before = 0 if self.config.dataset is None else preparation(self.config.settings)
        return before + self.steps

    def facts(self) -> dict[str, Any]:
        """Of a session that carries it out."""
        data = {} if self.data is None else {"data": absolute(self.data)}
        return {"steps": self.last_step} | data


def train(
    order: Order, output: Output, data: LoggedDataset | None = None, devices: int = 1
) -> RunDirectory:
    """Carry out an order from the last checkpoint, if any; what cannot begin leaves nothing."""
    at_least(1, steps=order.steps)
    use_devices(devices)
    cache_compilation()
    config, steps, layout = order.config, order.last_step, ""
    if config.dataset is not None:
        layout = config.dataset.layout
        data = data or config.dataset.open(order.data or "")
    run = new_run(config, data=data, devices=devices)
    if steps % run.stride:
        raise InputError(f"steps is {order.steps}: with {run.stride} envs give a multiple of that.")
    suite = run.task.suite if isinstance(run, OnlineRun) else layout
    path = output.run_dir or config.path(output.runs, suite)
    with locked(path, say):
        facts = {"threads": threads_in_use(), "devices": devices, **order.facts()}
        directory = open_run(path, config.to_json(), command_line(), facts, order.about)
        saved = checkpoint.load(directory.checkpoints, say=say)
        if saved is not None:
            run.restore(saved, say=say)
            _compare_sessions(path)
        every = config.schedule.evaluate_every
        due = saved is not None and saved.facts.get("evaluation_due") is True
        # Not that of a shorter run.
        due = due and (run.step == steps or falls_on(run.clock, every, run.stride))
        if run.step >= steps and not due:
            say(f"Already trained to step {run.step:,}: {path}")
            return directory
        since = None if saved is None else run.step
        log = _open_log(config, directory, output, since, steps, due, run.stride)
        with stop_requests() as stop, Progress(steps, run.step, output.quiet) as progress:
            progress.line(f"{'Training in' if saved is None else 'Resuming'} {path}")
            if isinstance(run, OnlineRun) and run.task.note is not None:
                progress.line(run.task.note)
            try:
                _Session(config, run, steps, directory, log, progress, stop).loop(due)
            except NotFinite as error:
                raise InputError(
                    f"{error}{_save_batch(directory.path, run.step, error)}"
                ) from error
            finally:
                log.close()
                run.close()
    return directory


def order_of(path: Path, steps: int | None = None, data: str | None = None) -> Order:
    """What brings a run on: to where it was to end, or `steps`; with its `data` if that moved."""
    config = load_config(path)
    if config.dataset is None and data is not None:
        raise InputError(f"{path} was trained in {config.task}, not on data: leave --data out.")
    if config.dataset is not None and data is None:
        data = data_of(path)
        if data is None or not is_there(data):
            where = "an unknown place" if data is None else f"{data}, which is not there"
            raise InputError(f"{path} learned from {where}: say where its data is with --data.")
    if steps is None:
        last = (sessions(path) or [{}])[-1]
        if "steps" not in last:
            raise InputError(f"{path} does not say how far it was to be trained: give --steps.")
        steps = last["steps"] - Order(config, 0).last_step
    return Order(config, steps, data)


def data_of(path: Path) -> str | None:
    """Where the logged data of the run in a directory was when it was last trained, if it says."""
    return next((each["data"] for each in reversed(sessions(path)) if "data" in each), None)


def _compare_sessions(path: Path) -> None:
    """Say so where this session rounds otherwise than the one before."""
    before, now = sessions(path)[-2:]
    for name in ("threads", "devices"):
        if before.get(name, now[name]) != now[name]:
            say(
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
    stride: int,
) -> MetricsLog:

    def keep(row: dict[str, Any]) -> bool:
        """Not what only the end of a shorter run wrote, nor an evaluation that is made again."""
        evaluation, at = row.get("kind") in ("evaluation", "estimate"), row["step"]
        every = config.schedule.evaluate_every if evaluation else config.schedule.log_every
        redone = due and evaluation and at == since
        return not redone and (at == steps or falls_on(row.get("updates", at), every or 1, stride))

    events = directory.path / "tensorboard" if output.tensorboard else None
    project = {"project": output.wandb, "dir": str(directory.path), "config": config.to_json()}
    wandb = None if output.wandb is None else project
    return MetricsLog(directory.metrics, since, events, wandb, keep)


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
    run: Run
    steps: int
    directory: RunDirectory
    log: MetricsLog
    progress: Progress
    stop: Stop
    shown: dict[str, Any] = field(default_factory=dict)  # since the progress line was updated
    said: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)

    def loop(self, due: bool) -> None:
        """To the last step; `due` says that the evaluation of the present step is still to do."""
        run, schedule = self.run, self.config.schedule
        name = self.config.evaluation_task
        task = None if name is None else open_task(name, **self.config.task_options)
        saved_at = run.step
        try:
            while due or run.step < self.steps:
                if not due:
                    self.stop.check()
                    run.advance(self.steps, self.stop.at_once)
                    self._log_training()
                    due = bool(schedule.evaluate_every) and self._at(schedule.evaluate_every)
                    due = due and run.kind == "train"  # there is a policy to evaluate
                if due:
                    self._evaluate(task)
                    due = False
                if self._at(schedule.checkpoint_every):
                    self._save(due)
                    saved_at = run.step
                self.progress.update(run.step, self.shown, stretch=run.stretch)
                self.shown = {}
        except Exception as error:
            if not isinstance(error, Stopped) and not by_environment(error):
                raise
            if run.step != saved_at:
                self._save(due)
            if by_environment(error):
                kept = f"The run is saved at step {run.step:,}" if run.step else "Nothing is lost"
                error.add_note(f"{kept}; mend the environment and re-run to resume.")
            raise

    def _at(self, every: int) -> bool:
        """Whether something is done after this step; at the last one everything is."""
        run = self.run
        return run.step == self.steps or falls_on(run.clock, every, run.stride)

    def _log_training(self) -> None:
        run = self.run
        if not run.metrics or not self._at(self.config.schedule.log_every):
            return
        row = measured(run)
        self.log.write(run.step, run.kind, row)
        self.shown |= shown(row)

    def _evaluate(self, task: Task | None) -> None:
        """Episodes; or, of a run that has no environment, what the set itself can say."""
        run = self.run
        if task is None and isinstance(run, OfflineRun):
            self.log.write(run.step, "estimate", run.estimates() | run.facts())
        if task is None:
            return
        seed = int(stream(run.seed, EVALUATE, run.step).integers(2**31))
        policy = run.policy()

        def until_stopped(observation: np.ndarray) -> np.ndarray:
            self.stop.check()  # ten long episodes take longer than one who stops may wait
            return policy(observation)

        episodes = run.schedule.evaluation_episodes
        summary = evaluate(until_stopped, task, episodes, seed, self._say_once).summary()
        if isinstance(run, OfflineRun):
            summary |= run.facts()
            score = normalised_score(task.name, summary["return"])
            summary |= {} if score is None else {"score": score}
        self.log.write(run.step, "evaluation", summary)
        self.shown["evaluation"] = summary.get("score", summary["return"])
        self.progress.update(run.step, self.shown, True, run.stretch)

    def _say_once(self, sentence: str) -> None:
        if sentence not in self.said:
            self.said.add(sentence)
            say(sentence)

    def _save(self, due: bool) -> None:
        self.log.sync()
        self.run.save(self.directory.checkpoints, evaluation_due=due)
        add_facts(self.directory.path, {"seconds": round(time.monotonic() - self.began, 1)})
