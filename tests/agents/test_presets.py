"""The presets against the paper's table, and their names as command-line flags."""

from collections import Counter
from dataclasses import fields, is_dataclass

import pytest
from phimu.agents.presets import DESCRIPTIONS, PRESETS, override, preset

from phimu.errors import InputError

# "Hyperparameters used for CTRL-UCB in all the environments in MuJoCo and DM Control Suite".
TABLE = {
    "paper-mujoco": {
        "NCE temperature": 0.2,
        "Bonus Coefficient": 0.0,
        "Actor lr": 0.0003,
        "Model lr": 0.0003,
        "Actor Network Size": (256, 256),
        "NCE Embedding Network Size": (1024, 1024, 2048),
        "Critic Network Size": (2048, 1),
        "Discount": 0.99,
        "Target Update Tau": 0.005,
        "Model Update Tau": 0.005,
        "Batch Size": 256,
    },
    "paper-dmc": {
        "NCE temperature": 0.2,
        "Bonus Coefficient": 5.0,
        "Actor lr": 0.0003,
        "Model lr": 0.0003,
        "Actor Network Size": (1024, 1024),
        "NCE Embedding Network Size": (1024, 1024, 1024),
        "Critic Network Size": (1024, 1),
        "Discount": 0.99,
        "Target Update Tau": 0.005,
        "Model Update Tau": 0.005,
        "Batch Size": 256,
    },
}


@pytest.mark.parametrize("agent", ["ctrl-ucb-m", "ctrl-ucb-l"])
@pytest.mark.parametrize("name", TABLE)
def test_paper_presets_are_the_table_to_the_digit(agent, name):
    settings, schedule = preset(agent, name)
    representation, planner = settings.representation, settings.planner
    assert TABLE[name] == {
        "NCE temperature": representation.temperature,
        "Bonus Coefficient": settings.confidence.bonus_scale,
        "Actor lr": planner.actor_learning_rate,
        "Model lr": representation.feature_learning_rate,
        "Actor Network Size": planner.actor_sizes,
        "NCE Embedding Network Size": (*representation.feature_sizes, representation.feature_dim),
        "Critic Network Size": (planner.critic_width, 1),
        "Discount": planner.discount,
        "Target Update Tau": planner.target_rate,
        "Model Update Tau": representation.feature_rate,
        "Batch Size": schedule.batch_size,
    }


@pytest.mark.parametrize("agent", ["ctrl-ucb-m", "ctrl-ucb-l"])
@pytest.mark.parametrize("name", TABLE)
def test_paper_presets_are_the_text_where_the_table_is_silent(agent, name):
    settings, _ = preset(agent, name)
    assert settings.noise.random_share == 0.5  # 50 % replay, 50 % random trajectories
    assert settings.representation.loss == "ranking"
    assert settings.representation.ratio == "exponential"
    assert not settings.representation.learn_temperature
    assert not settings.raw_beside_phi  # the critic reads phi alone
    assert not settings.normalise_observations
    assert settings.planner_rows is None


def test_small_l_is_a_true_linear_mdp_with_a_linear_critic():
    """Q is linear in phi for the linear ratio alone, so the laptop preset of L uses that."""
    settings = preset("ctrl-ucb-l", "small").settings
    assert settings.planner.critic == "linear"
    assert settings.representation.ratio == "linear"
    assert settings.representation.phi_output == "softmax"
    assert settings.representation.bonus_prediction_weight == 1.0
    assert not settings.raw_beside_phi


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "small"])
def test_m_and_l_differ_in_the_critic_and_the_bonus_prediction_alone(name):
    """L has a linear critic and phi that predicts the bonus (appendix C), M two layers."""
    of_m, of_l = preset("ctrl-ucb-m", name), preset("ctrl-ucb-l", name)
    assert of_m.settings.planner.critic == "two_layer"
    assert of_m.settings.representation.bonus_prediction_weight == 0.0
    changes = {"critic": "linear", "bonus_prediction_weight": 1.0}
    assert override(of_m, changes) == of_l


@pytest.mark.parametrize("name", PRESETS)
def test_sac_plans_as_ctrl_does(name):
    """Method and baseline share one planner but for the critic's depth and width."""
    sac, ctrl = preset("sac", name), preset("ctrl-ucb-m", name)
    critic = {"critic": "two_layer", "critic_width": ctrl.settings.planner.critic_width}
    assert override(sac, critic).settings.planner == ctrl.settings.planner
    assert {sac.settings.planner.critic_width} == set(sac.settings.planner.actor_sizes)
    assert sac.settings.normalise_observations == ctrl.settings.normalise_observations
    assert sac.schedule == ctrl.schedule


def test_small_is_small():
    settings, _ = preset("ctrl-ucb-m", "small")
    assert settings.representation.feature_dim == 256
    assert settings.representation.feature_sizes == (256, 256)
    assert settings.planner.actor_sizes == (256, 256)
    assert settings.planner.critic_width == 1024
    assert preset("sac", "small").settings.planner.critic_width == 256


def leaf_names(part):
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            yield from leaf_names(value)
        else:
            yield field.name


@pytest.mark.parametrize("agent", DESCRIPTIONS)
@pytest.mark.parametrize("name", PRESETS)
def test_names_of_settings_are_unique(agent, name):
    """They become flat command-line flags."""
    settings, schedule = preset(agent, name)
    names = Counter([*leaf_names(settings), *leaf_names(schedule)])
    assert len(names) > 15
    assert [field for field, count in names.items() if count > 1] == []


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"agent is 'ctrl'.*ctrl-ucb-m.*sac"):
        preset("ctrl", "small")
    with pytest.raises(InputError, match=r"preset is 'paper'.*paper-mujoco.*small"):
        preset("sac", "paper")


def test_override_reaches_every_part_and_leaves_the_rest():
    before = preset("ctrl-ucb-m", "small")
    changes = {"feature_dim": 7, "negatives": 3, "ridge": 0.5, "discount": 0.5, "batch_size": 9}
    after = override(before, changes)
    assert after.settings.representation.feature_dim == 7
    assert after.settings.noise.negatives == 3
    assert after.settings.confidence.ridge == 0.5
    assert after.settings.planner.discount == 0.5
    assert after.schedule.batch_size == 9
    back = {"feature_dim": 256, "negatives": 256, "ridge": 1.0, "discount": 0.99, "batch_size": 256}
    assert override(after, back) == before
    assert preset("ctrl-ucb-m", "small") == before


def test_override_refuses_an_unknown_name_and_suggests_one():
    with pytest.raises(InputError, match=r"'discont'.*discount"):
        override(preset("sac", "small"), {"discont": 0.9})
    with pytest.raises(InputError, match="feature_dim"):  # SAC has no phi
        override(preset("sac", "small"), {"feature_dim": 8})


@pytest.mark.parametrize("agent", ["ctrl-ucb-m", "ctrl-ucb-l", "sac"])
@pytest.mark.parametrize("change", [{"behaviour_weight": 1.0}, {"value_penalty": True}])
def test_settings_for_logged_data_are_refused_where_there_is_none(agent, change):
    with pytest.raises(InputError, match="behaviour_weight and value_penalty"):
        override(preset(agent, "small"), change)
