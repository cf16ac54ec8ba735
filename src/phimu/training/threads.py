"""How many threads JAX and NumPy's BLAS use; both ask only once, when they are first used."""

import os
import sys

from phimu.errors import InputError, at_least

FOR_JAX = ("PJRT_NPROC", "NPROC")  # XLA's CPU client takes the first of them that is set
FOR_BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    """The variables that hold a new process to so many threads."""
    return dict.fromkeys((FOR_JAX[0], *FOR_BLAS), str(threads))


def limit_threads(wanted: int | None) -> None:
    """Hold this process to `wanted`, or OMP_NUM_THREADS, or its cores; before JAX is imported."""
    if wanted is None:
        inherited = _number("OMP_NUM_THREADS")
        if inherited and not any(_number(name) for name in FOR_JAX):
            os.environ[FOR_JAX[0]] = str(inherited)
        return
    at_least(1, threads=wanted)
    if "jax" in sys.modules and wanted != threads_in_use():
        raise InputError(
            f"threads is {wanted}, but JAX was loaded for {threads_in_use()}: "
            "give the number to a new process."
        )
    os.environ.update(environment(wanted))


def threads_in_use() -> int:
    """How many threads JAX computes with on the CPU."""
    return next(filter(None, map(_number, FOR_JAX)), cores())


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _number(name: str) -> int | None:
    """A number in an environment variable; of a list, as OMP_NUM_THREADS may be, the first."""
    first = os.environ.get(name, "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) else None
