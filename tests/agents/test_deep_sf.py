"""DeepSF and SPEDE: presets beside CTRL's and the published numbers, and whose a' psi learns of."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phimu.agents import preset
from phimu.errors import InputError
from phimu.representation.gaussian import GaussianDynamics
from phimu.representation.successor import SuccessorFeatures
from phimu.settings import override
from phimu.types import Batch, Feed, Spec

BOTH = ["deep-sf", "spede"]


@pytest.mark.parametrize("agent", BOTH)
def test_small_is_ctrl_with_another_phi_of_the_same_widths(agent):
    ctrl, own = preset("ctrl-ucb-m", "small"), preset(agent, "small")
    assert own.schedule == ctrl.schedule
    assert replace(own.settings, representation=ctrl.settings.representation) == ctrl.settings
    fields = (
        "feature_sizes",
        "feature_dim",
        "feature_layer_norm",
        "feature_learning_rate",
        "feature_rate",
    )
    for name in fields:
        theirs = getattr(ctrl.settings.representation, name)
        assert getattr(own.settings.representation, name) == theirs


@pytest.mark.parametrize(("agent", "name"), [("deep-sf", "successor"), ("spede", "gaussian")])
def test_small_is_one_flag_away_from_ctrl(agent, name):
    assert override(preset("ctrl-ucb-m", "small"), {"representation": name}) == preset(
        agent, "small"
    )


@pytest.mark.parametrize("agent", BOTH)
@pytest.mark.parametrize(("name", "hidden", "dim"), [("mbbl", 2, 1024), ("original", 1, 200)])
def test_what_the_published_code_has(agent, name, hidden, dim):
    settings, schedule = preset(agent, name)
    representation, planner = settings.representation, settings.planner
    assert representation.feature_sizes == (dim,) * hidden
    assert representation.feature_dim == dim
    assert (representation.feature_output, representation.feature_layer_norm) == ("elu", False)
    assert representation.feature_learning_rate == 1e-4
    assert representation.feature_rate == 0.001
    assert (representation.reward_sizes, representation.reward_weight) == ((512, 512), 1.0)
    assert planner.critic == "linear"
    assert (planner.discount, planner.target_rate) == (0.99, 0.005)
    rates = planner.critic_learning_rate, planner.actor_learning_rate, planner.entropy_learning_rate
    assert rates == (1e-3, 1e-3, 1e-3)
    assert (planner.initial_entropy_weight, planner.target_entropy) == (1.0, None)
    assert [(phase.name, phase.updates) for phase in settings.phases] == [
        ("policy", 0),
        ("planner", 2),
    ]
    assert (settings.confidence.bonus_scale, settings.beside_phi) == (0.0, "nothing")
    assert (schedule.batch_size, schedule.normalise_observations) == (256, False)
    collection = schedule.collection
    assert (collection.learning_starts, collection.buffer_size) == (10_000, 100_000)
    if isinstance(representation, SuccessorFeatures):
        assert (representation.successor_discount, representation.successor_rate) == (0.99, 0.005)
        assert (representation.successor_mean, representation.bootstrap_terminated) == (False, True)
    else:
        assert isinstance(representation, GaussianDynamics)
        assert (representation.frequency, representation.weight_noise) == (0.05, 1e-6)
        assert not representation.waves_of_unit_variance
        assert (representation.noise.negatives, representation.noise.in_batch) == (0, True)


@pytest.mark.parametrize("discrete", [False, True])
def test_psi_learns_of_what_the_policy_does_at_the_next_observation(discrete):
    """Policies that always do the same are told apart by it."""
    small = {"feature_dim": 4, "feature_sizes": (4,), "reward_sizes": (4,)}
    sizes = small | {"actor_sizes": (4,), "critic_width": 4}
    agent = override(preset("deep-sf", "small"), sizes).settings
    spec, rows = Spec(2, 3, discrete), 8
    rng = np.random.default_rng(0)
    observation, following = rng.normal(size=(2, rows, 2)).astype(np.float32)
    action = np.eye(3, dtype=np.float32)[rng.integers(3, size=rows)]
    none = np.zeros(rows, np.float32)
    feed = Feed(Batch(observation, action, none, following, none, none))
    state = jax.jit(lambda: agent.init(spec, jax.random.PRNGKey(0)))()
    key = jax.random.PRNGKey(3)

    def certain(action):
        """The state of a policy that does this one action, whatever it sees."""
        bias = 50.0 * (2.0 * jnp.asarray(action) - 1.0)  # before a softmax, or a tanh
        if not discrete:
            bias = jnp.concatenate([bias, jnp.full(3, -9.0)])  # and the smallest deviation
        network = state.planner.actor.network
        last = eqx.tree_at(
            lambda layer: layer.weight, network.layers[-1], replace_fn=jnp.zeros_like
        )
        last = eqx.tree_at(lambda layer: layer.bias, last, bias)
        return eqx.tree_at(lambda s: s.planner.actor.network.layers[-1], state, last)

    update = jax.jit(agent.update, static_argnums=0)
    learned = agent.representation.update
    for one in np.eye(3, dtype=np.float32)[:2]:
        after, _ = update("policy", certain(one), feed, key)
        done = one if discrete else 2 * one - 1  # tanh(20) = 1
        told = {"next_action": np.tile(done, (rows, 1))}
        expected, _ = jax.jit(learned)(state.representation, feed._replace(columns=told), key)
        for x, y in zip(*map(jax.tree.leaves, (after.representation, expected)), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


def test_ctrl_lcb_learns_phi_before_it_has_a_policy():
    with pytest.raises(InputError, match="SuccessorFeatures, which is of a policy"):
        override(preset("ctrl-lcb", "small", logged=True), {"representation": "successor"})
    changed = override(preset("ctrl-lcb", "small", logged=True), {"representation": "gaussian"})
    assert changed.settings.representation == GaussianDynamics()
