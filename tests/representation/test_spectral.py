"""The spectral loss: a step against float64 NumPy, and singular values of a tabular MDP."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phimu.errors import InputError
from phimu.representation.negatives import Negatives
from phimu.representation.seam import compared, density, needs_next_action
from phimu.representation.spectral import Spectral
from phimu.types import Batch, Feed, Spec

KEY = jax.random.PRNGKey(0)
SIZES = {"feature_dim": 3, "feature_sizes": (4,), "reward_sizes": (4,), "feature_layer_norm": False}


class PlainDescent(Spectral):
    def optimiser(self):
        return optax.sgd(1.0)


def transitions(size=6):
    rng = np.random.default_rng(0)
    observation, following = rng.normal(size=(2, size, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (size, 1)).astype(np.float32)
    reward, none = rng.normal(size=size).astype(np.float32), np.zeros(size, np.float32)
    batch = Batch(observation, action, reward, following, none, none)
    others = {"negatives": rng.normal(size=(2, 2)).astype(np.float32)}
    return Feed(batch, others), rng.normal(size=(4, 3)).astype(np.float32)


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def two_layers(arrays, x):
    w1, b1, w2, b2 = arrays
    return elu(x @ w1 + b1) @ w2 + b2


def arrays_of(tree):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize(
    ("loss", "in_batch", "output"),
    [("pairs", True, "unit_variance"), ("pairs", False, "elu"), ("orthonormal", True, "identity")],
)
def test_a_step_is_down_the_gradient(loss, in_batch, output, slopes):
    """Of the spectral loss, of both penalties, of the reward's error and of what pulls at phi."""
    learner = PlainDescent(
        **SIZES,
        noise=Negatives(2, in_batch=in_batch),
        loss=loss,
        phi_output=output,
        mu_output="tanh",
        orthogonality_weight=0.7,
        marginal_weight=0.4,
        reward_weight=0.3,
        feature_rate=0.25,
    )
    feed, pull = transitions()
    batch = feed.batch
    state = learner.init(Spec(2, 1), KEY)
    after, metrics = jax.jit(partial(learner.update, key=KEY))(state, feed, pull=pull)

    arrays = arrays_of(state.networks)
    pair = np.concatenate([batch.observation, batch.action], 1).astype(np.float64)
    following = np.concatenate([batch.next_observation, feed.others["negatives"]])

    def last(x):
        if output == "unit_variance":
            return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return elu(x) if output == "elu" else x

    def parts(arrays):
        phi = last(two_layers(arrays[:4], pair))
        mu = np.tanh(two_layers(arrays[4:8], following) / np.sqrt(3))
        own = np.mean([phi[i] @ mu[i] for i in range(6)])
        noise = mu if in_batch else mu[6:]
        if loss == "pairs":
            spectral = np.mean([(x @ y) ** 2 for x in phi for y in noise]) - 2 * own
        else:
            moments = [
                np.trace((np.outer(phi[i], phi[i]) - np.eye(3)) @ (np.outer(x, x) - np.eye(3)))
                for i in range(6)
                for j, x in enumerate(phi)
                if i != j
            ]
            spectral = np.mean([y @ y for y in noise]) / 2 - own + 0.7 * np.mean(moments) / 9
        marginal = np.mean([(np.mean([x @ y for y in noise]) - 1) ** 2 for x in phi])
        reward = np.mean((two_layers(arrays[8:], phi)[:, 0] - batch.reward) ** 2)
        return spectral, reward, marginal, np.sum(pull * phi[: len(pull)])

    def total(arrays):
        spectral, reward, marginal, pulled = parts(arrays)
        return spectral + 0.3 * reward + 0.4 * marginal + pulled

    np.testing.assert_allclose(
        [metrics["spectral_loss"], metrics["reward_loss"]], parts(arrays)[:2], rtol=1e-4
    )
    moved = arrays_of(after.networks)
    for gradient, before, now in zip(slopes(total, arrays), arrays, moved, strict=True):
        np.testing.assert_allclose(before - now, gradient, rtol=2e-3, atol=2e-5)
    for was, now, fast in zip(arrays[:8], arrays_of(after.slow), moved[:8], strict=True):
        np.testing.assert_allclose(now, was + 0.25 * (fast - was), rtol=1e-4, atol=1e-6)


