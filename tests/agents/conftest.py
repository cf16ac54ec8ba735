"""Sets of transitions with known answers, and the phases of an agent run on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents import protocol
from phimu.data.device_set import DeviceSet
from phimu.data.logged import Transitions
from phimu.data.rows import split
from phimu.normalisation import AsIs, normalise_batch
from phimu.types import Batch, Feed, Spec


@pytest.fixture(scope="session")
def bandit():
    """bandit(reward): episodes of one step; s uniform, a = tanh of N(0, 0.2), reward(s, a)."""

    def make(reward, rows=2_000, batch_size=64):
        rng = np.random.default_rng(0)
        observation = rng.uniform(-1, 1, (rows, 1)).astype(np.float32)
        action = np.tanh(0.2 * rng.normal(size=(rows, 1))).astype(np.float32)
        transitions = Transitions(
            observation,
            action,
            reward(observation[:, 0], action[:, 0]).astype(np.float32),
            observation,
            np.ones(rows, bool),
            np.zeros(rows, bool),
            np.arange(rows, dtype=np.int32),
        )
        return DeviceSet(transitions, Spec(1, 1), batch_size)

    return make


@pytest.fixture(scope="session")
def few():
    """Six transitions of noise, two of which end their episode; actions have two dimensions."""
    rng = np.random.default_rng(0)
    return Batch(
        observation=rng.normal(size=(6, 3)).astype(np.float32),
        action=rng.uniform(-1, 1, (6, 2)).astype(np.float32),
        reward=rng.normal(size=6).astype(np.float32),
        next_observation=rng.normal(size=(6, 3)).astype(np.float32),
        terminated=np.array([0, 1, 0, 0, 1, 0], np.float32),
        truncated=np.zeros(6, np.float32),
    )


@pytest.fixture(scope="session")
def walk():
    """Episodes of ten steps on the circle: an angle, a push in one direction or the other."""
    rng = np.random.default_rng(1)
    episodes, steps = 60, 10
    angle = rng.uniform(-np.pi, np.pi, episodes)
    columns = []
    for _ in range(steps):
        action = rng.uniform(-1, 1, episodes)
        after = angle + 0.5 * action
        seen = (np.stack([np.cos(x), np.sin(x)], -1) for x in (angle, after))
        columns.append((next(seen), action[:, None], np.cos(after), next(seen)))
        angle = after
    observation, action, reward, following = (
        np.stack(column, 1).reshape(episodes * steps, -1).astype(np.float32)
        for column in zip(*columns, strict=True)
    )
    truncated = np.tile(np.arange(steps) == steps - 1, episodes)
    transitions = Transitions(
        observation,
        action,
        reward[:, 0],
        following,
        np.zeros(len(action), bool),
        truncated,
        np.repeat(np.arange(episodes, dtype=np.int32), steps),
    )
    return DeviceSet(transitions, Spec(2, 1), 64)


@pytest.fixture(scope="session")
def learn_once():
    """learn_once(agent, phase, state, data, key, seen): draw, normalise, update, as a run does."""

    def learn(agent, phase, state, data, key, seen=AsIs()):  # noqa: B008 (it has no state)
        drawn = protocol.draw(agent, phase, data, key)
        batch = normalise_batch(seen, split(drawn.rows, data.spec))
        others = {name: seen(observation) for name, observation in drawn.others.items()}
        return agent.update(phase, state, Feed(batch, others, drawn.columns), key)

    return learn


@pytest.fixture(scope="session")
def learned(learn_once):
    """learned(agent, data, updates): the state and metrics after all phases, the last that long.

    The state after each phase is put into `history`, if there is one.
    """

    def learn(agent, data, updates, seed=0, history=None, seen=AsIs()):  # noqa: B008
        state = agent.init(data.spec, jax.random.PRNGKey(seed))
        for name, count, *_ in protocol.phases(agent):
            state, columns = protocol.begin(agent, name, state, data, seen, None)
            keys = jax.random.split(jax.random.PRNGKey(seed + 1), count or updates)
            state, metrics = jax.jit(
                lambda state, data, keys, name=name: jax.lax.scan(
                    lambda state, key: learn_once(agent, name, state, data, key, seen), state, keys
                )
            )(state, columns, keys)
            if history is not None:
                history[name] = state
        return state, metrics

    return learn


@pytest.fixture(scope="session")
def modes():
    """modes(agent, state, observations): the mode actions there."""

    def act(agent, state, observation, seen=AsIs()):  # noqa: B008
        observation = seen(jnp.asarray(observation, jnp.float32))
        return np.asarray(agent.policy(state).mode(observation))

    return act
