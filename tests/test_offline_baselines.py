"""The baselines on logged data through `phimu.Offline`: learn, evaluate, save, load, learn on."""

import numpy as np
import pytest

from phimu import Offline, from_arrays
from phimu.agents import preset
from phimu.settings import names

SMALL = {
    "actor_sizes": (8,),
    "critic_width": 8,
    "critic_sizes": (8,),
    "behaviour_sizes": (8,),
    "batch_size": 8,
    "action_samples": 2,
    "acting_samples": 5,
    "warm_start_updates": 0,  # tests/agents/test_matrix.py has it
}
RNG = np.random.default_rng(0)
DATA = from_arrays(
    observation=RNG.normal(size=(40, 3)),
    action=RNG.uniform(-2, 2, (40, 1)),
    reward=RNG.normal(size=40),
    terminated=np.zeros(40, bool),
    truncated=np.arange(40) % 10 == 9,
    action_low=-2,
    action_high=2,
    task="Pendulum-v1",
)


THOROUGH = [pytest.param(agent, marks=pytest.mark.thorough) for agent in ("cql", "rebrac", "bear")]


@pytest.mark.parametrize("agent", ["bcq", *THOROUGH])
def test_baselines_learn_act_and_come_back(agent, tmp_path):
    """In the range of the data, and going on where they were, to the bit."""
    known = names(preset(agent, "small", logged=True))
    settings = {name: value for name, value in SMALL.items() if name in known}
    model = Offline(DATA, agent, **settings).learn(3)
    assert model.num_timesteps == 3
    assert model.evaluate(episodes=1)["length"] == 200
    model.save(tmp_path)
    again = Offline.load(tmp_path, DATA)
    observations = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    for learner in (model, again):
        learner.learn(2)
    actions, _ = model.predict(observations, deterministic=True)
    np.testing.assert_array_equal(again.predict(observations, deterministic=True)[0], actions)
    one, _ = model.predict(observations[2], deterministic=True)
    np.testing.assert_allclose(one, actions[2], rtol=1e-5)
    assert (np.abs(actions) <= 2).all()
    pairs = observations, actions
    np.testing.assert_array_equal(again.q_value(*pairs), model.q_value(*pairs))
    samples, _ = model.predict(np.repeat(observations, 4, axis=0))
    assert (np.abs(samples) <= 2).all()
