"""The online loop: act, store, learn. One object holds everything a checkpoint has to."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from phimu.agents.ctrl_ucb import CtrlUcb
from phimu.agents.presets import Agent, Schedule
from phimu.data.replay import Replay
from phimu.environments.task import Task
from phimu.errors import InputError
from phimu.networks import Acting
from phimu.training import checkpoint
from phimu.training.evaluation import Policy
from phimu.training.memory import keep_freed_memory

# Randomness is counted, not carried: every draw comes from (seed, stream, step), so that a
# resumed run continues the same streams without having saved any.
WARM_UP, BATCH, RESET, ACT, UPDATE, REFRESH, EVALUATE, INIT = range(8)


def stream(seed: int, name: int, step: int) -> np.random.Generator:
    return np.random.default_rng((seed, name, step))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def update(agent: Any, state: Any, seed: int, step: int, *data: Any) -> Any:
    return agent.update(state, *data, _key(seed, UPDATE, step))


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
        acting = self.state.acting
        return lambda o: np.asarray(act(self.agent, True, acting, o, self.seed, 0))

    def _action(self) -> np.ndarray:
        if self.step < self.schedule.learning_starts:
            rng = stream(self.seed, WARM_UP, self.step)
            return rng.uniform(-1, 1, self.task.spec.action_dim).astype(np.float32)
        return np.asarray(
            act(self.agent, False, self.state.acting, self._observation, self.seed, self.step)
        )

    def _learn(self) -> None:
        agent, rng = self.agent, stream(self.seed, BATCH, self.updates)
        data: list[Any] = [self.replay.sample(self.schedule.batch_size, rng)]
        if isinstance(agent, CtrlUcb):
            if agent.confidence.bonus_scale and self.updates % agent.confidence.refresh_every == 0:
                self._refresh(agent)
            data.append(
                agent.noise.draw(
                    lambda n: self.replay.sample_next(n, rng),
                    lambda n: self.replay.sample_random_next(n, rng),
                )
            )
        self.state, self.metrics = update(agent, self.state, self.seed, self.updates, *data)
        self.updates += 1

    def _refresh(self, agent: CtrlUcb) -> None:
        """Estimate the covariance of the bonus anew."""
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

    def save(self, directory: Any) -> None:
        """Everything as one checkpoint; the open episode as its actions."""
        arrays = {f"agent/{k}": v for k, v in checkpoint.flatten(self.state).items()}
        arrays |= {f"replay/{k}": v for k, v in self.replay.arrays().items()}
        actions = np.array(self._actions, np.float32).reshape(-1, self.task.spec.action_dim)
        facts = {
            "updates": self.updates,
            "episodes": self.episodes,
            "simulated": self._simulated,
            "returns": self.returns,
        }
        checkpoint.save(directory, self.step, arrays | {"open_episode": actions}, facts)

    def restore(self, saved: checkpoint.Checkpoint, say: Callable[[str], Any]) -> None:
        """Continue from a checkpoint, replaying the open episode's actions from its seed."""
        self.state = restore_agent(self.state, saved)
        self.replay.restore(_below("replay/", saved.arrays))
        self.step = saved.step
        self.updates, self.episodes = saved.facts["updates"], saved.facts["episodes"]
        closed = saved.step - len(saved.arrays["open_episode"])
        self._simulated = saved.facts.get("simulated", closed)  # not yet counted in version 0.1
        self.returns = list(saved.facts["returns"])
        self._begin_episode()
        for action in saved.arrays["open_episode"]:
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


def finite_metrics(metrics: dict[str, jax.Array], step: int) -> dict[str, float]:
    """Metrics as floats; a loss that is not finite ends the run with a sentence."""
    values = {name: float(value) for name, value in metrics.items()}
    for name, value in values.items():
        if not np.isfinite(value):
            raise InputError(
                f"{name} is {value} at step {step:,}: lower the learning rates or scale the reward."
            )
    return values
