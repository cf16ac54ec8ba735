"""JAX's cache of compiled programs on disk, so that a restarted run begins at once."""

import os
import warnings

import jax

from phimu.runs.files import cache_directory

SECONDS = 0.1  # what compiles faster is not worth a file


def cache_compilation() -> None:
    """Use a directory of this user, unless JAX_COMPILATION_CACHE_DIR names one or it cannot be."""
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    directory = cache_directory() / "jax"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(directory, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SECONDS)
    # A cache that cannot be read or written costs time, nothing else.
    warnings.filterwarnings("ignore", message=".*persistent compilation cache")
