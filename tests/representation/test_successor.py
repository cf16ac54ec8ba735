"""Successor features: one step against float64 NumPy, and psi of chains whose answer is known."""

from functools import partial

import jax
import numpy as np
import optax
import pytest

from phimu.errors import InputError
from phimu.representation.seam import density, needs_next_action
from phimu.representation.successor import SuccessorFeatures
from phimu.types import Batch, Feed, Spec

SIZES = {"feature_dim": 3, "feature_sizes": (4,), "reward_sizes": (4,), "feature_layer_norm": False}
DISCOUNT = 0.9


class PlainDescent(SuccessorFeatures):
    def optimiser(self):
        return optax.sgd(1.0)


def feed_of(batch, next_action):
    return Feed(batch, columns={"next_action": next_action})


def transitions(size=6):
    rng = np.random.default_rng(0)
    observation, following = rng.normal(size=(2, size, 2)).astype(np.float32)
    action, next_action = rng.uniform(-1, 1, (2, size, 1)).astype(np.float32)
    terminated = np.array([0, 1, 0, 0, 1, 0], np.float32)
    reward = rng.normal(size=size).astype(np.float32)
    batch = Batch(observation, action, reward, following, terminated, np.zeros_like(terminated))
    return batch, next_action, rng.normal(size=(4, 3)).astype(np.float32)


def started(learner, spec=Spec(2, 1), seed=0):  # noqa: B008 (it has no state)
    """Its first state; compiled, which takes less time than an array at a time."""
    return jax.jit(partial(learner.init, spec))(jax.random.PRNGKey(seed))


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def two_layers(arrays, x):
    w1, b1, w2, b2 = arrays
    return elu(x @ w1 + b1) @ w2 + b2


def arrays_of(*networks):
    return [np.asarray(leaf, np.float64) for each in networks for leaf in jax.tree.leaves(each)]


@pytest.mark.parametrize(
    ("output", "mean", "past"), [("identity", True, False), ("elu", False, True)]
)
def test_a_step_is_down_the_gradient_of_the_three_errors(output, mean, past, slopes):
    learner = PlainDescent(
        **SIZES,
        feature_output=output,
        successor_discount=DISCOUNT,
        successor_mean=mean,
        bootstrap_terminated=past,
        reward_weight=0.7,
        successor_rate=0.25,
        feature_rate=0.5,
    )
    batch, next_action, pull = transitions()
    state = started(learner)
    # A target that is not psi itself.
    other = started(learner, seed=1).features.psi
    state = state._replace(target=other)
    step = jax.jit(partial(learner.update, key=jax.random.PRNGKey(0)))
    after, metrics = step(state, feed_of(batch, next_action), pull=pull)

    last = elu if output == "elu" else lambda x: x
    networks = state.features.psi, state.features.g, state.features.following, state.features.reward
    arrays = arrays_of(*networks)
    pair = np.concatenate([batch.observation, batch.action], 1).astype(np.float64)
    next_pair = np.concatenate([batch.next_observation, next_action], 1).astype(np.float64)
    aim = two_layers(arrays[4:8], batch.next_observation) * (1 - DISCOUNT if mean else 1)
    ahead = last(two_layers(arrays_of(other), next_pair))
    aim = aim + DISCOUNT * ahead * (1 if past else 1 - batch.terminated[:, None])

    def errors(arrays):
        psi, g = last(two_layers(arrays[:4], pair)), two_layers(arrays[4:8], batch.observation)
        found = two_layers(arrays[8:12], np.concatenate([g, batch.action], 1))
        reward = two_layers(arrays[12:], g)[:, 0]
        return {
            "following_loss": np.mean((found - batch.next_observation) ** 2),
            "reward_loss": np.mean((reward - batch.reward) ** 2),
            "successor_loss": np.mean((psi - aim) ** 2),
            "pull": np.sum(pull * psi[: len(pull)]),
        }

    def loss(arrays):
        each = errors(arrays)
        return sum(each.values()) - 0.3 * each["reward_loss"]

    for name, value in errors(arrays).items():
        if name != "pull":
            np.testing.assert_allclose(metrics[name], value, rtol=1e-5)
    moved = arrays_of(
        after.features.psi, after.features.g, after.features.following, after.features.reward
    )
    for gradient, before, now in zip(slopes(loss, arrays), arrays, moved, strict=True):
        np.testing.assert_allclose(before - now, gradient, rtol=1e-3, atol=1e-5)
    for copy, start, rate in ((after.target, other, 0.25), (after.slow, networks[0], 0.5)):
        for was, now, fast in zip(*map(arrays_of, (start, copy, after.features.psi)), strict=True):
            np.testing.assert_allclose(now, was + rate * (fast - was), rtol=1e-4, atol=1e-6)


P = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])  # where each of three states leads


@pytest.mark.parametrize("past", [False, True])
def test_psi_of_a_chain_is_the_discounted_sum_of_g(past):
    """(I - discount P)^-1 P g, where an episode that ends in the last state goes on or does not."""
    learner = SuccessorFeatures(
        feature_dim=3,
        feature_sizes=(),  # linear, so that every function of three states is exact
        reward_sizes=(),
        feature_layer_norm=False,
        successor_discount=0.6,
        successor_mean=False,
        bootstrap_terminated=past,
        successor_rate=0.1,
        feature_learning_rate=1e-2,
    )
    states, none = np.eye(3, dtype=np.float32), np.zeros((3, 1), np.float32)
    ends = np.array([0, 1, 0], np.float32)
    batch = Batch(states, none, np.arange(3.0), P.astype(np.float32), ends, 0 * ends)
    feed = feed_of(batch, none)

    @jax.jit
    def learned(state):
        step = partial(learner.update, feed=feed, key=jax.random.PRNGKey(0))
        return jax.lax.scan(lambda state, _: step(state), state, length=2_000)

    state, metrics = learned(started(learner, Spec(3, 1)))
    assert metrics["reward_loss"][-1] < 1e-6  # r is linear in g
    g = np.asarray(state.features.g(states), np.float64)
    going_on = P if past else P * (1 - ends)[:, None]
    expected = np.linalg.solve(np.eye(3) - 0.6 * going_on, P @ g)
    np.testing.assert_allclose(learner.phi(state)(states, none), expected, atol=2e-3)


def test_what_it_says_of_itself():
    learner = SuccessorFeatures(**SIZES)
    assert needs_next_action(learner)
    assert learner.bonus_prediction_weight == 0
    with pytest.raises(InputError, match="representation SuccessorFeatures has no density"):
        density(learner)
    with pytest.raises(InputError, match="successor_discount is 1"):
        SuccessorFeatures(successor_discount=1.0)
    with pytest.raises(InputError, match="feature_dim is 0"):
        SuccessorFeatures(feature_dim=0)
