"""The Python interface: `Ctrl`, `Sac`, `Offline` with learn, predict, save and load as in SB3."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

import gymnasium

from phimu.agents import preset as preset_of
from phimu.callbacks import Callback, Moment, callbacks_of, go_on, told_of_a_break
from phimu.data.logged import LoggedDataset
from phimu.data.sets.opening import is_source, open_set
from phimu.data.sets.scores import normalised_score
from phimu.environments.given import Given, given
from phimu.environments.given import Source as Environment
from phimu.errors import InputError, at_least
from phimu.evaluation.episodes import evaluate
from phimu.evaluation.fitting import fitting
from phimu.export import Exported, steps_of, write
from phimu.history import History
from phimu.queries import Queries
from phimu.runs import checkpoint
from phimu.runs.config import Dataset, RunConfig, load_config
from phimu.runs.directory import RunDirectory, open_run, sessions
from phimu.runs.interrupts import deferrable_interrupts
from phimu.runs.lock import locked
from phimu.runs.progress import Progress
from phimu.session import new_run
from phimu.settings import as_setting, override
from phimu.training.measures import falls_on, measured, shown
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun

Data = str | Path | LoggedDataset
_DATA = (str, Path, LoggedDataset)
Source = Environment | Data


class Model(Queries):
    """An agent that learns in an environment or from logged data. See `Ctrl`, `Sac`, `Offline`."""

    history: History  # what was measured while it learned, a row every `log_every` steps
    _given: Given | None = None  # what it learns in; on logged data, what it was given to act in
    _preset: str | None = None
    _family = ""  # what the names of the agents that it loads begin with

    def __init__(
        self,
        source: Source,
        agent: str,
        preset: str = "small",
        seed: int = 0,
        *,
        task_options: dict[str, Any] | None = None,
        **settings: Any,
    ):
        """`source` is a Gymnasium id, an environment or a function that makes one, several in a
        `SyncVectorEnv`, or logged data: what `phimu train` takes, or a dataset in memory
        (`from_arrays`). `settings` are the flags of `phimu train`."""
        options = task_options or {}
        if isinstance(source, gymnasium.vector.VectorEnv):
            settings = {"envs": source.num_envs} | settings
        data = _logged(source)
        chosen = override(preset_of(agent, preset, data is not None), settings)
        self._preset, self.history = preset, History()
        if data is not None:
            dataset = Dataset.of(data, data.task)
            self.config = RunConfig(data.name, agent, *chosen, seed, options, dataset)
            self.run = new_run(self.config, data=data)
        else:
            environment: Any = source
            collection: Any = chosen.schedule.collection
            self._given = found = given(environment, collection.envs, **options)
            name, options, environment = found.described
            self.config = RunConfig(name, agent, *chosen, seed, options, environment=environment)
            self.run = new_run(self.config, found.tasks)

    def learn(
        self,
        total_timesteps: int,
        callback: Callback | Sequence[Callback] | None = None,
        progress_bar: bool = False,
    ) -> Self:
        """Train for this many further environment steps; on logged data, updates of the policy.

        There the phases before the policy's, as far as they are still to do, come on top.
        `callback`, or each of a list, is called after every step: see `phimu.callbacks`. Whatever
        breaks learning off, also KeyboardInterrupt, leaves a model that can go on.
        """
        count = as_setting("total_timesteps", int, total_timesteps)  # 1e6 is one too
        at_least(1, total_timesteps=count)
        run, callbacks = self.run, callbacks_of(callback)
        start = max(run.step, run.preparation) if isinstance(run, OfflineRun) else run.step
        until = start + count
        with (
            deferrable_interrupts() as whole,
            Progress(until, run.step, quiet=not progress_bar) as progress,
            told_of_a_break(callbacks, self),
        ):
            while run.step < until:
                before = run.step
                run.advance(until, whole=whole)
                self._take_note(until)
                progress.update(run.step, shown(run.facts() | run.metrics), stretch=run.stretch)
                going_on = go_on(callbacks, Moment(self, before))
                for row in self.history[-1:]:
                    if (row["step"], row["kind"]) == (run.step, "evaluation"):
                        progress.update(run.step, {"evaluation": row["return"]}, True, run.stretch)
                if not going_on:
                    break
        return self

    def _take_note(self, until: int) -> None:
        """A row of the history, where one is due and there is something to say."""
        run = self.run
        if run.metrics and (
            run.step >= until or falls_on(run.clock, run.schedule.log_every, run.stride)
        ):
            self.history.append({"step": run.step, "kind": run.kind, **measured(run)})

    def plot(self, path: str | Path | None = None, metric: str | None = None) -> Any:
        """The learning curve as a Matplotlib figure, which is also written to `path` if given.

        `metric` is "evaluation", "return" (of the training episodes) or another number of the
        `history`; if not given, the first of these two that there is.
        """
        from phimu.reports.curves import curve_of_rows
        from phimu.reports.figures import curves_figure, save  # Matplotlib takes a while

        curve = curve_of_rows(
            self.history, metric, self.config.agent, self.config.dataset is not None
        )
        figure = curves_figure([curve], self.config.task)
        if path is not None:
            save(figure, Path(path))
        return figure

    def evaluate(
        self, episodes: int = 10, seed: int = 0, env: Environment | None = None
    ) -> dict[str, float]:
        """Mean return and length of episodes in mode action.

        They are run in `env`, an environment or a function that makes one; if not given, in another
        of the kind that the model learns in, or that its data names.
        """
        found = self._evaluated_in(env)
        try:
            summary = evaluate(self.run.policy(), found.tasks[0], episodes, seed).summary()
        finally:
            found.close()
        score = None
        if self.config.dataset is not None:
            score = normalised_score(found.tasks[0].name, summary["return"])
        return summary if score is None else summary | {"score": score}

    def _evaluated_in(self, env: Environment | None) -> Given:
        if env is not None:
            found = given(env)
        elif self._given is not None:
            # A ready-made one that a model of logged data was given is used by nobody else.
            taken = self._given.made or isinstance(self.run, OnlineRun)
            found = self._given.once_more() if taken else self._given
        elif self.config.evaluation_task is not None:
            found = given(self.config.evaluation_task, **self.config.task_options)
        else:
            raise InputError(
                "The data names no environment: give one as env, or ask for `estimates`."
            )
        return fitting(found, self.run, self.action_range)

    def set_env(self, env: Environment) -> None:
        """Learn on in another environment, with a new episode; on logged data, evaluate there."""
        found = self._given = fitting(given(env, self.config.envs), self.run, self.action_range)
        if isinstance(self.run, OnlineRun):
            self.run.move_to(found.tasks)
            self.config = self.config.in_environment(*found.described)

    def save(self, path: str | Path) -> None:
        """Write configuration, networks, optimisers and replay to a directory; not logged data."""
        with locked(Path(path), print):
            about = {} if self._preset is None else {"preset": self._preset}
            command = [f"{type(self).__name__}.save"]
            directory = open_run(Path(path), self.config.to_json(), command, about=about)
            self.history.write(directory.metrics)  # before the checkpoint, as every log
            self.run.save(directory.checkpoints)

    def export(self, path: str | Path) -> None:
        """Write the policy, its mode action, so that it runs without phimu.

        `policy.onnx` is an ONNX model, `policy.npz` plain arrays: see docs/export.md. Observations
        and actions are as the environment or data has them.
        """
        about = {"agent": self.config.agent, "task": self.config.task, "step": self.run.step}
        steps = steps_of(self.run.learner.acting, self.action_range)
        write(Path(path), Exported(steps, *self._shapes, about))

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Environment | Data | None = None,
        data: Data | None = None,
    ) -> Self:
        """A saved model, or a run of `phimu train`.

        `env` is what it goes on learning in: to be given where that has no Gymnasium id or was
        wrapped. With its `data` a model that learned from logged data can go on learning.
        """
        config = load_config(Path(path))
        cls._refuse(path, config)
        if config.dataset is not None and data is None and isinstance(env, _DATA):
            env, data = None, env  # the second argument is what it learns from
        saved = checkpoint.load(RunDirectory(Path(path)).checkpoints)
        if saved is None:
            raise InputError(f"{path} has no checkpoint to load.")
        model = cls.__new__(cls)
        model.config = config
        model._preset = (sessions(Path(path)) or [{}])[0].get("preset")
        environment: Any = env
        if config.dataset is not None:
            model.run = new_run(config, data=config.dataset.again(data))
            if env is not None:
                model.set_env(environment)
        else:
            if env is not None:
                model._given = given(environment, config.envs)
            elif config.environment is None:
                model._given = given(config.task, config.envs, **config.task_options)
            if model._given is not None:
                model.config = config.in_environment(*model._given.described)
            # Where there is none, it says what must be given.
            model.run = new_run(model.config, model._given and model._given.tasks)
        model.run.restore(saved, print)
        model.history = History.read(RunDirectory(Path(path)).metrics, saved.step)
        return model

    @property
    def num_timesteps(self) -> int:
        """What `learn` counts: environment steps so far; on logged data, updates of the policy."""
        run = self.run
        return max(0, run.step - run.preparation) if isinstance(run, OfflineRun) else run.step

    def __repr__(self) -> str:
        config = self.config
        facts = [config.environment or config.task, f"agent={config.agent!r}"]
        facts += [] if self._preset is None else [f"preset={self._preset!r}"]
        facts += [f"seed={config.seed}", f"num_timesteps={self.num_timesteps}"]
        return f"{self._name()}({', '.join(facts)})"

    @classmethod
    def _name(cls) -> str:
        """As it is imported from phimu."""
        return cls.__name__.removesuffix("Model") or "Model"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InputError(
            f"A model cannot be pickled or copied, for it holds an environment and compiled "
            f"programs: use save(path), then {self._name()}.load(path)."
        )

    @classmethod
    def _refuse(cls, path: str | Path, config: RunConfig) -> None:
        """What another class is for."""
        if (config.dataset is not None) != (cls is OfflineModel) and cls is not Model:
            own, other = "in an environment", "Ctrl or Sac"
            if config.dataset is not None:
                own, other = "on logged data", "Offline"
            raise InputError(f"{path} was trained {own}: load it with {other}.")
        if not config.agent.startswith(cls._family):
            raise InputError(f"{path} holds the agent {config.agent}, not one of {cls.__name__}.")


def _logged(source: Source) -> LoggedDataset | None:
    """The dataset, where the source is one."""
    if isinstance(source, LoggedDataset):
        return source
    if isinstance(source, Path) or (isinstance(source, str) and is_source(source)):
        return open_set(source)
    return None


class SacModel(Model):
    """Soft actor-critic, on the planner that CTRL uses."""

    _family = "sac"

    def __init__(self, env: Environment, *rest: Any, **named: Any):
        super().__init__(env, "sac", *rest, **named)


class CtrlModel(Model):
    """CTRL-UCB: `version` "m" has a two-layer critic, "l" a linear one."""

    _family = "ctrl-ucb"

    def __init__(self, env: Environment, version: str = "m", *rest: Any, **named: Any):
        if version not in ("m", "l"):
            raise InputError(f"version is {version!r}: choose 'm' (two-layer) or 'l' (linear).")
        super().__init__(env, f"ctrl-ucb-{version}", *rest, **named)


class OfflineModel(Model):
    """An agent that learns from logged data: CTRL-LCB, or one that it is compared with."""

    def __init__(
        self, data: str | Path | LoggedDataset, agent: str = "ctrl-lcb", *rest: Any, **named: Any
    ):
        if not isinstance(data, LoggedDataset):
            data = open_set(data)
        super().__init__(data, agent, *rest, **named)
