"""Your own environment: a point on a plane that is pushed to the origin, learned by CTRL-UCB.

python examples/own_environment.py [STEPS]
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from phimu import Ctrl


class Point(gymnasium.Env):
    observation_space = Box(-2.0, 2.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.place, {}

    def step(self, action: np.ndarray):
        self.place = np.clip(self.place + 0.2 * action, -2, 2).astype(np.float32)
        return self.place, -float(np.linalg.norm(self.place)), False, False, {}


def main(steps: int = 5_000, **settings: Any) -> dict[str, float]:
    # A function makes the environment, so that evaluations can have one of their own.
    model = Ctrl(lambda: TimeLimit(Point(), 40), **settings)
    before = model.evaluate(episodes=5)["return"]
    model.learn(steps, progress_bar=True)
    after = model.evaluate(episodes=5)["return"]
    print(f"mean return of an episode: {before:.1f} before, {after:.1f} after {steps:,} steps")
    return {"before": before, "after": after}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
