"""KeyboardInterrupt at any instant of `learn`: the model goes on as if nothing had been."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import gymnasium
import jax
import numpy as np
import pytest

from phimu import Ctrl, Model, Offline, Sac, from_arrays

# Sends SIGINT to its parent, once for every line: so many seconds after it was read.
INTERRUPTER = """
import os, signal, sys, time
for line in sys.stdin:
    time.sleep(float(line))
    os.kill(int(sys.argv[1]), signal.SIGINT)
"""
SAC = {"actor_sizes": (8,), "critic_width": 8, "batch_size": 8, "learning_starts": 20}
CTRL = SAC | {
    "feature_dim": 8,
    "feature_sizes": (8,),
    "negatives": 4,
    "bonus_scale": 1.0,
    "refresh_every": 10,
    "covariance_sample": 20,
}
STEPS = 100


class Walk(gymnasium.Env):
    """A position moved by actions, ten steps an episode; `raises` is asked before each call."""

    def __init__(self, raises: Callable[[str], None] = lambda call: None) -> None:
        self.observation_space = gymnasium.spaces.Box(-50, 50, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.raises = raises

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.steps = 0
        self.position = self.np_random.normal(size=2)
        self.raises("reset")
        return self.position.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        self.steps += 1
        self.position = self.position + action + self.np_random.normal(size=2)
        self.raises("step")  # when the environment has moved already
        reward = -float(np.abs(self.position).sum())
        return self.position.astype(np.float32), reward, False, self.steps == 10, {}


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def interrupter() -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-c", INTERRUPTER, str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, bufsize=1) as child:
        yield child
        child.kill()


def small(**changes: object) -> Sac:
    return Sac(Walk(), **SAC | changes)


def ctrl(**changes: object) -> Ctrl:
    return Ctrl(Walk(), **CTRL | changes)


def logged() -> Offline:
    rng = np.random.default_rng(0)
    data = from_arrays(
        observation=rng.normal(size=(100, 3)),
        action=rng.uniform(-1, 1, (100, 2)),
        reward=rng.normal(size=100),
        next_observation=rng.normal(size=(100, 3)),
        terminated=np.arange(100) % 10 == 9,
    )
    sizes = {"actor_sizes": (8,), "critic_width": 8, "batch_size": 8, "log_every": 10}
    return Offline(data, "td3-bc", **sizes)


def check_books(model: Model) -> None:
    """Step, replay buffer and updates agree, and the weights are there."""
    run = model.run
    if not isinstance(model, Offline):
        assert run.replay.added == run.step
        assert run.updates == max(0, run.step - run.collection.learning_starts + 1)
    observation = np.zeros((2, run.learner.spec.observation_dim), np.float32)
    assert np.isfinite(model.predict(observation)[0]).all()


def weights(model: Model) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.run.state)]


def interrupted_once(model: Model, steps: int, after: float, interrupter: subprocess.Popen) -> bool:
    """Whether the interrupt came while it learned."""
    learning = False
    try:
        assert interrupter.stdin
        interrupter.stdin.write(f"{after}\n")
        learning = True
        model.learn(steps)
        learning = False
        time.sleep(60)
    except KeyboardInterrupt:
        return learning
    raise AssertionError("the interrupt was swallowed")


def interrupt_often(make: Callable[[], Model], times: int, interrupter: subprocess.Popen) -> None:
    """As many models as it takes, about ten times each; they end as one that nobody disturbed."""
    make().learn(30)  # compiles
    undisturbed, began = make(), time.monotonic()
    expected = weights(undisturbed.learn(STEPS))
    seconds = time.monotonic() - began
    rng, left = np.random.default_rng(0), times
    while left > 0:
        model = make()
        while model.run.step < STEPS:
            steps = STEPS - model.run.step
            if left > 0:
                left -= interrupted_once(model, steps, rng.uniform(0, seconds / 5), interrupter)
            else:
                model.learn(steps)
            check_books(model)
        for leaf, other in zip(weights(model), expected, strict=True):
            np.testing.assert_array_equal(leaf, other)


@pytest.mark.parametrize("make", [small, ctrl, logged])
def test_interrupted_at_any_instant_it_goes_on_to_the_same_bits(
    make: Callable[[], Model], interrupter: subprocess.Popen
) -> None:
    interrupt_often(make, 12, interrupter)


@pytest.mark.faults
@pytest.mark.parametrize("width", [8, 64, 256, 512])
def test_interrupted_125_times_at_any_instant(width: int, interrupter: subprocess.Popen) -> None:
    """Four sizes make 500."""

    def make() -> Ctrl:
        sizes = {"actor_sizes": (width, width), "critic_width": width, "feature_dim": width}
        return ctrl(**sizes, feature_sizes=(width,), batch_size=max(8, width // 4))

    interrupt_often(make, 125, interrupter)


@pytest.mark.parametrize("call", ["step", "reset"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_the_environment_raises_leaves_a_model_that_goes_on(
    call: str, error: type[BaseException]
) -> None:
    """Some calls fail, once: in the warm-up and after it, early and late in an episode."""
    calls, fails = {"step": 0, "reset": 0}, {"step": (3, 4, 19, 47, 80), "reset": (2, 3, 8)}

    def fail(now: str) -> None:
        calls[now] += 1
        if now == call and calls[now] in fails[now]:
            raise error

    model, raised = Sac(Walk(fail), **SAC), 0
    while model.run.step < 100:
        try:
            model.learn(100 - model.run.step)
        except error:
            raised += 1
        check_books(model)
    assert raised == len(fails[call])
    for leaf, other in zip(weights(model), weights(small().learn(100)), strict=True):
        np.testing.assert_array_equal(leaf, other)


def test_what_a_callback_raises_leaves_a_model_that_goes_on() -> None:
    def fail(moment) -> None:
        if moment.step % 7 == 0:
            raise KeyboardInterrupt

    model = small()
    while model.run.step < 100:
        with contextlib.suppress(KeyboardInterrupt):
            model.learn(100 - model.run.step, callback=fail)
        check_books(model)
    for leaf, other in zip(weights(model), weights(small().learn(100)), strict=True):
        np.testing.assert_array_equal(leaf, other)


def test_an_environment_that_repeats_nothing_is_said() -> None:
    class Forgetful(Walk):
        def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
            return super().reset(seed=None)

    calls = []

    def fail(now: str) -> None:
        calls.append(now)
        if len(calls) == 6:
            raise KeyboardInterrupt

    model = Sac(Forgetful(fail), **SAC)
    with pytest.raises(KeyboardInterrupt):
        model.learn(50)
    with pytest.warns(UserWarning, match="did not repeat its open episode"):
        model.learn(50)
    assert model.run.step == 54


def test_learning_in_another_thread() -> None:
    model = small()
    thread = threading.Thread(target=model.learn, args=(50,))
    thread.start()
    thread.join()
    check_books(model)
    assert model.run.step == 50


def test_the_handler_is_given_back() -> None:
    small().learn(30)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
