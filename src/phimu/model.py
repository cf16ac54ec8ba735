"""The Python interface: `Ctrl`, `Sac`, `Offline` with learn, predict, save and load as in SB3."""

from functools import partial
from pathlib import Path
from typing import Any, Self

import gymnasium
import jax
import numpy as np

from phimu.agents.offline_presets import offline_preset
from phimu.agents.presets import override, preset
from phimu.data.logged import OfflineSet
from phimu.data.sets.opening import open_set
from phimu.data.sets.scores import normalised_score
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.evaluation.episodes import evaluate
from phimu.runs import checkpoint
from phimu.runs.config import Dataset, RunConfig, load_config
from phimu.runs.directory import RunDirectory, open_run
from phimu.runs.lock import locked
from phimu.runs.progress import Progress
from phimu.session import offline_run, online_run
from phimu.training.offline import OfflineRun
from phimu.training.online import OnlineRun, act


class _Learner:
    """What models of both kinds do with their run."""

    config: RunConfig
    run: OnlineRun | OfflineRun
    _calls = 0  # of `predict`

    def q_value(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Q(s, a) for [B, ...] pairs, actions in [-1, 1]: [B]."""
        return self._query("q_value", observation, action)

    def save(self, path: str | Path) -> None:
        """Write configuration, networks, optimisers and replay to a directory; not logged data."""
        with locked(Path(path), print):
            directory = open_run(Path(path), self.config.to_json(), [f"{type(self).__name__}.save"])
            self.run.save(directory.checkpoints)

    @classmethod
    def _restored(cls, path: Path, config: RunConfig, run: OnlineRun | OfflineRun) -> Self:
        saved = checkpoint.load(RunDirectory(path).checkpoints)
        if saved is None:
            raise InputError(f"{path} has no checkpoint to load.")
        model = cls.__new__(cls)
        model.config, model.run = config, run
        model.run.restore(saved, print)
        return model

    def _act(self, observation: np.ndarray, deterministic: bool) -> np.ndarray:
        """Actions in [-1, 1] for observations [..., D]; samples are new at each call."""
        self._calls += 1
        acting, seed = self.run.state.acting, self.config.seed
        return np.asarray(
            act(self.run.agent, deterministic, acting, observation, seed, self._calls)
        )

    def _query(self, name: str, *arrays: np.ndarray) -> np.ndarray:
        inputs = (np.asarray(a, np.float32) for a in arrays)
        return np.asarray(_query(self.run.agent, name, self.run.state, *inputs))


@partial(jax.jit, static_argnums=(0, 1))
def _query(agent: Any, name: str, state: Any, *arrays: Any) -> jax.Array:
    return getattr(agent, name)(state, *arrays)


class Model(_Learner):
    """An agent in an environment. Use `Ctrl` or `Sac`."""

    run: OnlineRun
    _agent = "sac"
    _family = ""  # what the names of its agents begin with

    def __init__(
        self,
        env: str | gymnasium.Env,
        preset_name: str = "small",
        seed: int = 0,
        *,
        task_options: dict[str, Any] | None = None,
        **settings: Any,
    ):
        """`settings` are the fields of the configuration, as the flags of `phimu train`."""
        task = open_task(env, **(task_options or {}))
        chosen = override(preset(self._agent, preset_name), settings)
        name = env if isinstance(env, str) else task.name
        self.config = RunConfig(name, self._agent, *chosen, seed, task_options or {})
        self.run = OnlineRun(chosen.settings, task, chosen.schedule, seed)

    def learn(self, total_timesteps: int, progress_bar: bool = False) -> Self:
        """Train for this many further environment steps."""
        if total_timesteps < 1:
            raise InputError(f"total_timesteps is {total_timesteps}: give at least 1.")
        until = self.run.step + total_timesteps
        with Progress(until, self.run.step, quiet=not progress_bar) as progress:
            while self.run.step < until:
                self.run.advance()
                progress.update(self.run.step, {**self.run.metrics, **self.run.recent_return()})
        return self

    def predict(
        self,
        observation: np.ndarray,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """The action for one observation or a batch, in the environment's own range."""
        del episode_start
        size = self.run.task.spec.observation_dim
        shape = self.run.task.env.observation_space.shape
        flat = np.asarray(observation, np.float32)
        batched = flat.shape[1:] == shape
        if not batched and flat.shape != shape:
            raise InputError(
                f"observation has shape {flat.shape}: give {shape}, or a batch of them."
            )
        actions = self._act(flat.reshape(-1, size), deterministic)
        scaled = np.stack([self.run.task.to_env_action(action) for action in actions])
        return (scaled if batched else scaled[0]), state

    def evaluate(self, episodes: int = 10, seed: int = 0) -> dict[str, float]:
        """Mean return and length of episodes in mode action, on a fresh copy of a named task."""
        task = open_task(self.config.task, **self.config.task_options)
        return evaluate(self.run.policy(), task, episodes, seed).summary()

    @classmethod
    def load(cls, path: str | Path, env: gymnasium.Env | None = None) -> Self:
        """A saved model, or a run of `phimu train`; `env` where the task has no Gymnasium id."""
        path = Path(path)
        config = load_config(path)
        if config.dataset is not None:
            raise InputError(f"{path} was trained on logged data: load it with Offline.")
        if not config.agent.startswith(cls._family):
            raise InputError(f"{path} holds the agent {config.agent}, not one of {cls.__name__}.")
        run = online_run(config, task=None if env is None else open_task(env))
        return cls._restored(path, config, run)


class Sac(Model):
    """Soft actor-critic, on the planner that CTRL uses."""

    _family = "sac"


class Ctrl(Model):
    """CTRL-UCB: `version` "m" has a two-layer critic, "l" a linear one."""

    _family = "ctrl-ucb"

    def __init__(self, env: str | gymnasium.Env, version: str = "m", **rest: Any):
        if version not in ("m", "l"):
            raise InputError(f"version is {version!r}: choose 'm' (two-layer) or 'l' (linear).")
        self._agent = f"ctrl-ucb-{version}"
        super().__init__(env, **rest)

    def phi(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The features the planner reads: [B, d]."""
        return self._query("phi", observation, action)

    def bonus(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The exploration bonus: [B]."""
        return self._query("bonus", observation, action)

    def density_ratio(
        self, observation: np.ndarray, action: np.ndarray, next_observation: np.ndarray
    ) -> np.ndarray:
        """P(s'|s,a) / p(s') of every pair [B] with every next observation [K]: [B, K]."""
        return np.exp(self._query("log_ratio", observation, action, next_observation))


class Offline(_Learner):
    """An agent that learns from logged data: CTRL-LCB, or one that it is compared with."""

    run: OfflineRun

    def __init__(
        self,
        data: str | Path | OfflineSet,
        agent: str = "ctrl-lcb",
        preset_name: str = "small",
        seed: int = 0,
        **settings: Any,
    ):
        """`data` is what `phimu train` takes, or a set in memory (`from_arrays`)."""
        if not isinstance(data, OfflineSet):
            data = open_set(data)
        chosen = override(offline_preset(agent, preset_name), settings)
        dataset = Dataset.of(data, data.task)
        self.config = RunConfig(data.name, agent, *chosen, seed, {}, dataset)
        self.run = offline_run(self.config, data)

    def learn(self, total_updates: int, progress_bar: bool = False) -> Self:
        """The phases before the policy's, as far as they are still to do, then further updates."""
        if total_updates < 1:
            raise InputError(f"total_updates is {total_updates}: give at least 1.")
        until = max(self.run.step, self.run.preparation) + total_updates
        with Progress(until, self.run.step, quiet=not progress_bar) as progress:
            while self.run.step < until:
                self.run.advance(until)
                progress.update(self.run.step, self.run.metrics)
        return self

    def predict(
        self,
        observation: np.ndarray,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """The action for one observation or a batch, in the range of the data's actions."""
        del episode_start
        observation = np.asarray(observation, np.float32)
        size = self._dataset.observation_dim
        if observation.ndim not in (1, 2) or observation.shape[-1] != size:
            raise InputError(
                f"observation has shape {observation.shape}: give ({size},), or a batch of them."
            )
        return self._dataset.to_own_range(self._act(observation, deterministic)), state

    def evaluate(self, episodes: int = 10, seed: int = 0) -> dict[str, float]:
        """Episodes in mode action, in the environment that the data names."""
        if self._dataset.task is None:
            raise InputError("The data names no environment: there are only `estimates`.")
        task = open_task(self._dataset.task)
        summary = evaluate(self.run.policy(), task, episodes, seed).summary()
        score = normalised_score(task.name, summary["return"])
        return summary if score is None else summary | {"score": score}

    def estimates(self) -> dict[str, float]:
        """The critic's value of the policy and the penalties, on the data: no episode is run."""
        return self.run.estimates()

    def penalty(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """CTRL-LCB's elliptical penalty for [B, ...] pairs, actions in [-1, 1]: [B]."""
        if not hasattr(self.run.agent, "penalty"):
            raise InputError(f"{self.config.agent} has no penalty: only ctrl-lcb has one.")
        return self._query("penalty", observation, action)

    @classmethod
    def load(cls, path: str | Path, data: str | Path | OfflineSet | None = None) -> Self:
        """A saved model, or a run of `phimu train`; with its data it can go on learning."""
        config = load_config(Path(path))
        if config.dataset is None:
            raise InputError(f"{path} was trained in an environment: load it with Ctrl or Sac.")
        if data is not None and not isinstance(data, OfflineSet):
            data = open_set(data, config.dataset.sha256)
        return cls._restored(Path(path), config, offline_run(config, data))

    @property
    def _dataset(self) -> Dataset:
        if self.config.dataset is None:
            raise TypeError("an offline configuration has a dataset")
        return self.config.dataset
