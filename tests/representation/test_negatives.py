"""What s' is told apart from: exact shares, and which entries of a matrix are negatives."""

import jax.numpy as jnp
import numpy as np
import pytest

from phimu.errors import InputError
from phimu.representation.negatives import Negatives


class Zeros:
    """A store whose random trajectories are ones, and everything else zero."""

    def sample_next(self, size, rng):
        return np.zeros((size, 2))

    def sample_random_next(self, size, rng):
        return np.ones((size, 2))


class Logged(Zeros):
    def sample_random_next(self, size, rng):
        raise AssertionError("there are none")


@pytest.mark.parametrize(
    ("negatives", "share", "from_random"),
    [(256, 0.5, 128), (10, 0.3, 3), (8, 0.0, 0), (8, 1.0, 8), (0, 0.5, 0)],
)
def test_the_mixture_has_exact_shares(negatives, share, from_random):
    drawn = Negatives(negatives, share).draw(Zeros(), None)
    assert drawn.shape == (negatives, 2)
    assert drawn[:, 0].sum() == from_random


def test_without_a_share_random_trajectories_are_not_asked_for():
    """Logged data has none."""
    assert Negatives(8, 0.0).draw(Logged(), None).shape == (8, 2)


@pytest.mark.parametrize(("in_batch", "expected"), [(True, 7 + 3), (False, 7)])
def test_count_leaves_out_the_own_next_observation(in_batch, expected):
    assert Negatives(7, in_batch=in_batch).count(4) == expected


def test_split_in_batch_masks_only_the_own_next_observation():
    log_ratios = jnp.arange(15.0).reshape(3, 5)
    settings = Negatives(2)
    positive, negative = settings.split(log_ratios)
    assert positive.tolist() == [0.0, 6.0, 12.0]
    inf = np.inf
    assert negative.tolist() == [
        [-inf, 1.0, 2.0, 3.0, 4.0],
        [5.0, -inf, 7.0, 8.0, 9.0],
        [10.0, 11.0, -inf, 13.0, 14.0],
    ]
    assert (np.isfinite(negative).sum(axis=1) == settings.count(3)).all()


def test_split_without_in_batch_is_the_drawn_noise():
    settings = Negatives(2, in_batch=False)
    positive, negative = settings.split(jnp.arange(15.0).reshape(3, 5))
    assert positive.tolist() == [0.0, 6.0, 12.0]
    assert negative.tolist() == [[3.0, 4.0], [8.0, 9.0], [13.0, 14.0]]
    assert negative.shape[1] == settings.count(3)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"negatives": -1}, "negatives is -1"),
        ({"negatives": 0, "in_batch": False}, "negatives is 0"),
        ({"random_share": 1.5}, r"random_share is 1\.5"),
        ({"random_share": -0.1}, r"random_share is -0\.1"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, field):
    with pytest.raises(InputError, match=field):
        Negatives(**settings)


def test_no_drawn_noise_is_fine_with_in_batch():
    assert Negatives(0, in_batch=True).count(5) == 4
