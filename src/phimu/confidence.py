"""Algorithm 1, lines 7-8: the covariance of phi and the elliptical term.

b(s, a) = min(bonus_scale * sqrt(phi' Sigma^-1 phi), 2), Sigma = sum phi phi' + ridge I, on
unit-norm phi. Added to the reward it is CTRL-UCB's bonus, taken from it CTRL-LCB's penalty.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from phimu.errors import InputError

CAP = 2.0


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
        return jnp.cos(angle + jnp.broadcast_to(self.phases, angle.shape))


def kernel(feature_dim: int, count: int) -> Kernel:
    """`count` features of a kernel of width 1, the same ones always."""
    for_frequencies, for_phases = jax.random.split(jax.random.PRNGKey(0))
    return Kernel(
        jax.random.normal(for_frequencies, (feature_dim, count)),
        jax.random.uniform(for_phases, (count,), maxval=2 * np.pi),
    )


def median_distance(phi: np.ndarray) -> float:
    """Between the first and the second half of the rows."""
    half = len(phi) // 2
    return float(np.median(np.linalg.norm(phi[:half] - phi[half : 2 * half], axis=1)))


@dataclass(frozen=True)
class Elliptical:
    """How uncertainty is measured."""

    bonus_scale: float = 5.0
    """alpha of the bonus: 0 on MuJoCo, 5 on DM Control, 1 offline in the paper."""
    ridge: float = 1.0
    """lambda of the covariance."""
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

    def init(self, feature_dim: int) -> jax.Array:
        """The whitening of an empty buffer, Sigma = ridge I."""
        return jnp.eye(feature_dim) / np.float32(np.sqrt(self.ridge))

    def refresh(self, phi: np.ndarray, buffer_size: int) -> jax.Array:
        """The whitening W with W' W = Sigma^-1, from a sample phi [n, d] of the buffer.

        Factorised in float64 on the host: a float32 sum over a large buffer has no digits left
        for a small ridge, and a d = 2048 factorisation costs about as much as an update, so it
        runs on its own clock and outside the compiled step.
        """
        rows = unit_rows(np.asarray(phi, np.float64))
        return self._whitening(rows.T @ rows * (buffer_size / len(rows)))

    def fit(self, parts: Iterable[np.ndarray]) -> jax.Array:
        """The same from all rows, which come in parts [n, d]: for data that does not grow."""
        total: Any = 0.0
        for phi in parts:
            rows = unit_rows(phi)
            total = total + (rows.T @ rows).astype(np.float64)
        return self._whitening(total)

    def _whitening(self, covariance: np.ndarray) -> jax.Array:
        covariance[np.diag_indices_from(covariance)] += self.ridge
        return jnp.asarray(whitening(covariance, self.ridge), jnp.float32)

    def bonus(self, whitening: jax.Array, phi: jax.Array) -> jax.Array:
        """min(bonus_scale * |W phi / |phi||, 2) for phi [..., d]: [...]."""
        norm = jnp.linalg.norm(phi, axis=-1, keepdims=True)
        white = (phi / jnp.maximum(norm, 1e-12)) @ whitening.T
        return jnp.minimum(self.bonus_scale * jnp.linalg.norm(white, axis=-1), CAP)


def unit_rows(phi: np.ndarray) -> np.ndarray:
    return phi / np.maximum(np.linalg.norm(phi, axis=-1, keepdims=True), 1e-12)


def whitening(covariance: np.ndarray, floor: float) -> np.ndarray:
    """W with W' W = covariance^-1, whose eigenvalues are known to be at least `floor`."""
    try:
        lower = scipy.linalg.cholesky(covariance, lower=True)
        return scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True)
    except np.linalg.LinAlgError:
        # Rank-deficient data and a ridge below the rounding of the sum.
        values, vectors = scipy.linalg.eigh(covariance)
        return (vectors / np.sqrt(np.maximum(values, floor))).T
