"""Settings of every test, and agents small enough to learn within one."""

import contextlib
import gc
import os
import signal
from collections.abc import Iterator

import jax
import numpy as np
import pytest

# Workers of pytest take all cores: with several threads each, a seventh of their time went into
# waiting for each other. Processes of tests inherit it, and those that want more threads say so.
for variable in ("PJRT_NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"
# A program of a test runs for less time than XLA would optimise it. With the setting in
# `compiled_programs` this takes an update's compilation from 4.7 to 0.8 s, and its time from 1.3 to
# 2.4 ms. (jaxlib 0.10; a release that no longer knows the flag says so.)
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_cpu_use_fusion_emitters=false"]
).strip()
# [B] - [B, 1] is an error here instead of a silent [B, B].
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait for other processes, or take long, first: nobody is left alone with one."""
    items.sort(key=lambda item: not {"faults", "training", "agents"} & set(item.path.parts))


def pytest_collection_finish() -> None:
    """What was collected stays: nothing of it has to be searched for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Quick compilation, and a cache that workers and processes of tests share, not the user's."""
    base = tmp_path_factory.getbasetemp()  # a worker's own lies in that of the whole session
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    directory.mkdir(exist_ok=True)
    settings = {
        "jax_compilation_cache_dir": str(directory),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_disable_most_optimizations": True,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


@pytest.fixture(autouse=True, scope="module")
def forgotten_programs() -> Iterator[None]:
    """A thousand tests' compiled programs would take gigabytes; those of a file go with it."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def fully_optimised() -> Iterator[None]:
    """For files that compare to the bit what two programs compute: with a user's optimisations.

    But for the fusion emitters, which cannot be had back within a process.
    """
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def stopped_before(monkeypatch: pytest.MonkeyPatch):
    """with stopped_before(OnlineRun, 33): a signal comes before that step of a run of that kind."""
    from phimu.errors import Stopped

    @contextlib.contextmanager
    def within(kind: type, step: int) -> Iterator[None]:
        advance = kind.advance

        def until(self, *arguments):
            if self.step >= step:
                raise Stopped(signal.SIGTERM)
            advance(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(kind, "advance", until)
            yield

    return within


@pytest.fixture(scope="session")
def slopes():
    """slopes(loss, arrays): the gradient of a float64 loss by central differences."""

    def by_differences(loss, arrays, step=1e-6):
        gradients = []
        for which, array in enumerate(arrays):
            gradient = np.zeros_like(array)
            for index in np.ndindex(array.shape):
                ends = []
                for sign in (1, -1):
                    moved = [x.copy() for x in arrays]
                    moved[which][index] += sign * step
                    ends.append(loss(moved))
                gradient[index] = (ends[0] - ends[1]) / (2 * step)
            gradients.append(gradient)
        return gradients

    return by_differences


@pytest.fixture(scope="session")
def tiny():
    """tiny("sac"): an agent's first preset, shrunk to learn a probe in some hundred steps.

    Always the same settings, so that a test session compiles each agent once. The entropy weight
    starts at next to nothing and falls, so that values are those without an entropy term. What an
    agent does not have is left out, so that any agent of the registry can be asked for.
    """
    from phimu.agents import AGENTS, preset
    from phimu.settings import names, override

    changes = {
        "actor_sizes": (32,),
        "critic_width": 32,
        "planner_layer_norm": False,
        "discount": 0.8,
        "target_rate": 0.1,
        "target_every": 0,
        "actor_learning_rate": 3e-3,
        "critic_learning_rate": 1e-2,
        "entropy_learning_rate": 1e-2,
        "initial_entropy_weight": 1e-3,
        "target_entropy": -20.0,
        "batch_size": 64,
        "learning_starts": 200,
        "gradient_steps": 4,  # an update costs less time than the step around it
        "buffer_size": 2_000,
        "feature_sizes": (32,),
        "feature_dim": 32,
        "feature_learning_rate": 2e-3,
        "feature_rate": 0.1,
        "feature_every": 0,
        "temperature": 5.0,
        "reward_weight": 5.0,  # where s' says nothing about a, contrast alone cannot see it
        "negatives": 16,
        "initial_log_std": -1.0,
        "bootstrap_time_limits": True,
        "train_freq": 1,
        "planner_steps": 1,  # a program less to compile; tests/agents/test_ctrl_ucb.py has more
        "ensemble_size": 2,
        "epochs": 10,
        "plan_horizon": 2,
        "candidates": 200,
        "elites": 20,
        "iterations": 4,
        "policy_steps": 2,
        "chains": 64,
        "imagined_horizon": 3,
    }

    suffixes = {"sizes": (32,), "width": 32, "dim": 32, "updates": 200, "learning_rate": 3e-3}

    def make(agent, logged=False):
        chosen = preset(agent, next(iter(AGENTS[agent].presets(logged))), logged)
        own = names(chosen)
        sized = {name: x for name in own for end, x in suffixes.items() if name.endswith(f"_{end}")}
        named = {name: x for name, x in changes.items() if name in own}
        return override(chosen, sized | named)

    return make
