"""n-step targets against sums written out in NumPy."""

import jax
import numpy as np
import pytest

from phimu.agents.sac import Sac, concatenate
from phimu.data.replay import Replay
from phimu.data.rows import split
from phimu.errors import InputError
from phimu.planning.soft_actor_critic import SoftActorCritic, judged
from phimu.types import Feed, Spec

SPEC = Spec(3, 2)
KEY = jax.random.PRNGKey(4)
ENDS = {5: (True, False), 11: (False, True)}  # terminated, truncated


def filled() -> Replay:
    rng, replay = np.random.default_rng(0), Replay(SPEC, 64, warm_up=0, batch_size=40)
    for step in range(20):
        row = [rng.standard_normal(size, np.float32) for size in (3, 2, 3)]
        replay.add(row[0], row[1], float(rng.normal()), row[2], *ENDS.get(step, (False, False)))
    return replay


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_the_td_loss_is_that_of_n_rewards_and_the_value_after_them(steps):
    agent = Sac(SoftActorCritic(critic="two_layer", actor_sizes=(8,), critic_width=8), steps)
    replay, state = filled(), agent.init(SPEC, KEY)
    drawn = agent.draw("policy", replay, np.random.default_rng(1))
    index = np.random.default_rng(1).integers(0, len(replay), replay.batch_size)  # as it drew
    batch = split(drawn.rows, SPEC)
    _, metrics = agent.update("policy", state, Feed(batch, drawn.others, drawn.columns), KEY)

    rewards = replay.rewards.astype(np.float64)
    last, total, share = np.empty(40, int), np.empty(40), np.empty(40)
    for at, row in enumerate(index):
        left, total[at], last[at] = 1.0, 0.0, row
        for step in range(steps):
            last[at] = row + step
            total[at] += left * rewards[row + step]
            left *= 0.99
            if row + step in ENDS or row + step == 19:
                break
        share[at] = 0.0 if ENDS.get(last[at], (False,))[0] else left
    noise, _ = jax.random.normal(KEY, (2, 40, 2))
    after = replay.rows.next_observation[last]
    _, log_density, value = judged(state.actor, state.slow_critic, concatenate, after, noise)
    soft = np.asarray(value, np.float64) - 0.1 * np.asarray(log_density, np.float64)
    pairs = concatenate(batch.observation, batch.action)
    both = np.stack([np.asarray(head(pairs), np.float64) for head in state.critic])
    expected = np.mean((both - (total + share * soft)) ** 2)
    assert float(metrics["td_loss"]) == pytest.approx(expected, rel=1e-5)


def test_n_steps_is_at_least_one():
    with pytest.raises(InputError, match="n_steps is 0: give at least 1"):
        Sac(n_steps=0)
