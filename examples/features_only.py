"""Features only: phi and mu from arrays, then a transition density, an uncertainty and a picture.

python examples/features_only.py [UPDATES]
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from phimu import learn_features


def main(steps: int = 2_000, rows: int = 5_000, out: Path = Path("features.png")) -> None:
    # Transitions of a noisy walk in the left half of a square.
    rng = np.random.default_rng(0)
    observation = rng.uniform([-1, -1], [0, 1], (rows, 2))
    action = rng.uniform(-1, 1, (rows, 2))
    following = observation + 0.3 * action + 0.05 * rng.normal(size=(rows, 2))
    features = learn_features(observation, action, following, updates=steps)
    features.fit_confidence(observation, action)

    x, y = np.meshgrid(np.linspace(-1.5, 1.5, 60), np.linspace(-1.5, 1.5, 60))
    grid = np.stack([x.ravel(), y.ravel()], axis=1)
    start, right = np.array([[-0.5, 0.0]]), np.array([[1.0, 0.0]])
    density = features.density_ratio(start, right, grid)[0]  # P(s'|s,a) / p(s') at every s'
    doubt = features.bonus(grid, np.zeros_like(grid))  # how far (s, 0) is from the data
    print(f"the density is largest at {grid[density.argmax()].round(2)}; the truth is [-0.2, 0]")

    figure = Figure(figsize=(9, 4), layout="constrained")
    titles = ("density of s' after a move right", "uncertainty; data in the left half")
    for axes, values, title in zip(figure.subplots(1, 2), (density, doubt), titles, strict=True):
        shown = axes.pcolormesh(x, y, values.reshape(x.shape))
        figure.colorbar(shown, ax=axes)
        axes.plot(*start[0], "r*")
        axes.set(title=title, aspect="equal")
    figure.savefig(out)
    print(out)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
