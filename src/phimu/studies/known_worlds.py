"""Every representation where the transition is known: how far its P is off, and a linear Q on phi.

Three worlds. `low rank`: a random linear MDP, observations one-hot. `lock`: a combination lock,
each latent state seen as one of two observations, one-hot. `maze`: the four rooms on a grid, an
observation is the position of a cell, P is counted from moves of the maze itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phimu.agents import preset
from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.environments.maze_geometry import Maze
from phimu.errors import at_least
from phimu.finite import models, planning
from phimu.finite.mdp import FiniteMDP
from phimu.representation.seam import compared, needs_next_action
from phimu.settings import override
from phimu.types import Feed, Spec

WIDTHS: Mapping[str, Any] = {"feature_sizes": (64, 64), "feature_dim": 64}
BLURRED = {"temperature": 8.0}  # the square root of feature_dim
# By name: the agent whose preset `small` it is of, and what differs.
REPRESENTATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "contrastive, blurred": ("ctrl-ucb-m", BLURRED),
    "contrastive": ("ctrl-ucb-m", BLURRED | {"levels": ()}),
    "ctrl-sr": ("ctrl-sr", BLURRED),
    "spectral (speder)": ("speder", {}),
    "score (diff-sr)": ("diff-sr", {}),
    "latent (lv-rep)": ("lv-rep", {}),
    "gaussian (spede)": ("spede", {}),
    "successor (deep-sf)": ("deep-sf", {}),
}
UNTRAINED = "not trained"  # the same network as the first's, as a control
BATCH, ROWS = 256, 50_000
CELLS, DRAWS = 16, 100  # cells along a side of the maze, moves that a pair's P is counted from
STEPS = np.array([(x, y) for x in (-1.0, 0.0, 1.0) for y in (-1.0, 0.0, 1.0)])  # its actions


class RepresentationRow(NamedTuple):
    """What is learned of one world, over all (s, a) alike."""

    world: str
    representation: str
    seed: int
    total_variation: float  # between learned and true P; nan where there is no density
    value_error: float  # of a linear Q: the share of its variance that is not explained


class World(NamedTuple):
    """A finite MDP and what its observations [S, D] and actions [A, k] look like to a network."""

    mdp: FiniteMDP
    observation: np.ndarray
    action: np.ndarray


def representations(seeds: int = 5, updates: int = 3_000) -> list[RepresentationRow]:
    """Learn phi with every loss where P is known, and compare.

    For each of three worlds: the total variation between learned and true P, and what a linear Q
    on phi cannot represent of the values of four policies. All networks are 64 wide, phi too, with
    the presets `small` otherwise. A quarter of an hour.

    Args:
        seeds: worlds of each kind, data and first weights.
        updates: of each phi, on batches of 256.
    """
    at_least(1, seeds=seeds, updates=updates)
    rows = []
    for name, make in WORLDS.items():
        for seed in range(seeds):
            world = make(seed)
            for representation in (*REPRESENTATIONS, UNTRAINED):
                found = measure(world, representation, updates, seed)
                rows.append(RepresentationRow(name, representation, seed, *found))
    return rows


def measure(world: World, name: str, updates: int, seed: int) -> tuple[float, float]:
    """The last two fields of a row."""
    agent, changes = REPRESENTATIONS[next(iter(REPRESENTATIONS)) if name == UNTRAINED else name]
    settings = override(preset(agent, "small"), {**WIDTHS, **changes}).settings.representation
    store = _collect(world, np.random.default_rng(seed))
    state = jax.tree.map(jnp.copy, settings.init(store.spec, jax.random.PRNGKey(seed)))
    if name != UNTRAINED:
        state = _learn(settings, state, store, world, updates, seed)
    count = len(world.observation)
    observations = jnp.repeat(world.observation, len(world.action), 0)
    pairs = observations, jnp.tile(world.action, (count, 1))
    phi = np.asarray(settings.phi(state)(*pairs), np.float64)
    distance = float("nan")
    if hasattr(settings, "log_ratio") and name != UNTRAINED:
        read = compared(settings, state)(*pairs)
        ratios = np.asarray(settings.log_ratio(state, read, world.observation), np.float64)
        distance = transition_error(world.mdp, ratios, _share(store, world))
    return distance, value_error(world.mdp, phi, np.random.default_rng(seed))


def transition_error(mdp: FiniteMDP, log_ratio: np.ndarray, base_measure: np.ndarray) -> float:
    """Total variation between P and what log P(s'|s,a)/p(s') [SA, S] says of it, up to log Z."""
    learned = base_measure * np.exp(log_ratio - log_ratio.max(axis=1, keepdims=True))
    learned /= learned.sum(axis=1, keepdims=True)
    truth = np.asarray(mdp.transition).reshape(learned.shape)
    return float(0.5 * np.abs(learned - truth).sum(axis=1).mean())


def value_error(mdp: FiniteMDP, phi: np.ndarray, rng: np.random.Generator) -> float:
    """The share of the variance of discount E V(s') over (s, a) that is not linear in phi [SA, d].

    That is Q less the reward, which is linear by its own assumption. The mean over the optimal
    policy, the uniform one and two that are drawn.
    """
    observations, actions = mdp.reward.shape
    policies = [
        np.asarray(planning.policy_iteration(mdp.transition, mdp.reward, mdp.discount).policy),
        np.full((observations, actions), 1 / actions),
        *rng.dirichlet(np.ones(actions), size=(2, observations)),
    ]
    inputs = np.column_stack([phi, np.ones(len(phi))])
    missed = []
    for policy in policies:
        value = planning.evaluate(mdp.transition, mdp.reward, mdp.discount, policy).value
        wanted = (mdp.discount * mdp.transition @ np.asarray(value)).reshape(-1)
        found = inputs @ np.linalg.lstsq(inputs, wanted)[0]
        missed.append(np.sum((wanted - found) ** 2) / np.sum((wanted - wanted.mean()) ** 2))
    return float(np.mean(missed))


def _collect(world: World, rng: np.random.Generator) -> Replay:
    """Transitions of all pairs alike; every one is an episode of its own."""
    observations, actions = world.mdp.reward.shape
    spec = Spec(world.observation.shape[1], world.action.shape[1], discrete=True)
    store = Replay(spec, ROWS, warm_up=0, batch_size=BATCH)
    s, a = rng.integers(observations, size=ROWS), rng.integers(actions, size=ROWS)
    ends = np.cumsum(world.mdp.transition, axis=2)[s, a]
    following = np.argmax(ends > rng.uniform(size=(ROWS, 1)) * ends[:, -1:], axis=1)
    columns = (
        world.observation[s],
        world.action[a],
        world.mdp.reward[s, a],
        world.observation[following],
    )
    for row in zip(*columns, strict=True):
        store.add(*row, terminated=False, truncated=True)
    return store


def _share(store: Replay, world: World) -> np.ndarray:
    """p(s'), as the data has it: [S]."""
    seen = store.rows.next_observation @ world.observation.T
    nearest = np.argmin((world.observation**2).sum(axis=1) - 2 * seen, axis=1)
    return np.bincount(nearest, minlength=len(world.observation)) / len(nearest)


def _learn(settings: Any, state: Any, store: Replay, world: World, updates: int, seed: int) -> Any:
    rng, key = np.random.default_rng([seed, 1]), jax.random.PRNGKey(seed)
    asks = needs_next_action(settings)
    for update in range(updates):
        drawn = settings.draw(store, store.sample(rng), rng)
        columns = dict(drawn.columns)
        if asks:  # of the uniform policy
            columns["next_action"] = world.action[rng.integers(len(world.action), size=BATCH)]
        given = drawn.rows, drawn.others, columns
        state = _update(settings, store.spec, state, *given, key, update)
    return state


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _update(
    settings: Any, spec: Spec, state: Any, rows: Any, others: Any, columns: Any, key: Any, n: Any
) -> Any:
    feed = Feed(split(rows, spec), others, columns)
    return settings.update(state, feed, jax.random.fold_in(key, n))[0]


def _one_hot(mdp: FiniteMDP) -> World:
    observations, actions = mdp.reward.shape
    return World(mdp, np.eye(observations, dtype=np.float32), np.eye(actions, dtype=np.float32))


def low_rank(seed: int) -> World:
    return _one_hot(models.random_low_rank(40, 5, 8, seed=seed))


def lock(seed: int) -> World:
    return _one_hot(models.combination_lock(6, 4, per_latent=2, seed=seed))


def maze(seed: int) -> World:
    """Standing still or a step in one of eight directions; 1 is paid in the room's far corner."""
    rooms, rng = replace(Maze(), noise=0.5), np.random.default_rng(seed)
    side = (np.arange(CELLS) + 0.5) * rooms.size / CELLS
    centres = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    floor = ~rooms.inside_wall(centres)
    number = np.cumsum(floor) - 1
    start = np.repeat(centres[floor], len(STEPS) * DRAWS, axis=0)
    taken = np.tile(np.repeat(STEPS, DRAWS, axis=0), (floor.sum(), 1))
    end = rooms.transition(start, taken, rng)
    nearest = _nearest(end, centres[floor])
    pair = np.arange(len(nearest)) // DRAWS
    states = int(floor.sum())
    counts = np.zeros((states * len(STEPS), states))
    np.add.at(counts, (pair, nearest), 1.0)
    transition = (counts / DRAWS).reshape(states, len(STEPS), states)
    reward = np.zeros((states, len(STEPS)))
    reward[number[CELLS * (CELLS - 1)]] = 1.0
    mdp = models.tabular(transition, reward, models.uniform(states), 0.95)
    seen = (centres[floor] - rooms.size / 2) / (rooms.size / np.sqrt(12))  # of unit variance
    return World(mdp, seen.astype(np.float32), np.eye(len(STEPS), dtype=np.float32))


def _nearest(points: np.ndarray, centres: np.ndarray, rows: int = 20_000) -> np.ndarray:
    """The number of the nearest centre of each point: [N]."""
    length = (centres**2).sum(axis=1)
    pieces = [points[at : at + rows] for at in range(0, len(points), rows)]
    return np.concatenate([np.argmin(length - 2 * piece @ centres.T, axis=1) for piece in pieces])


WORLDS: dict[str, Callable[[int], World]] = {"low rank": low_rank, "lock": lock, "maze": maze}
