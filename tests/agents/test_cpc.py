"""CPC: which observations are compared, what is frozen, and a known answer."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from phimu.agents.brac import PLANNER, Brac
from phimu.agents.cpc import Cpc
from phimu.agents.protocol import Phase
from phimu.planning.behaviour import BehaviourCloning, Regularisation
from phimu.representation.predictive import PredictiveCoding

AGENT = Cpc(
    PredictiveCoding(300, 16, (32,), window=4, embedding_learning_rate=3e-3),
    Brac(
        BehaviourCloning(300, (32,), behaviour_learning_rate=1e-2),
        Regularisation(behaviour_weight=0.02),
        replace(
            PLANNER,
            actor_sizes=(32,),
            critic_width=32,
            actor_learning_rate=3e-3,
            critic_learning_rate=1e-2,
            entropy_learning_rate=1e-2,
            initial_entropy_weight=0.01,
            target_rate=0.1,
            discount=0.5,
        ),
    ),
)


def equal(one, other):
    """Bit for bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@pytest.fixture(scope="module")
def history(walk, learned):
    """The state before learning and after each phase."""
    history = {"init": AGENT.init(walk.spec, jax.random.PRNGKey(0))}
    learned(AGENT, walk, 500, history=history)
    return history


def test_phases():
    phases = Phase("representation", 300), Phase("behaviour", 300), Phase("policy")
    assert AGENT.phases == phases


def test_what_is_frozen_stays_bit_for_bit(history):
    init, coded, cloned, planned = history.values()
    assert equal(init.planned, coded.planned)
    assert not equal(init.coding, coded.coding)
    assert equal(coded.coding, cloned.coding)
    assert equal(coded.planned.planner, cloned.planned.planner)
    assert equal(coded.coding, planned.coding)
    assert equal(cloned.planned.behaviour, planned.planned.behaviour)


def test_compares_with_later_observations_of_the_same_episode(walk, monkeypatch, learn_once):
    """Row by row against the set: s' is `offset` later, and whose episode ends before is out."""
    compared = []

    def record(self, state, *args):
        compared.append([np.asarray(x) for x in args])
        return state, {}

    monkeypatch.setattr(PredictiveCoding, "update", record)
    state = AGENT.init(walk.spec, jax.random.PRNGKey(0))
    everything = [np.asarray(x) for x in walk.rows_at(0, len(walk))]
    offsets, left_out = set(), 0
    for number in range(20):
        learn_once(AGENT, "representation", state, walk, jax.random.PRNGKey(number))
        observation, later, offset, valid = compared[-1]
        offsets.add(int(offset))
        for s, then, asked in zip(observation, later, valid, strict=True):
            at = int(np.flatnonzero((everything[0] == s).all(axis=1))[0])
            step = at % 10  # episodes have ten
            assert asked == (step + offset <= 10)
            left_out += not asked
            if asked:
                np.testing.assert_array_equal(then, everything[3][at + offset - 1])
    assert offsets == {1, 2, 3}
    assert left_out > 0


def test_the_embedding_tells_what_follows(walk, history):
    """Steps are within half a radian of 2 pi: among 64 angles the loss can fall by log 2 pi."""
    drawn = np.arange(0, 600, 10)  # one per episode
    batch = [np.asarray(x)[drawn] for x in walk.rows_at(0, len(walk))]
    logits = history["representation"].coding.embedding.logits(batch[0], batch[3], 1)
    found = -np.diagonal(jax.nn.log_softmax(logits)).mean()
    untrained = history["init"].coding.embedding.logits(batch[0], batch[3], 1)
    assert found < np.log(60) - 1.0
    assert found < -np.diagonal(jax.nn.log_softmax(untrained)).mean() - 0.2


def test_plans_on_the_embedding(history, modes):
    """Reward is the cosine of the next angle: push towards zero, from either side."""
    state = history["policy"]
    angle = np.array([-1.5, -1.0, 1.0, 1.5])
    action = modes(AGENT, state, np.stack([np.cos(angle), np.sin(angle)], -1))[:, 0]
    assert (action[:2] > 0.2).all()
    assert (action[2:] < -0.2).all()


def test_acting_needs_the_embedding_and_the_actor_alone(history):
    """The policy is chosen from the state: its arrays are arrays of the state, bit for bit."""
    state = history["policy"]
    policy = AGENT.policy(state)
    assert policy.network is state.coding.embedding.network
    assert policy.actor is state.planned.planner.actor
    observation = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    embedded = AGENT.embedding(state, observation)
    np.testing.assert_array_equal(policy.mode(observation), policy.actor.mode(embedded))
    key = jax.random.PRNGKey(0)
    for one, other in zip(
        policy.sample(observation, key), policy.actor.sample(embedded, key), strict=True
    ):
        np.testing.assert_array_equal(one, other)
