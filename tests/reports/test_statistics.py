import numpy as np
import pytest

from phimu.reports.statistics import (
    bootstrap,
    interquartile_mean,
    interval,
    mean_and_std,
    performance_profile,
    probability_of_improvement,
    resampled,
)


def random_scores(seed: int, tasks: int = 4) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.round(rng.normal(size=rng.integers(1, 8)), 1) for _ in range(tasks)]  # with ties


def test_mean_and_std_of_seeds() -> None:
    assert mean_and_std(np.array([1.0, 2.0, 6.0])) == (3.0, pytest.approx(7**0.5))
    assert mean_and_std(np.array([4.0])) == (4.0, None)


@pytest.mark.parametrize("seed", range(5))
def test_statistics_equal_their_definitions(seed: int) -> None:
    ours, theirs = random_scores(seed), random_scores(seed + 100)
    pooled = sorted(float(score) for task in ours for score in task)
    cut = int(0.25 * len(pooled))
    middle = pooled[cut : len(pooled) - cut]
    assert interquartile_mean(ours) == pytest.approx(sum(middle) / len(middle), abs=1e-12)
    thresholds = np.array([-1.0, 0.0, 0.5])
    shares = [sum(score > t for score in pooled) / len(pooled) for t in thresholds]
    np.testing.assert_allclose(performance_profile(ours, thresholds), shares, atol=1e-12)
    by_task = [
        sum((a > b) + (a == b) / 2 for a in x for b in y) / (len(x) * len(y))
        for x, y in zip(ours, theirs, strict=True)
    ]
    found = probability_of_improvement(ours, theirs)
    assert found == pytest.approx(sum(by_task) / len(by_task), abs=1e-12)
    assert found + probability_of_improvement(theirs, ours) == pytest.approx(1)


def test_samples_keep_the_runs_of_a_task_together() -> None:
    scores = [np.array([0.0, 1.0, 2.0]), np.array([10.0, 11.0])]
    first, second = resampled(scores, 500, np.random.default_rng(0))
    assert first.shape == (500, 3)
    assert second.shape == (500, 2)
    assert set(np.unique(first)) == {0.0, 1.0, 2.0}
    assert set(np.unique(second)) == {10.0, 11.0}


def test_statistics_of_samples_are_those_of_each_sample() -> None:
    drawn = resampled(random_scores(1), 20, np.random.default_rng(0))
    other = resampled(random_scores(2), 20, np.random.default_rng(1))
    thresholds = np.array([0.0, 1.0])
    for index in range(20):
        one, two = ([task[index] for task in each] for each in (drawn, other))
        assert interquartile_mean(drawn)[index] == interquartile_mean(one)
        assert probability_of_improvement(drawn, other)[index] == probability_of_improvement(
            one, two
        )
        np.testing.assert_array_equal(
            performance_profile(drawn, thresholds)[index], performance_profile(one, thresholds)
        )


def test_interval_covers_a_known_mean_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(0), 0
    for trial in range(200):
        scores = [rng.normal(size=40) for _ in range(3)]
        estimate = bootstrap(
            lambda each: np.concatenate(each, -1).mean(-1), scores, repetitions=300, seed=trial
        )
        covered += bool(estimate.low <= 0 <= estimate.high)
    assert 0.89 <= covered / 200 <= 0.99  # 95%, of 200 trials and slightly narrow by nature


def test_bootstrap_repeats_and_has_no_spread_where_there_is_none() -> None:
    scores = random_scores(3)
    first, second = (bootstrap(interquartile_mean, scores, seed=7) for _ in range(2))
    assert first == second
    assert first.low <= first.value <= first.high
    same = [np.full(4, 2.0)]
    assert bootstrap(interquartile_mean, same) == (2.0, 2.0, 2.0)
    assert interval(np.arange(1001.0)) == pytest.approx((25.0, 975.0))
