"""Finite linear MDPs to learn on, each with its exact phi and mu. The base measure is uniform.

All but the tabular ones move through `feature_dim` distributions of s': phi(s, a) is a point of the
simplex that says with which weights, mu_i p is the i-th of them, and r = <phi, theta> is paid for
where an action leads. So Q is linear in phi for every policy.
"""

import numpy as np

from phimu.errors import InputError, at_least
from phimu.finite.mdp import FiniteMDP, make


def tabular(
    transition: np.ndarray, reward: np.ndarray, start: np.ndarray, discount: float
) -> FiniteMDP:
    """Any finite MDP, as in section 4.1: phi = e_(s,a), mu_(s,a)(s') = S P(s'|s,a), d = S A."""
    observations, actions, _ = transition.shape
    phi = np.eye(observations * actions).reshape(observations, actions, -1)
    mu = observations * transition.reshape(-1, observations).T
    return make(phi, mu, uniform(observations), reward, start, discount)


def random_low_rank(
    observations: int, actions: int, feature_dim: int, discount: float = 0.9, seed: int = 0
) -> FiniteMDP:
    """phi and the distributions mu_i p are uniform on their simplices, theta on the cube."""
    at_least(1, observations=observations, actions=actions, feature_dim=feature_dim)
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.ones(feature_dim), (observations, actions))
    emission = rng.dirichlet(np.ones(observations), feature_dim)
    theta = rng.uniform(size=feature_dim)
    return through_latents(phi, emission, theta, uniform(observations), discount)


def combination_lock(
    horizon: int,
    actions: int,
    per_latent: int = 1,
    discount: float = 0.9,
    decoy: float = 0.0,
    seed: int = 0,
) -> FiniteMDP:
    """The lock of FLAMBE, Rep-UCB and BRIEE: one of `actions`^horizon sequences opens it.

    A level has two good latent states and a bad one. In each good one a single action, drawn with
    `seed`, leads on to the good two of the next level, to either by chance; all others lead to
    the bad one, and that only to the next bad one. The good action of the last level is paid 1 and
    leads to a goal, which leads, as all else there does, to an end without reward that is never
    left; it stands for the end of an episode. Each latent state is seen as one of `per_latent`
    observations. `decoy` is paid for the wrong action of the first level.

    d = 2 horizon: the good two are always entered together, so they share a component of phi.
    """
    at_least(1, horizon=horizon, actions=actions, per_latent=per_latent)
    opens = np.random.default_rng(seed).integers(actions, size=(horizon, 2, 1))
    # Behind level h lies component 2 h if the action was right, 2 h + 1 if it was wrong. Behind the
    # last these are the goal and the end.
    leads_to = np.full((3 * horizon + 2, actions), 2 * horizon - 1)
    seen = np.zeros((2 * horizon, 3 * horizon + 2))
    for level in range(horizon):
        leads_to[3 * level : 3 * level + 2] = 2 * level + (np.arange(actions) != opens[level])
        leads_to[3 * level + 2] = 2 * level + 1
        seen[2 * level, 3 * level + 3 : 3 * level + 5] = 0.5  # the next good two
        seen[2 * level + 1, 3 * level + 5 : 3 * level + 6] = 1  # the next bad one
    seen[-2:, -2:] = np.eye(2)
    theta = np.zeros(2 * horizon)
    theta[1], theta[-2] = decoy, 1
    theta[-1] = 0  # after a single level the wrong action leads to the end, which pays nothing
    return through_latents(
        np.repeat(np.eye(2 * horizon)[leads_to], per_latent, axis=0),
        np.kron(seen, uniform(per_latent)),
        theta,
        np.kron(np.eye(3 * horizon + 2)[:2].mean(axis=0), uniform(per_latent)),
        discount,
    )


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


def through_latents(
    phi: np.ndarray, emission: np.ndarray, theta: np.ndarray, start: np.ndarray, discount: float
) -> FiniteMDP:
    """phi [S, A, d] on the simplex mixes the distributions `emission` [d, S]; r = <phi, theta>."""
    base_measure = uniform(emission.shape[1])
    return make(phi, (emission / base_measure).T, base_measure, phi @ theta, start, discount)


def uniform(size: int) -> np.ndarray:
    return np.full(size, 1 / size)
