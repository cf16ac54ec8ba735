"""Learning from logged data: updates of the policy a second, on a dataset of noise."""

import time
from collections import Counter
from typing import Any

import numpy as np

from phimu.agents import preset, protocol
from phimu.agents.schedule import Preset
from phimu.data.device_set import DeviceSet
from phimu.data.logged import Transitions
from phimu.errors import InputError
from phimu.speed import updates
from phimu.speed.updates import Product, UpdateSpeed, in_a_round, update_products
from phimu.training.learner import Learner
from phimu.training.memory import keep_freed_memory
from phimu.types import Spec

EPISODE = 1_000  # rows of one
WARM = 100  # updates before the first round
PLANNERS = {"ctrl-lcb 256-256-256": "small", "ctrl-lcb 512-512-512": "paper-d4rl"}


def random_set(spec: Spec, rows: int) -> Transitions:
    """Episodes of noise: speed does not depend on what they say."""
    rng = np.random.default_rng(0)
    number = np.arange(rows)
    walks = rng.standard_normal((rows // EPISODE, EPISODE + 1, spec.observation_dim), np.float32)
    return Transitions(
        walks[:, :-1].reshape(rows, -1),
        np.tanh(rng.standard_normal((rows, spec.action_dim), np.float32)),
        rng.standard_normal(rows, np.float32),
        walks[:, 1:].reshape(rows, -1),
        np.zeros(rows, bool),
        number % EPISODE == EPISODE - 1,
        (number // EPISODE).astype(np.int32),
    )


class Timed:
    """An agent in its policy phase, on a dataset of noise."""

    def __init__(self, chosen: Preset, rows: Transitions):
        keep_freed_memory()
        spec = Spec(rows.observation.shape[1], rows.action.shape[1])
        self.learner = Learner(chosen.settings, spec, chosen.schedule, 0)
        self.learner.normalise_by(rows.observation)
        self.phase = protocol.phases(chosen.settings)[-1].name
        data = DeviceSet(rows, spec, chosen.schedule.batch_size)
        self.data: Any = self.learner.begin(self.phase, data, 0)  # phi and penalty of every row
        self.seconds(WARM)

    def seconds(self, count: int) -> list[float]:
        """Of `count` updates in one compiled call: by the clock, and of the processor."""
        begin = time.perf_counter(), time.process_time()
        if self.learner.learn_from(self.phase, self.data, 0, count) != count:
            raise InputError(f"An update was not finite: {self.learner.metrics}")
        return [time.perf_counter() - begin[0], time.process_time() - begin[1]]

    def products(self) -> Counter[Product]:
        drawn = protocol.draw(self.learner.agent, self.phase, self.data, updates.KEY)
        return update_products(self.learner, self.phase, drawn)


def planner_speed(name: str, rounds: int, work: float = updates.WORK) -> UpdateSpeed:
    """One of PLANNERS on HalfCheetah's sizes, as the other updates."""
    timed = Timed(preset("ctrl-lcb", PLANNERS[name], logged=True), random_set(updates.SPEC, 10_000))
    products = timed.products()
    count = in_a_round(products, work)
    seconds = min(timed.seconds(count)[0] for _ in range(rounds)) / count
    return updates.against_peak(f"{name}, policy", seconds, products, rounds)
