"""Summaries of sets with known answers, and their picture."""

import numpy as np
import pytest

from phimu.data.sets.arrays import from_arrays
from phimu.reports import dataset
from phimu.reports.dataset_figure import dataset_figure

PNG = b"\x89PNG"


@pytest.fixture
def logged():
    """Episodes of 3 and 2 steps: the first terminates with return 6, the second is cut at 9."""
    observation = np.arange(10.0).reshape(5, 2)
    return from_arrays(
        observation=observation,
        action=np.array([[-1.0], [0.0], [1.0], [0.5], [0.5]]),
        reward=np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        terminated=np.array([0, 0, 1, 0, 0]),
        truncated=np.array([0, 0, 0, 0, 1]),
        next_observation=observation + 2,
        name="two",
        task="Hopper-v4",
    )


def test_summary(logged):
    found = dataset.summarise(logged)
    assert found[:4] == (5, 2, 1, 1)
    assert found.returns == (7.5, 1.5, 6, 7.5, 9)
    assert found.lengths == (2.5, 0.5, 2, 2.5, 3)
    assert found.rewards == pytest.approx((3, 2**0.5, 1, 3, 5))
    assert found.score == pytest.approx(100 * (7.5 + 20.272305) / (3234.3 + 20.272305))
    assert found.observations.tolist() == [[0, 1], [8, 9]]
    assert found.actions.tolist() == [[-1], [1]]
    assert found.at_limits == pytest.approx(0.4)


def test_coverage_of_known_shapes():
    rng = np.random.default_rng(0)
    free = rng.normal(size=(20_000, 4))
    assert dataset.effective_dimensions(free) == pytest.approx(4, abs=0.01)
    assert dataset.effective_dimensions(free[:, :1] @ np.ones((1, 4))) == pytest.approx(1)
    uniform = rng.uniform(-1, 1, (20_000, 2))
    np.testing.assert_allclose(dataset.action_shares(uniform), 0.98, atol=0.01)
    assert dataset.action_shares(np.full((9, 1), 0.3)).tolist() == [0]
    # A uniform square is as wide as sqrt(12) of the grid's six standard deviations.
    cells = dataset.effective_cells(dataset._standardised(uniform))
    assert cells == pytest.approx((dataset.CELLS * 12**0.5 / 6) ** 2, rel=0.05)
    assert dataset.effective_cells(np.zeros((9, 1))) == pytest.approx(1)


def test_constant_columns_have_no_coverage_and_no_warning(logged):
    columns = logged.transitions
    columns.observation[:], columns.action[:] = 1.0, 0.0
    cover = dataset.summarise(logged).coverage
    assert cover.dimensions == 0
    assert cover.cells == pytest.approx(1)


def test_figure(logged, tmp_path):
    path = tmp_path / "new" / "two.png"
    dataset_figure(path, logged)
    assert path.read_bytes().startswith(PNG)
