"""The paper's table for D4RL, and what all offline presets must hold to."""

from dataclasses import fields, is_dataclass

import jax
import pytest
from phimu.agents.offline_presets import (
    OFFLINE_AGENTS,
    OFFLINE_DESCRIPTIONS,
    OFFLINE_PRESET_DESCRIPTIONS,
    OfflineSchedule,
    offline_preset,
)

from phimu.errors import InputError
from phimu.types import Spec

EVERY = [(agent, name) for agent in OFFLINE_AGENTS for name in OFFLINE_PRESET_DESCRIPTIONS]


def test_paper_d4rl_is_the_table():
    """Table "Hyperparameters used for CTRL-LCB in D4RL evaluation", row by row."""
    settings, schedule = offline_preset("ctrl-lcb", "paper-d4rl")
    assert settings.representation.temperature == 0.2
    assert settings.confidence.bonus_scale == 1.0
    assert settings.planner.actor_learning_rate == 0.0003
    assert settings.planner.critic_learning_rate == 0.001
    assert settings.representation.feature_learning_rate == 0.0003
    assert settings.planner.behaviour_weight == 1.0
    assert settings.planner.actor_sizes == (256, 256)
    sizes = (*settings.representation.feature_sizes, settings.representation.feature_dim)
    assert sizes == (512, 512, 512)
    assert (settings.planner.critic, settings.planner.critic_width) == ("two_layer", 512)
    assert settings.planner.discount == 0.99
    assert settings.planner.target_rate == 0.005
    assert schedule.batch_size == 256
    # Section 6.3: 200K steps of the representation first. What is ours stays out of it.
    assert settings.phases[0] == ("representation", 200_000)
    assert settings.planner.value_scale is None
    assert not settings.penalty_features
    assert not settings.raw_beside_phi
    assert not settings.normalise_observations


@pytest.mark.parametrize(("agent", "name"), EVERY)
def test_every_agent_has_every_preset(agent, name):
    settings, schedule = offline_preset(agent, name)
    assert isinstance(settings, OFFLINE_AGENTS[agent])
    assert settings.phases[-1] == ("policy", 0)
    assert schedule == OfflineSchedule()
    names = list(_names(settings)) + [field.name for field in fields(schedule)]
    assert len(names) == len(set(names)), "flags of the command line would collide"
    shapes = jax.eval_shape(lambda: settings.init(Spec(3, 1), jax.random.PRNGKey(0)))
    assert jax.tree.leaves(shapes)


def _names(part):
    for field in fields(part):
        value = getattr(part, field.name)
        yield from _names(value) if is_dataclass(value) else [field.name]


def test_every_agent_is_described():
    assert OFFLINE_DESCRIPTIONS.keys() == OFFLINE_AGENTS.keys()


def test_unknown_names_are_refused_in_a_sentence():
    with pytest.raises(InputError, match="agent is 'ctrl-ucb-m': to learn from a set choose"):
        offline_preset("ctrl-ucb-m", "small")
    with pytest.raises(InputError, match="preset is 'maze': to learn from a set choose"):
        offline_preset("ctrl-lcb", "maze")
    with pytest.raises(InputError, match="log_every is 0"):
        OfflineSchedule(log_every=0)
