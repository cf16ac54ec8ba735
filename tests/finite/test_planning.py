"""Exact planning against closed forms and plain float64 loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.finite import exact
from phimu.finite.planning import evaluate, greedy, occupancy, policy_iteration


def chain(length, discount):
    """Action 1 goes right and is paid 1 at the end for ever; action 0 stays where it is."""
    transition = np.zeros((length, 2, length))
    for s in range(length):
        transition[s, 0, s] = 1
        transition[s, 1, min(s + 1, length - 1)] = 1
    reward = np.zeros((length, 2))
    reward[-1, 1] = 1
    return transition, reward, discount


def random_mdp(seed, observations=7, actions=3):
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(observations), (observations, actions))
    policy = rng.dirichlet(np.ones(actions), observations)
    return transition, rng.uniform(size=(observations, actions)), policy


@pytest.mark.parametrize("discount", [0.0, 0.9, 0.999])
def test_chain_has_its_closed_form(discount):
    transition, reward, discount = chain(5, discount)
    found = policy_iteration(transition, reward, discount)
    expected = discount ** np.arange(4, -1, -1.0) / (1 - discount)
    np.testing.assert_allclose(found.value, expected, rtol=1e-9, atol=1e-9)
    if discount > 0:
        np.testing.assert_array_equal(found.policy[:, 1], 1)


def test_value_and_policy_iteration_agree():
    transition, reward, _ = random_mdp(0)
    value = np.zeros(7)
    for _ in range(600):  # 0.95^600 is below 1e-13
        action_value = reward + 0.95 * transition @ value
        value = action_value.max(axis=1)
    quick = policy_iteration(transition, reward, 0.95)
    np.testing.assert_allclose(value, quick.value, atol=2e-10)
    np.testing.assert_array_equal(action_value.argmax(axis=1), quick.policy.argmax(axis=1))
    np.testing.assert_allclose(quick.action_value.max(axis=1), quick.value, atol=1e-12)


def test_policy_iteration_ends_among_equal_actions():
    transition, reward, _ = random_mdp(1)
    doubled = np.concatenate([transition, transition], axis=1)
    found = policy_iteration(doubled, np.concatenate([reward, reward], axis=1), 0.99)
    np.testing.assert_allclose(
        found.value, policy_iteration(transition, reward, 0.99).value, rtol=1e-12
    )
    nothing = policy_iteration(transition, np.zeros_like(reward), 0.99)
    np.testing.assert_array_equal(nothing.value, 0)


def test_values_of_a_policy_are_sums_of_discounted_rewards():
    transition, reward, policy = random_mdp(2)
    found = evaluate(transition, reward, 0.8, policy)
    for first in range(7):
        where, total = np.eye(7)[first], 0.0
        for step in range(200):
            both = where[:, None] * policy
            total += 0.8**step * (both * reward).sum()
            where = np.einsum("sa,sat->t", both, transition)
        assert found.value[first] == pytest.approx(total, abs=1e-12)
    assert found.value.dtype == np.float64
    np.testing.assert_allclose((policy * found.action_value).sum(axis=1), found.value)


def test_occupancy_is_where_a_geometric_stop_leaves_the_policy():
    transition, reward, policy = random_mdp(3)
    start = np.eye(7)[2]
    found = occupancy(transition, start, 0.9, policy)
    where, expected = start, np.zeros((7, 3))
    for step in range(400):
        both = where[:, None] * policy
        expected += 0.1 * 0.9**step * both
        where = np.einsum("sa,sat->t", both, transition)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert found.sum() == pytest.approx(1.0, abs=1e-13)
    value = evaluate(transition, reward, 0.9, policy).value
    assert (found * reward).sum() == pytest.approx(0.1 * start @ value, abs=1e-13)


def test_greedy_takes_the_first_of_equals():
    np.testing.assert_array_equal(greedy(np.array([[1.0, 1.0], [0.0, 2.0]])), [[1, 0], [0, 1]])


def test_seeds_run_side_by_side_in_float64_and_the_rest_stays_float32():
    many = [random_mdp(seed)[:2] for seed in range(4)]
    transition, reward = (np.stack(each) for each in zip(*many, strict=True))
    discount = np.array([0.5, 0.9, 0.95, 0.99])
    both = exact(jax.vmap(policy_iteration))(transition, reward, discount)
    for seed in range(4):
        alone = policy_iteration(transition[seed], reward[seed], discount[seed])
        np.testing.assert_allclose(both.value[seed], alone.value, rtol=1e-12)
        np.testing.assert_array_equal(both.policy[seed], alone.policy)
    assert both.value.dtype == np.float64
    assert jnp.ones(3).dtype == jnp.float32
