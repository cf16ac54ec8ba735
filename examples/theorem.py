"""A theorem on a finite MDP: in a linear MDP, Q of every policy is linear in phi.

python examples/theorem.py [POLICIES]

And what it is good for: CTRL-UCB (Algorithm 1) opens a combination lock that random actions do not.
"""

import sys

import jax
import numpy as np

from phimu.finite import exact
from phimu.finite.ctrl_ucb import Algorithm, Constants, log_tables, optimistic, run
from phimu.finite.learners import tables_by_likelihood
from phimu.finite.mdp import linear_fit
from phimu.finite.models import combination_lock, random_low_rank
from phimu.finite.planning import evaluate, policy_iteration


def main(steps: int = 100) -> float:
    rng = np.random.default_rng(0)
    mdp = random_low_rank(observations=40, actions=4, feature_dim=6)
    worst = 0.0
    for _ in range(steps):
        policy = rng.dirichlet(np.ones(4), 40)  # [S, A]
        found = evaluate(mdp.transition, mdp.reward, mdp.discount, policy)
        worst = max(worst, linear_fit(mdp, found.action_value)[1])
    print(f"{steps} policies: |Q - <phi, w>| is at most {worst:.1e}, with 6 features for 160 pairs")

    lock = combination_lock(horizon=4, actions=4, per_latent=2, discount=0.95)
    constants = Constants(log_tables(*lock.reward.shape), bonus_factor=3e-5, ridge_factor=6e-6)
    algorithm = Algorithm(tables_by_likelihood(), optimistic(constants))
    trace = exact(lambda key: run(algorithm, lock, key, plans=20, batch=100))(jax.random.PRNGKey(0))
    best = lock.start @ policy_iteration(lock.transition, lock.reward, lock.discount).value
    print(f"CTRL-UCB on a lock: {trace.returned[-1]:.3f} after 2,000 samples; optimal {best:.3f}")
    return worst


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
