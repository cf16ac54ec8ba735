"""Algorithm 1, lines 7-8: the covariance of phi and the elliptical term.

b(s, a) = min(bonus_scale * sqrt(phi' Sigma^-1 phi), 2), Sigma = sum phi phi' + lambda I. Added to
the reward it is CTRL-UCB's bonus, taken from it CTRL-LCB's penalty.

lambda is `ridge` times the mean of |phi|^2, which is the same as dividing every phi by one length,
their root mean square: `ridge` and `bonus_scale` then mean the same for every phi. Dividing each
phi by its own length instead would forget what grows most away from the data.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from phimu import initial
from phimu.errors import InputError
from phimu.networks import cosine

CAP = 2.0
SMALLEST_UNIT = 0.1  # so that a bonus explores while all rewards are zero


class Kernel(NamedTuple):
    """cos(phi W + b): random features whose inner products are a Gaussian kernel of phi.

    With the exponential ratio, exp(<phi, mu>), the transition is linear in such features of phi
    and not in phi itself, which therefore needs few dimensions: as many as the state has, and two.
    """

    frequencies: jax.Array  # W [d, m]
    phases: jax.Array  # b [m]

    def __call__(self, phi: jax.Array) -> jax.Array:
        """Features [..., m] of phi [..., d]."""
        angle = phi @ self.frequencies
        return cosine(angle + jnp.broadcast_to(self.phases, angle.shape))


def kernel(feature_dim: int, count: int, width: float = 1.0) -> Kernel:
    """`count` features of a kernel of this width, the same ones always."""
    for_frequencies, for_phases = jax.random.split(jax.random.PRNGKey(0))
    return Kernel(
        initial.normal(for_frequencies, (feature_dim, count), 1 / width),
        initial.uniform(for_phases, (count,), 2 * np.pi),
    )


def median_distance(phi: np.ndarray) -> float:
    """Between the first and the second half of the rows; 1 where it would be 0."""
    half = len(phi) // 2
    distances = np.linalg.norm(phi[:half] - phi[half : 2 * half], axis=1)
    return float(np.median(distances) if half else 0.0) or 1.0


class EllipticalState(NamedTuple):
    """What the bonus of a phi is computed with."""

    kernel: Kernel | None  # None: the covariance is of phi itself
    whitening: jax.Array  # W with W' W = Sigma^-1: [d, d], or [m, m] of the kernel's features
    unit: jax.Array  # []: what the bonus is multiplied by

    def features(self, phi: jax.Array) -> jax.Array:
        """What the covariance is of."""
        return phi if self.kernel is None else self.kernel(phi)


@dataclass(frozen=True)
class Elliptical:
    """How uncertainty is measured."""

    bonus_scale: float = 5.0
    """alpha of the bonus: 0 on MuJoCo, 5 on DM Control, 1 offline in the paper."""
    ridge: float = 1.0
    """lambda of the covariance, in units of the mean |phi|^2."""
    bonus_features: Literal["phi", "unnormalised_phi", "unit_phi"] = "phi"
    """What the bonus is of: phi as the critic reads it, as in the paper; the same network without
    LayerNorm and without its last function, which keep the length of phi from growing away from
    the data; or phi divided by its length, which sees little of what is new."""
    bonus_kernel: tuple[int, float] | None = None
    """If given, the bonus is of random features of that: how many, and the width of their kernel as
    a share of the median distance in the data. It then is bonus_scale where nothing was seen, and
    bonus_scale / sqrt(n) where n similar pairs were."""
    bonus_unit: Literal["one", "reward"] = "one"
    """What the bonus is counted in: one, as in the paper; or the root mean square of all rewards
    seen so far, at least 0.1, so that a bonus_scale means the same beside any rewards."""
    effective_rows: int | None = None
    """If given, the covariance is scaled as if it were of so many rows, whatever their number: a
    bonus_scale then means the same on every dataset. None is the sum over all rows, as in the
    paper, which makes the bonus vanish as 1 / sqrt(rows)."""
    refresh_every: int = 1_000
    """Updates between two estimates of the covariance, with the current slow phi."""
    covariance_sample: int = 4_096
    """Transitions the estimate uses; their sum is scaled to the size of the buffer."""

    def __post_init__(self) -> None:
        if self.bonus_scale < 0:
            raise InputError(f"bonus_scale is {self.bonus_scale}: give 0 (no bonus) or more.")
        if self.ridge <= 0:
            raise InputError(f"ridge is {self.ridge}: give a positive number, 1.0 as a rule.")
        if self.refresh_every < 1 or self.covariance_sample < 1:
            raise InputError("refresh_every and covariance_sample must be at least 1.")
        if self.effective_rows is not None and self.effective_rows < 1:
            raise InputError(
                f"effective_rows is {self.effective_rows}: give at least 1, or None for all rows."
            )
        if self.bonus_kernel is not None and min(self.bonus_kernel) <= 0:
            raise InputError(
                f"bonus_kernel is {self.bonus_kernel}: give a number of features and a width, "
                "both positive, or None."
            )

    @property
    def _kernel(self) -> tuple[int, float] | None:
        """None as well where there is no bonus: nothing is to be kept for it."""
        return self.bonus_kernel if self.bonus_scale else None

    def init(self, feature_dim: int) -> EllipticalState:
        """Of an empty buffer, Sigma = ridge I."""
        lifted = None if self._kernel is None else kernel(feature_dim, self._kernel[0])
        size = feature_dim if self._kernel is None else self._kernel[0]
        whitening = jax.device_put(np.eye(size, dtype=np.float32) / np.float32(np.sqrt(self.ridge)))
        return EllipticalState(lifted, whitening, jnp.ones(()))

    def refresh(self, phi: np.ndarray, rewards: np.ndarray) -> EllipticalState:
        """From a sample phi [n, d] of the buffer and all its rewards [N], for scale and unit.

        Factorised in float64 on the host: a float32 sum over a large buffer has no digits left
        for a small ridge, and a d = 2048 factorisation costs about as much as an update, so it
        runs on its own clock and outside the compiled step.
        """
        state = self._scaled(phi, rewards)
        rows = by_rooms(partial(_features, state), np.asarray(phi, np.float32)).astype(np.float64)
        total = rows.T @ rows * (len(rewards) / len(rows))
        return state._replace(whitening=self._whitening(total, len(rewards)))

    def fit(self, parts: Iterable[np.ndarray], rewards: np.ndarray) -> EllipticalState:
        """The same from all rows, which come in parts [n, d]: for data that does not grow."""
        rest = iter(parts)
        first = next(rest)
        state = self._scaled(first, rewards)
        total: Any = 0.0
        count = 0
        for phi in chain([first], rest):
            rows = np.asarray(state.features(jnp.asarray(phi)))
            total, count = total + (rows.T @ rows).astype(np.float64), count + len(rows)
        return state._replace(whitening=self._whitening(total, count))

    def _scaled(self, phi: np.ndarray, rewards: np.ndarray) -> EllipticalState:
        """With the kernel's width taken from phi [n, d], and the unit from rewards [N]."""
        state = self.init(phi.shape[1])
        if self.bonus_unit == "reward":
            typical = np.sqrt(np.mean(np.square(rewards, dtype=np.float64)))
            state = state._replace(unit=jnp.float32(max(typical, SMALLEST_UNIT)))
        if self._kernel is not None:
            count, share = self._kernel
            width = share * median_distance(phi)
            state = state._replace(kernel=kernel(phi.shape[1], count, width))
        return state

    def _whitening(self, total: np.ndarray, count: int) -> jax.Array:
        """Of sum phi phi' [d, d] over `count` rows."""
        mean_square = float(np.trace(total)) / count or 1.0
        if self.effective_rows is not None:
            # Deviation: a mean over the data, times a number that is the same for every dataset.
            total = total * (self.effective_rows / count)
        total[np.diag_indices_from(total)] += self.ridge * mean_square
        return jnp.asarray(whitening(total, self.ridge * mean_square), jnp.float32)

    def bonus(self, state: EllipticalState, phi: jax.Array) -> jax.Array:
        """min(bonus_scale * |W phi|, 2) units for phi [..., d]: [...]."""
        white = state.features(phi) @ state.whitening.T
        return state.unit * jnp.minimum(self.bonus_scale * jnp.linalg.norm(white, axis=-1), CAP)


