import os
import subprocess
import sys

import pytest

from phimu.errors import InputError
from phimu.training.threads import cores, environment, limit_threads, threads_in_use

NAMES = ("PJRT_NPROC", "NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# Prints how much of the processor time of a matrix product its busiest thread had: JAX's, NumPy's.
BUSIEST = """
import os
from phimu.training.threads import limit_threads
limit_threads({threads})
import jax, jax.numpy as jnp, numpy as np

def spent():
    times = {{}}
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{{thread}}/schedstat") as file:
            times[thread] = int(file.read().split()[0])
    return times

def busiest(work):
    work()
    before = spent()
    for _ in range(20):
        work()
    times = [after - before.get(thread, 0) for thread, after in spent().items()]
    return max(times) / sum(times)

one, other = jnp.ones((768, 768)), np.ones((768, 768))
print(busiest(lambda: (one @ one).block_until_ready()), busiest(lambda: other @ other))
"""


def busiest(threads: int) -> list[float]:
    clean = {name: value for name, value in os.environ.items() if name not in NAMES}
    child = [sys.executable, "-c", BUSIEST.format(threads=threads)]
    done = subprocess.run(child, capture_output=True, text=True, env=clean, check=True)
    return [float(share) for share in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="the times of threads are read from /proc")
def test_the_number_holds_jax_and_blas():
    assert min(busiest(1)) > 0.9
    assert busiest(2)[0] < 0.8  # BLAS starts no more threads than there are cores


@pytest.fixture
def clean(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "3,2"}, 3),
        ({"OMP_NUM_THREADS": "many"}, None),
        ({"OMP_NUM_THREADS": "0"}, None),
        ({"OMP_NUM_THREADS": "3", "NPROC": "2"}, 2),
        ({"OMP_NUM_THREADS": "3", "PJRT_NPROC": "5", "NPROC": "2"}, 5),
    ],
)
def test_without_a_number_it_is_that_of_the_environment_or_of_the_cores(given, expected, clean):
    for name, value in given.items():
        clean.setenv(name, value)
    limit_threads(None)
    assert threads_in_use() == (expected or cores())


def test_a_number_counts_for_all(clean):
    clean.setenv("OMP_NUM_THREADS", "7")
    for name, value in environment(3).items():
        clean.setenv(name, value)
    limit_threads(3)
    assert threads_in_use() == 3
    assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.parametrize("threads", [0, -1])
def test_a_thread_is_needed(threads):
    with pytest.raises(InputError, match=f"threads is {threads}: give at least 1"):
        limit_threads(threads)


def test_once_jax_is_loaded_it_is_too_late(clean):
    with pytest.raises(InputError, match=f"threads is 99, but JAX was loaded for {cores()}"):
        limit_threads(99)
    assert "PJRT_NPROC" not in os.environ
    limit_threads(cores())