def tabular():
    """All transitions of a run in which each (s, s') came up so many times, and the ratio's SVD.

    As the samples of p are those very s', means over the batch are the expectations themselves.
    """
    counts = np.random.default_rng(1).integers(0, 7, (6, 6)) + 4 * np.eye(6, dtype=int)
    seen = [(s, t) for s in range(6) for t in range(6) for _ in range(counts[s, t])]
    one_hot = np.eye(6, dtype=np.float32)
    s, t = (one_hot[list(each)] for each in zip(*seen, strict=True))
    none = np.zeros(len(s), np.float32)
    joint = counts / counts.sum()
    rho, p = joint.sum(1), joint.sum(0)
    svd = np.linalg.svd(joint / np.sqrt(np.outer(rho, p)))
    return Feed(Batch(s, none[:, None], none, t, none, none)), joint / np.outer(rho, p), rho, p, svd


TABLE = {
    "feature_dim": 3,
    "feature_sizes": (),
    "reward_sizes": (),
    "reward_weight": 0.0,
    "phi_output": "identity",
}


def test_its_minimum_is_minus_the_squared_singular_values():
    """Of P / p, weighted by the roots of both distributions; <phi, mu> is its best of rank d."""
    feed, ratio, rho, p, (u, values, v) = tabular()
    learner = Spectral(**TABLE, feature_learning_rate=2e-2, feature_rate=1.0)

    @jax.jit
    def learned(state):
        step = lambda state, _: learner.update(state, feed, KEY)  # noqa: E731
        return jax.lax.scan(step, state, None, length=1_500)

    state, metrics = learned(learner.init(Spec(6, 1), KEY))
    least = -np.sum(values[:3] ** 2)
    np.testing.assert_allclose(metrics["spectral_loss"][-1], least, rtol=1e-4)
    assert least > -np.sum(values**2) + 0.05, "more than three dimensions would do better"
    best = (u[:, :3] * values[:3]) @ v[:3] / np.sqrt(np.outer(rho, p))
    every = jnp.eye(6), jnp.zeros((6, 1))
    phi = compared(learner, state)(*every)
    found = np.asarray(phi) @ np.asarray(learner.mu(state, jnp.eye(6))).T
    np.testing.assert_allclose(found, best, atol=0.02)
    assert np.abs(best - ratio).max() > 0.2
    logs = density(learner).log_ratio(state, phi, jnp.eye(6))
    np.testing.assert_allclose(np.exp(logs), np.maximum(found, 1e-12), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("loss", "share"), [("pairs", 1.0), ("orthonormal", 0.5)])
def test_singular_functions_have_the_known_loss(loss, share):
    """The paper's loss at an orthonormal phi is half of the other one, and each row adds up."""
    feed, _, rho, p, (u, values, v) = tabular()
    learner = Spectral(**TABLE, loss=loss, marginal_weight=1.0, orthogonality_weight=0.0)
    phi = u[:, :3] / np.sqrt(rho)[:, None]
    mu = (v[:3] * values[:3, None]).T / np.sqrt(p)[:, None] * np.sqrt(3)  # the gain is 3^(-1/2)
    arrays = [np.vstack([phi, np.zeros((1, 3))]), np.zeros(3), mu, np.zeros(3)]
    networks = learner.init(Spec(6, 1), KEY).networks
    leaves, tree = jax.tree.flatten(networks)
    given = [jnp.asarray(x, jnp.float32) for x in arrays] + leaves[4:]
    total, metrics = learner.objective(
        jax.tree.unflatten(tree, given), feed, feed.batch.next_observation
    )
    np.testing.assert_allclose(total, -share * np.sum(values[:3] ** 2), rtol=1e-5)
    np.testing.assert_allclose(metrics["mean_ratio"], 1, rtol=1e-5)


def test_mu_is_told_how_much_s_is_blurred():
    plain, other = Spectral(**SIZES), Spectral(**SIZES, levels=(0.5, 2.0))
    feed, _ = transitions()
    state = other.init(Spec(2, 1), KEY)
    assert state.networks.mu.network.layers[0].weight.shape[0] == 2 + 8
    update = jax.jit(other.update)
    found = {
        float(update(state, feed, jax.random.PRNGKey(i))[1]["spectral_loss"]) for i in range(3)
    }
    assert len(found) == 3
    after, _ = update(state, feed, KEY)
    np.testing.assert_allclose(after.spread.variance, feed.batch.observation.var(0), rtol=1e-4)
    assert other.mu(after, feed.batch.observation).shape == (6, 3)
    assert plain.init(Spec(2, 1), KEY).spread is None


def test_what_it_says_of_itself():
    assert not needs_next_action(Spectral())
    assert Spectral().bonus_prediction_weight == 0
    with pytest.raises(InputError, match="has no temperature"):
        Spectral().temperature(None)
    with pytest.raises(InputError, match="levels is"):
        Spectral(levels=(0.0,))
    with pytest.raises(InputError, match="marginal_weight is -1"):
        Spectral(marginal_weight=-1.0)