_features = jax.jit(EllipticalState.features)


def by_rooms(function: Callable[..., jax.Array], *arrays: np.ndarray) -> np.ndarray:
    """A function of rows, each by itself, of arrays with any number of them.

    They are filled up to a power of two: a buffer that grows would have it compiled anew each time.
    """
    count = len(arrays[0])
    room = 1 << max(count - 1, 0).bit_length()
    filled = (np.pad(x, [(0, room - count)] + [(0, 0)] * (x.ndim - 1)) for x in arrays)
    return np.asarray(function(*filled))[:count]


def bonus_metrics(bonus: jax.Array, reward: jax.Array) -> dict[str, jax.Array]:
    """The mean bonus, and its share in all that the critic learns from: 0.5 is as large as r."""
    size, beside = jnp.mean(bonus), jnp.mean(jnp.abs(reward))
    return {"bonus": size, "bonus_share": size / jnp.maximum(size + beside, 1e-12)}


def whitening(covariance: np.ndarray, floor: float) -> np.ndarray:
    """W with W' W = covariance^-1, whose eigenvalues are known to be at least `floor`."""
    try:
        lower = scipy.linalg.cholesky(covariance, lower=True)
        return scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True)
    except np.linalg.LinAlgError:
        # Rank-deficient data and a ridge below the rounding of the sum.
        values, vectors = scipy.linalg.eigh(covariance)
        return (vectors / np.sqrt(np.maximum(values, floor))).T
