"""Settings of every test."""

import jax

# [B] - [B, 1] is an error here instead of a silent [B, B].
jax.config.update("jax_numpy_rank_promotion", "raise")
