"""The two noise contrastive losses of section 2.2, the two regularisers of section 4, and ours.

All take log ratios: `positive` [B] of the observed s', `negative` [B, M] of the noise. An entry
of -inf in `negative` is a place without a sample (the diagonal of in-batch negatives); `count`
is K, how many samples a row really has. `valid` [B] leaves rows out.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

Loss = Callable[[jax.Array, jax.Array, int, jax.Array | None, jax.Array | None], jax.Array]


def mean_of(losses: jax.Array, valid: jax.Array | None) -> jax.Array:
    """The mean over rows, or over those that are valid."""
    if valid is None:
        return jnp.mean(losses)
    return jnp.sum(jnp.where(valid, losses, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def ranking(
    positive: jax.Array,
    negative: jax.Array,
    count: int,
    log_normaliser: jax.Array | None = None,
    valid: jax.Array | None = None,
) -> jax.Array:
    """Equation (ranking): pick the true s' out of K + 1. It needs no normaliser."""
    del count, log_normaliser
    total = jnp.logaddexp(positive, jax.nn.logsumexp(negative, axis=1))
    return mean_of(total - positive, valid)


def ranking_of_normalised(
    positive: jax.Array, count: int, valid: jax.Array | None = None
) -> jax.Array:
    """`ranking` when every row's K + 1 ratios are known to sum to K + 1: maximum likelihood.

    This is so for the linear ratio with phi on the simplex and mu divided by its mean over the
    very candidates; the [B, K] matrix of the negatives is then not needed at all.
    """
    return np.log(count + 1) - mean_of(positive, valid)


def binary(
    positive: jax.Array,
    negative: jax.Array,
    count: int,
    log_normaliser: jax.Array | None = None,
    valid: jax.Array | None = None,
) -> jax.Array:
    """Equation (binary): tell s' from noise one by one, with h = f e^-c / (f e^-c + K)."""
    shift = np.log(count) + (0.0 if log_normaliser is None else log_normaliser)
    real = jax.nn.softplus(-(positive - shift))  # -log h
    noise = jnp.sum(jax.nn.softplus(negative - shift), axis=1)  # -sum log(1 - h)
    return mean_of(real + noise, valid)


LOSSES: dict[str, Loss] = {"ranking": ranking, "binary": binary}


def log_marginal(negative: jax.Array, count: int) -> jax.Array:
    """log Z(s, a) = log of the mean ratio over samples of the base measure: [B]."""
    return jax.nn.logsumexp(negative, axis=1) - np.log(count)


def marginal_penalty(negative: jax.Array, count: int) -> jax.Array:
    """Section 4.2: E (log int phi mu p)^2, which holds every row's integral at one."""
    return jnp.mean(log_marginal(negative, count) ** 2)


def mu_norm_penalty(mu: jax.Array) -> jax.Array:
    """Section 4.1: E_p |mu(s')|^2, the upper bound of the normalisation condition."""
    return jnp.mean(jnp.sum(mu**2, axis=1))


def balance_penalty(phi: jax.Array) -> jax.Array:
    """KL(E phi || uniform) of phi on the simplex: zero when all components are in equal use.

    Deviation: not in the paper. Without it most components of a softmax phi die early.
    """
    usage = jnp.mean(phi, axis=0)
    return jnp.sum(usage * jnp.log(usage * phi.shape[1] + 1e-9))
