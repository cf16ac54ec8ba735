"""What a dataset holds, in numbers: returns, lengths, ranges, and how widely it covers."""

from typing import NamedTuple

import numpy as np

from phimu.data.logged import LoggedDataset
from phimu.data.sets.scores import normalised_score

MOST_ROWS = 100_000  # of which coverage is taken, evenly from all
CELLS = 50  # along each of the two axes
EDGE = 0.99  # an action beyond this is at its limit


class Spread(NamedTuple):
    """Of one number per episode, or per row."""

    mean: float
    std: float
    low: float
    median: float
    high: float


class Coverage(NamedTuple):
    """How much of the space around it a dataset fills; all of this takes no model."""

    dimensions: float  # of (s, a), see `effective_dimensions`
    of_dimensions: int
    action_shares: np.ndarray  # [action_dim], see `action_shares`
    cells: float  # see `effective_cells`


class Summary(NamedTuple):
    transitions: int
    episodes: int
    terminated: int  # episodes
    truncated: int
    returns: Spread
    lengths: Spread
    rewards: Spread
    score: float | None  # of the mean return, on D4RL's scale
    observations: np.ndarray  # [2, observation_dim]: smallest, largest
    actions: np.ndarray  # [2, action_dim]
    at_limits: float  # the share of action numbers beyond EDGE
    coverage: Coverage


def summarise(logged: LoggedDataset) -> Summary:
    columns = logged.transitions
    returns, lengths = episode_returns(logged), np.bincount(columns.episode)
    at_limits = np.mean([np.mean(np.abs(column) > EDGE) for column in columns.action.T])
    return Summary(
        len(logged),
        len(lengths),
        int(columns.terminated.sum()),
        int(columns.truncated.sum()),
        _spread(returns),
        _spread(lengths),
        _spread(columns.reward),
        normalised_score(logged.task or logged.name, float(returns.mean())),
        np.stack([columns.observation.min(axis=0), columns.observation.max(axis=0)]),
        np.stack([columns.action.min(axis=0), columns.action.max(axis=0)]),
        float(at_limits),
        _coverage(columns.observation, columns.action),
    )


def episode_returns(logged: LoggedDataset) -> np.ndarray:
    """[episodes] float64, of the rows that are in the dataset."""
    columns = logged.transitions
    return np.bincount(columns.episode, weights=columns.reward)


def _spread(values: np.ndarray) -> Spread:
    wide = values.astype(np.float64)
    return Spread(*(float(f(wide)) for f in (np.mean, np.std, np.min, np.median, np.max)))


def _coverage(observation: np.ndarray, action: np.ndarray) -> Coverage:
    step = -(-len(action) // MOST_ROWS)
    observation, action = (part[::step].astype(np.float64) for part in (observation, action))
    both = _standardised(np.concatenate([observation, action], axis=1))
    return Coverage(
        effective_dimensions(both),
        both.shape[1],
        action_shares(action),
        effective_cells(_standardised(observation)),
    )


def _standardised(table: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1 per column; columns that never change are 0."""
    std = table.std(axis=0)
    return (table - table.mean(axis=0)) / np.where(std > 0, std, 1.0)


def effective_dimensions(table: np.ndarray) -> float:
    """(sum l)^2 / sum l^2 of the correlations' eigenvalues l: from 1 to the number of columns."""
    values = np.linalg.eigvalsh(table.T @ table / len(table))
    return float(values.sum() ** 2 / max((values**2).sum(), np.finfo(float).tiny))


def action_shares(action: np.ndarray) -> np.ndarray:
    """The share of [-1, 1] from the 1st to the 99th percentile of each column; uniform has 0.98."""
    low, high = np.percentile(action, [1, 99], axis=0)
    return (high - low) / 2


def effective_cells(table: np.ndarray) -> float:
    """exp(entropy) of a grid of CELLS x CELLS over the first two principal components.

    The grid reaches three standard deviations to each side. So many cells, equally full, are as
    uneven as these; a cell with few rows counts for little.
    """
    values, vectors = np.linalg.eigh(table.T @ table / len(table))
    scale = np.sqrt(np.maximum(values[-2:], np.finfo(float).tiny))
    places = np.clip((table @ vectors[:, -2:]) / (6 * scale) + 0.5, 0, 1 - 1e-9) * CELLS
    numbers = places.astype(int) @ np.array([CELLS, 1])[: places.shape[1]]
    share = np.unique(numbers, return_counts=True)[1] / len(table)
    return float(np.exp(-(share * np.log(share)).sum()))
