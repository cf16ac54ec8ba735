"""Two MDPs for logged data: one whose difficulty is a number, and one with a gamble."""

import numpy as np

from phimu.errors import InputError
from phimu.finite.mdp import FiniteMDP
from phimu.finite.models import tabular, uniform


def coins(
    observations: int, actions: int, gap: float, discount: float = 0.9, seed: int = 0
) -> FiniteMDP:
    """Half of the observations pay 1; every action leads to one of these with probability 1/2.

    But one action of each observation, drawn with `seed`, does so with 1/2 + gap: it is the best
    by about `gap` in Q, and telling it from the others takes about 1 / gap^2 transitions.
    """
    if observations < 2 or actions < 2 or not 0 <= gap <= 0.5:
        raise InputError("coins need two observations and two actions, and gap from 0 to 0.5.")
    best = np.random.default_rng(seed).integers(actions, size=(observations, 1))
    pays = (np.arange(observations) < observations // 2).astype(float)
    chance = 0.5 + gap * (np.arange(actions) == best)[..., None]
    transition = chance * (pays / pays.sum()) + (1 - chance) * ((1 - pays) / (1 - pays).sum())
    reward = np.repeat(pays[:, None], actions, axis=1)
    return tabular(transition, reward, uniform(observations), discount)


def cliff(length: int, jump_at: int, wage: float = 0.3, discount: float = 0.9) -> FiniteMDP:
    """A path along a cliff: action 0 walks on, 1 waits, 2 jumps.

    To stay on the path is worth `wage` in the long run. A jump at `jump_at` crosses to the far
    side, which is worth 1; anywhere else it ends in a pit, which pays nothing and is never left.
    Walking slips one time in ten; the path's last place goes no further. Observations are the
    places of the path, then the far side, then the pit.
    """
    if not 0 < jump_at < length:
        raise InputError(f"jump_at is {jump_at}: give a place of the path after the first, 0.")
    far, pit = length, length + 1
    transition = np.zeros((length + 2, 3, length + 2))
    for place in range(length):
        transition[place, 0, place] = 0.1
        transition[place, 0, min(place + 1, length - 1)] += 0.9
        transition[place, 1, place] = 1
        transition[place, 2, far if place == jump_at else pit] = 1
    transition[far, :, far] = transition[pit, :, pit] = 1
    reward = np.zeros((length + 2, 3))
    reward[:length, :2], reward[far] = (1 - discount) * wage, 1 - discount
    return tabular(transition, reward, np.eye(length + 2)[0], discount)
