"""The online loop: act, store, learn. One object holds everything a checkpoint has to."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phimu.agents.ctrl_ucb import CtrlUcb
from phimu.agents.presets import Agent, Schedule
from phimu.data.replay import Replay
from phimu.environments.task import Task
from phimu.errors import InputError, NotFinite
from phimu.networks import Acting
from phimu.training import checkpoint
from phimu.training.evaluation import Policy
from phimu.training.memory import keep_freed_memory

# Randomness is counted, not carried: every draw comes from (seed, stream, step), so that a
# resumed run continues the same streams without having saved any.
WARM_UP, BATCH, RESET, ACT, UPDATE, REFRESH, EVALUATE, INIT = range(8)
FINITE = "finite"


def stream(seed: int, name: int, step: int) -> np.random.Generator:
    return np.random.default_rng((seed, name, step))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def update(agent: Any, state: Any, seed: int, step: int, *data: Any) -> Any:
    state, metrics = agent.update(state, *data, _key(seed, UPDATE, step))
    # One flag for all losses and gradient norms, which the host reads when it has to wait for the
    # update anyway. Keeping the old state where it is false would take another pass over both.
    finite = jnp.all(jnp.isfinite(jnp.stack(list(metrics.values()))))
    return state, metrics | {FINITE: finite}


@partial(jax.jit, static_argnums=(0, 1))
def act(
    agent: Agent, deterministic: bool, acting: Acting, observation: Any, seed: int, step: int
) -> jax.Array:
    return agent.act(acting, observation, _key(seed, ACT, step), deterministic)


def _key(seed: int, name: int, step: int) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(jax.random.PRNGKey(seed), name), step)


class OnlineRun:
    """An agent learning in a task: `advance` is one step of the environment."""

    def __init__(self, agent: Agent, task: Task, schedule: Schedule, seed: int):
        if not 0 <= seed < 2**31:
            raise InputError(f"seed is {seed}: give a number from 0 to 2147483647.")
        keep_freed_memory()  # before the first use of JAX, whose threads would get arenas
        self.agent, self.task, self.schedule, self.seed = agent, task, schedule, seed
        self.state: Any = agent.init(task.spec, _key(seed, INIT, 0))
        self.replay = Replay(task.spec, schedule.buffer_size, schedule.learning_starts)
        self.step = self.updates = self.episodes = 0
        self._simulated = 0  # simulator steps of all episodes but the open one
        self.returns: list[float] = []  # of the last episodes, for the progress line
        self.metrics: dict[str, jax.Array] = {}
        self._unchecked: tuple[jax.Array, list[Any]] | None = None  # flag and data of an update
        self._saved: tuple[Path, checkpoint.Saved] | None = None
        self._observation = np.zeros(task.spec.observation_dim, np.float32)
        self._actions: list[np.ndarray] = []  # of the open episode
        self._return = 0.0
        self._begin_episode()

    def advance(self) -> None:
        action = self._action()
        next_observation, reward, terminated, truncated = self.task.step(action)
        self.replay.add(self._observation, action, reward, next_observation, terminated)
        self._observation = next_observation
        self._actions.append(action)
        self._return += reward
        self.step += 1
        if self.step >= self.schedule.learning_starts and self.step % self.schedule.train_freq == 0:
            for _ in range(self.schedule.gradient_steps):
                self._learn()
        if terminated or truncated:
            self.returns = [*self.returns[-9:], self._return]
            self.episodes += 1
            self._simulated += self.task.simulator_steps
            self._begin_episode()

    @property
    def simulator_steps(self) -> int:
        """`step` counts decisions; where actions are repeated, the simulator has gone further."""
        return self._simulated + self.task.simulator_steps

    def policy(self) -> Policy:
        """The mode action of the agent as it is now."""
        self.check()
        acting = self.state.acting
        return lambda o: np.asarray(act(self.agent, True, acting, o, self.seed, 0))

    def _action(self) -> np.ndarray:
        if self.step < self.schedule.learning_starts:
            rng = stream(self.seed, WARM_UP, self.step)
            return rng.uniform(-1, 1, self.task.spec.action_dim).astype(np.float32)
        action = np.asarray(
            act(self.agent, False, self.state.acting, self._observation, self.seed, self.step)
        )
        self.check()  # the action depends on the last update, so that one is over
        return action

    def check(self) -> None:
        """Wait for the last update; NotFinite with its batch if a number in it was not finite."""
        if self._unchecked is None:
            return
        finite, data = self._unchecked
        if bool(finite):
            self._unchecked = None
            return
        bad = ", ".join(f"{k} is {v}" for k, v in self.metrics.items() if not np.isfinite(v))
        batch = data[0]._asdict() | ({"noise": data[1]} if len(data) > 1 else {})
        raise NotFinite(
            f"{bad} at step {self.step:,}: lower the learning rates or scale the reward.", batch
        )

    def _learn(self) -> None:
        agent, rng = self.agent, stream(self.seed, BATCH, self.updates)
        data: list[Any] = [self.replay.sample(self.schedule.batch_size, rng)]
        if isinstance(agent, CtrlUcb):
            data.append(
                agent.noise.draw(
                    lambda n: self.replay.sample_next(n, rng),
                    lambda n: self.replay.sample_random_next(n, rng),
                )
            )
        self.check()  # after sampling, which the host does while the last update runs
        if isinstance(agent, CtrlUcb):
            self._refresh_if_due(agent)
        self.state, self.metrics = update(agent, self.state, self.seed, self.updates, *data)
        self._unchecked = self.metrics.pop(FINITE), data
        self.updates += 1

    def _refresh_if_due(self, agent: CtrlUcb) -> None:
        """Estimate the covariance of the bonus anew, now and then."""
        if not agent.confidence.bonus_scale or self.updates % agent.confidence.refresh_every:
            return
        rng = stream(self.seed, REFRESH, self.updates)
        pairs = self.replay.sample_pairs(agent.confidence.covariance_sample, rng)
        self.state = agent.refresh(self.state, *pairs, len(self.replay))

    def _begin_episode(self) -> None:
        seed = int(stream(self.seed, RESET, self.episodes).integers(2**31))
        self._observation = self.task.reset(seed)
        self._actions = []
        self._return = 0.0

    def recent_return(self) -> dict[str, float]:
        """Mean return of the last ten episodes, once there is one."""
        return {"return": float(np.mean(self.returns))} if self.returns else {}

    def save(self, directory: Path, **more: Any) -> None:
        """Everything as one checkpoint, with `more` facts; the open episode as its actions."""
        self.check()
        arrays = {f"agent/{k}": v for k, v in checkpoint.flatten(self.state).items()}
        arrays |= {f"metrics/{k}": np.asarray(v) for k, v in self.metrics.items()}
        actions = np.array(self._actions, np.float32).reshape(-1, self.task.spec.action_dim)
        facts = {
            "updates": self.updates,
            "episodes": self.episodes,
            "simulated": self._simulated,
            "returns": self.returns,
        }
        home = directory.resolve()
        last = self._saved[1] if self._saved and self._saved[0] == home else None
        arrays["open_episode"] = actions
        written = checkpoint.save(directory, self.step, arrays, facts | more, self.replay, last)
        self._saved = home, written

    def restore(self, saved: checkpoint.Checkpoint, say: Callable[[str], Any]) -> None:
        """Continue from a checkpoint, replaying the open episode's actions from its seed."""
        self.state = restore_agent(self.state, saved)
        saved.restore_replay(self.replay)
        self._saved = saved.directory.resolve(), checkpoint.Saved(saved.step, saved.segments)
        self.metrics = {k: jnp.asarray(v) for k, v in _below("metrics/", saved.arrays).items()}
        self.step = saved.step
        try:
            self.updates, self.episodes, self._simulated = (
                int(saved.facts[name]) for name in ("updates", "episodes", "simulated")
            )
            self.returns = [float(value) for value in saved.facts["returns"]]
            open_episode = saved.arrays["open_episode"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"The checkpoint in {saved.directory} was written by another program ({error!r})."
            ) from error
        self._begin_episode()
        for action in open_episode:
            self._observation, reward, *_ = self.task.step(action)
            self._actions.append(action)
            self._return += reward
        if self._actions:
            last = self.replay.rows.next_observation[(self.replay.added - 1) % self.replay.capacity]
            if not np.array_equal(self._observation, last):
                say(
                    f"{self.task.name} did not repeat its open episode from the same seed and "
                    "actions, so this run is not a bit-exact continuation."
                )


def restore_agent(template: Any, saved: checkpoint.Checkpoint) -> Any:
    """The agent's part of a checkpoint."""
    return checkpoint.restore(template, _below("agent/", saved.arrays))


def _below(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
