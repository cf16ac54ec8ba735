"""Does a bonus see what is new? Its ranks against true visit counts, on a grid of observations.

A count-based bonus would be 1 / sqrt(visits); the elliptical one should rank cells as that does,
and be larger where nothing was visited and far outside of the data.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from phimu.confidence import Elliptical
from phimu.environments.four_rooms import FourRooms
from phimu.environments.task import Task
from phimu.errors import InputError
from phimu.training.learner import LearnerState, query
from phimu.training.online import OnlineRun
from phimu.training.streams import REFRESH, stream
from phimu.types import Spec

Bonus = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (observation, action) -> [B]

SIDE = 20  # cells along each of two coordinates
ACTIONS = 8  # random ones, the same in every cell, over which its bonus is averaged; or all
FAR = 10.0  # times the observations of the data
PAIRS = 4_096  # of the data, on which its own bonus is averaged
UNCAPPED = 1e-3  # a bonus_scale at which nothing reaches the cap, so that ratios are seen
# What the bonus can be of, by name.
FORMS: dict[str, dict[str, Any]] = {
    f"{features}{', kernel' if kernel else ''}": {
        "bonus_features": features,
        "bonus_kernel": kernel,
    }
    for features, kernel in product(("unit_phi", "phi", "unnormalised_phi"), (None, (512, 0.45)))
}
PENDULUMS = ("Pendulum-v1", "mbbl/Pendulum-v0")  # (cos, sin, angular velocity)


class Cells(NamedTuple):
    """A grid over two coordinates of what an environment can show."""

    low: np.ndarray  # [2]
    high: np.ndarray  # [2]
    coordinates: Callable[[np.ndarray], np.ndarray]  # of observations [N, D]: [N, 2]
    observations: Callable[[np.ndarray], np.ndarray]  # and back
    reachable: Callable[[np.ndarray], np.ndarray]  # whether observations [N, D] can be: [N]

    def centres(self) -> np.ndarray:
        """[SIDE^2, 2], the second coordinate fastest."""
        step = (np.arange(SIDE) + 0.5) / SIDE
        first, second = np.meshgrid(step, step, indexing="ij")
        share = np.stack([first.ravel(), second.ravel()], axis=1)
        return self.low + share * (self.high - self.low)

    def visits(self, observation: np.ndarray) -> np.ndarray:
        """How many observations lie in each cell, those beyond the edge in the last: [SIDE^2]."""
        share = (self.coordinates(observation) - self.low) / (self.high - self.low)
        index = np.clip((share * SIDE).astype(int), 0, SIDE - 1)
        return np.bincount(index[:, 0] * SIDE + index[:, 1], minlength=SIDE**2)


def cells_of(task: Task) -> Cells | None:
    """Of a task with two bounded coordinates: a maze, a car on a hill, a pendulum; else None."""
    environment, space = task.env.unwrapped, task.env.observation_space
    if task.name in PENDULUMS:
        return Cells(
            np.array([-np.pi, -8.0]),
            np.array([np.pi, 8.0]),
            lambda s: np.stack([np.arctan2(s[:, 1], s[:, 0]), s[:, 2]], axis=1),
            lambda x: np.stack([np.cos(x[:, 0]), np.sin(x[:, 0]), x[:, 1]], axis=1),
            lambda s: np.ones(len(s), bool),
        )
    if not task.observations.plain:
        return None
    low, high = (np.asarray(x, np.float64) for x in (space.low, space.high))  # type: ignore[attr-defined]
    if low.shape != (2,) or not np.isfinite([low, high]).all():
        return None

    def reachable(observation: np.ndarray) -> np.ndarray:
        if isinstance(environment, FourRooms):
            return ~environment.maze.inside_wall(observation)
        return np.ones(len(observation), bool)

    return Cells(low, high, lambda s: s, lambda x: x, reachable)


class Novelty(NamedTuple):
    """How a bonus compares with true visit counts."""

    correlation: float  # of ranks, with 1 / sqrt(visits), over the visited cells
    unvisited: float  # mean bonus of unvisited over that of visited cells; NaN if there are none
    far: float  # mean bonus of the data's observations times ten over that of the data
    visited: int  # cells
    cells: int


def bonus_of(run: OnlineRun) -> Bonus:
    """A run's own bonus as it is now; of a run without one, what it would be."""
    if not run.agent.confidence.bonus_scale:
        return fitted(run, run.agent.confidence)
    return lambda s, a: run.learner.query("bonus", s, a)


def fitted(run: OnlineRun, confidence: Elliptical) -> Bonus:
    """The bonus of another form, of the run's phi and buffer, without the cap."""
    agent = replace(
        run.agent, confidence=replace(confidence, bonus_scale=UNCAPPED, bonus_unit="one")
    )
    state, rng = run.learner.state, stream(run.seed, REFRESH, run.updates)
    own, _ = agent.begin("policy", state.agent, run.replay, state.normaliser, rng)
    whole = LearnerState(state.normaliser, own)
    return lambda s, a: np.asarray(query(agent, "bonus", whole, s, a))


def forms(run: OnlineRun, cells: Cells) -> dict[str, Novelty]:
    """The run's own bonus, and every form it could have on the same phi and transitions."""
    confidence = run.agent.confidence
    candidates = {name: fitted(run, replace(confidence, **form)) for name, form in FORMS.items()}
    seen = run.replay.latest(len(run.replay))
    return {
        name: novelty(bonus, cells, seen.observation, seen.action, discrete=run.task.spec.discrete)
        for name, bonus in {"the run's own": bonus_of(run), **candidates}.items()
    }


def novelty(
    bonus: Bonus,
    cells: Cells,
    observation: np.ndarray,
    action: np.ndarray,
    seed: int = 0,
    discrete: bool = False,
) -> Novelty:
    """Of a bonus that has seen these observations [N, D] with these actions [N, A]."""
    rng = np.random.default_rng(seed)
    centres, visits = cells.observations(cells.centres()), cells.visits(observation)
    there = cells.reachable(centres)
    spec = Spec(observation.shape[1], action.shape[1], discrete)
    visits, found = visits[there], bonus_map(bonus, centres[there], spec, rng)
    visited = visits > 0
    if visited.sum() < 3:
        raise InputError(f"{visited.sum()} cells were visited: a rank correlation needs three.")
    some = rng.choice(len(action), min(PAIRS, len(action)), replace=False)
    seen, taken = observation[some], action[some]
    far = bonus(np.asarray(FAR * seen, np.float32), taken).mean(dtype=np.float64)
    return Novelty(
        correlation=_rank_correlation(found[visited], visits[visited] ** -0.5),
        unvisited=float(found[~visited].mean() / found[visited].mean())
        if (~visited).any()
        else float("nan"),
        far=float(far / bonus(seen, taken).mean(dtype=np.float64)),
        visited=int(visited.sum()),
        cells=len(visits),
    )


def bonus_map(bonus: Bonus, observation: np.ndarray, spec: Spec, rng: Any) -> np.ndarray:
    """The mean bonus of each observation [N, D] over the same few random actions: [N].

    Over all of them where they are discrete.
    """
    if spec.discrete:
        actions = np.eye(spec.action_dim, dtype=np.float32)
    else:
        actions = rng.uniform(-1, 1, (ACTIONS, spec.action_dim)).astype(np.float32)
    rows = np.asarray(observation, np.float32)
    each = [bonus(rows, np.tile(action, (len(rows), 1))) for action in actions]
    return np.stack(each).mean(axis=0, dtype=np.float64)


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's; 0 where one of them is the same everywhere."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(spearmanr(one, other).statistic)
