"""Whether a bonus sees what is new: the measure on known bonuses, and the bonus of every preset."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import phimu.environments  # noqa: F401  (registers the mazes)
from phimu import learn_features
from phimu.agents import AGENTS, preset
from phimu.environments.maze_geometry import Maze
from phimu.environments.task import open_task
from phimu.errors import InputError
from phimu.evaluation.novelty import (
    FORMS,
    SIDE,
    UNCAPPED,
    bonus_map,
    bonus_of,
    cells_of,
    forms,
    novelty,
)
from phimu.settings import names, override
from phimu.training.online import OnlineRun
from phimu.types import Spec

START = np.array([18.0, 2.0])


@cache
def skewed_visits(rows=16_000, seed=0):
    """Transitions of the maze, dense at its start and sparse away from it."""
    maze, rng = Maze(), np.random.default_rng(seed)
    everywhere = maze.uniform_positions(20 * rows, rng)
    weight = np.exp(-np.linalg.norm(everywhere - START, axis=1) / 5.0)
    chosen = rng.choice(len(everywhere), rows, replace=False, p=weight / weight.sum())
    position, action = everywhere[chosen], rng.uniform(-1, 1, (rows, 2))
    columns = position, action, maze.transition(position, action, rng)
    return tuple(np.asarray(column, np.float32) for column in columns)


@cache
def maze_cells():
    return cells_of(open_task("phimu/FourRooms-v0"))


# The measure


def test_the_bonus_of_true_counts_is_ranked_as_itself():
    observation, action, _ = skewed_visits()
    cells = maze_cells()
    visits = cells.visits(observation)
    assert visits.sum() == len(observation)

    def of_cell(values):
        def bonus(s, a):
            index = np.clip((s / 20.0 * SIDE).astype(int), 0, SIDE - 1)
            return values[index[:, 0] * SIDE + index[:, 1]]

        return bonus

    counted = novelty(of_cell(1 / np.sqrt(np.maximum(visits, 0.25))), cells, observation, action)
    assert counted.correlation == pytest.approx(1.0)
    visited = visits[visits > 0]
    assert counted.unvisited == pytest.approx(2.0 / np.mean(visited**-0.5), rel=1e-6)
    assert counted.visited == len(visited)
    inner = Maze().inside_wall(cells.centres()).sum()
    assert counted.cells == SIDE**2 - inner
    assert novelty(of_cell(visits + 1.0), cells, observation, action).correlation == pytest.approx(
        -1.0
    )
    assert novelty(of_cell(np.ones(SIDE**2)), cells, observation, action).correlation == 0.0


def test_the_bonus_of_discrete_actions_is_the_mean_over_all_of_them():
    observation, _, _ = skewed_visits()
    action = np.eye(3, dtype=np.float32)[np.arange(len(observation)) % 3]
    asked = []

    def bonus(s, a):
        asked.append(a)
        return s[:, 0] + a @ np.array([0.0, 3.0, 6.0])

    novelty(bonus, maze_cells(), observation, action, discrete=True)
    np.testing.assert_array_equal([each[0] for each in asked[:3]], np.eye(3))
    found = bonus_map(bonus, observation[:5], Spec(2, 3, discrete=True), None)
    np.testing.assert_allclose(found, observation[:5, 0] + 3.0, rtol=1e-6)


def test_a_task_that_shows_no_coordinates_has_no_cells():
    assert cells_of(open_task("FrozenLake-v1")) is None
    assert cells_of(open_task("MountainCar-v0")) is not None


def test_far_is_the_bonus_of_ten_times_the_data():
    observation, action, _ = skewed_visits()
    found = novelty(lambda s, a: np.linalg.norm(s, axis=1), maze_cells(), observation, action)
    assert found.far == pytest.approx(10.0, rel=1e-5)


def test_cells_of_a_pendulum_are_angles_and_velocities():
    cells = cells_of(open_task("Pendulum-v1"))
    centres = cells.centres()
    shown = cells.observations(centres)
    np.testing.assert_allclose(cells.coordinates(shown), centres, atol=1e-12)
    np.testing.assert_array_equal(cells.visits(shown), np.ones(SIDE**2))
    task = open_task("Pendulum-v1")
    assert cells.visits(task.reset(0)[None]).sum() == 1


def test_cells_of_a_car_are_its_positions_and_velocities():
    cells = cells_of(open_task("MountainCarContinuous-v0"))
    np.testing.assert_allclose(cells.low, [-1.2, -0.07], rtol=1e-6)
    at = cells.visits(np.array([[-1.2, -0.07], [0.6, 0.07], [0.6, 0.07]], np.float32))
    assert (at[0], at[-1], at.sum()) == (1, 2, 3)


def test_of_other_tasks_there_are_no_cells():
    assert cells_of(open_task("phimu/probe-MatchObservation-v0")) is None


def test_too_few_cells_are_refused():
    observation, action, _ = skewed_visits()
    with pytest.raises(InputError, match="1 cells were visited"):
        novelty(lambda s, a: s[:, 0], maze_cells(), observation[:1], action[:1])


# Of a run


def test_forms_of_a_run_are_fitted_to_its_own_buffer():
    small = {"feature_dim": 16, "feature_sizes": (16,), "critic_width": 16, "actor_sizes": (16,)}
    changes = small | {"batch_size": 16, "learning_starts": 300, "bonus_kernel": (32, 0.45)}
    chosen = override(preset("ctrl-ucb-m", "maze-explore"), changes)
    run = OnlineRun(chosen.settings, open_task("phimu/FourRooms-v0"), chosen.schedule, seed=0)
    while run.updates < 3:
        run.advance()
    found = forms(run, maze_cells())
    assert list(found) == ["the run's own", *FORMS]
    own, same = found["the run's own"], found["unnormalised_phi, kernel"]
    assert (own.visited, own.cells) == (same.visited, same.cells)
    # Its own form, but for the number of random features and a buffer that has grown.
    assert own.correlation == pytest.approx(same.correlation, abs=0.3)
    # A run without a bonus has one to ask for too.
    without = replace(run.agent, confidence=replace(run.agent.confidence, bonus_scale=0.0))
    run.agent = without
    observation, action = skewed_visits()[0][:9], skewed_visits()[1][:9]
    values = bonus_of(run)(observation, action)
    assert values.shape == (9,)
    assert (values > 0).all()


# The bonus of every preset

SMALLER = {
    "feature_dim": 64,
    "feature_sizes": (64, 64),
    "negatives": 256,
    "random_share": 0.0,
    "levels": (),
    "multi_step": 0.0,
}


def forms_of_presets():
    """Each preset that has another phi or another bonus than those before it, with small networks.

    How large the bonus is, and when it is refreshed, makes no difference here.
    """
    seen = {}
    for agent, logged in (("ctrl-ucb-m", False), ("ctrl-ucb-l", False), ("ctrl-lcb", True)):
        for name in AGENTS[agent].presets(logged):
            chosen = preset(agent, name, logged)
            changes = {key: value for key, value in SMALLER.items() if key in names(chosen)}
            settings = override(chosen, changes).settings
            phi = replace(settings.representation, bonus_prediction_weight=0.0)
            if phi.fourier is not None:
                phi = replace(phi, fourier=(32, phi.fourier[1]))
            form = settings.confidence.bonus_features, settings.confidence.bonus_kernel
            seen.setdefault((phi, form), (f"{agent} {name}", phi, settings.confidence))
    return list(seen.values())


FORMS_OF_PRESETS = forms_of_presets()
QUICK = {"ctrl-ucb-m small", "ctrl-ucb-l small", "ctrl-lcb small"}


@cache
def learned(phi, updates=250):
    return learn_features(*skewed_visits(), settings=phi, batch_size=128, updates=updates)


def measured(phi, confidence):
    """Of a bonus that nothing caps, on a phi that was learned from the skewed visits."""
    observation, action, _ = skewed_visits()
    features = learned(phi)
    features.fit_confidence(observation, action, replace(confidence, bonus_scale=UNCAPPED))
    return novelty(features.bonus, maze_cells(), observation, action)


@pytest.mark.parametrize(
    ("phi", "confidence"),
    [
        pytest.param(phi, confidence, id=name, marks=() if name in QUICK else pytest.mark.thorough)
        for name, phi, confidence in FORMS_OF_PRESETS
    ],
)
def test_the_bonus_of_presets_ranks_cells_as_their_visits_do(phi, confidence):
    found = measured(phi, confidence)
    assert found.correlation > 0.8
    assert found.far > 1.5


def test_a_phi_that_has_always_the_same_length_sees_nothing_new():
    """What the form of `small` is chosen against."""
    phi, confidence = next((p, c) for name, p, c in FORMS_OF_PRESETS if name == "ctrl-ucb-m small")
    found = measured(phi, replace(confidence, bonus_features="unit_phi", bonus_kernel=None))
    assert found.correlation < 0.3
    assert found.unvisited < 1.1
