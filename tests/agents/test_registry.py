"""The registry: presets against the paper's tables, and what every entry must hold to."""

import dataclasses
from collections import Counter

import jax
import pytest

from phimu.agents import AGENTS, PRESETS, learners, preset, protocol
from phimu.agents.protocol import Phase
from phimu.agents.schedule import LOGGED, LOGGED_NORMALISED, Collection, Preset, Schedule
from phimu.errors import InputError
from phimu.planning.behaviour import Regularisation
from phimu.planning.soft_actor_critic import SoftActorCritic
from phimu.representation.ratio import Exponential, Linear
from phimu.settings import names, override, walk
from phimu.types import Spec

ONLINE = list(AGENTS["sac"].presets(logged=False))
EVERY = [
    (agent, logged, name)
    for logged in (False, True)
    for agent, entry in learners(logged).items()
    for name in entry.presets(logged)
]

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
        "NCE temperature": representation.ratio.temperature,
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
    settings, schedule = preset(agent, name)
    assert settings.representation.noise.random_share == 0.5  # 50 % replay, 50 % random
    assert settings.representation.loss == "ranking"
    assert isinstance(settings.representation.ratio, Exponential)
    assert not settings.representation.ratio.learn_temperature
    assert settings.beside_phi == "nothing"  # the critic reads phi alone
    assert settings.representation.next_noise == 0.0
    assert not schedule.normalise_observations
    assert settings.planner_rows is None
    # The bonus is the paper's formula on phi, which nothing normalises.
    assert (settings.confidence.bonus_features, settings.confidence.bonus_kernel) == ("phi", None)
    assert settings.representation.ratio.phi_output == "identity"
    assert not settings.representation.feature_layer_norm


def test_paper_d4rl_is_the_table():
    """Table "Hyperparameters used for CTRL-LCB in D4RL evaluation", row by row."""
    settings, schedule = preset("ctrl-lcb", "paper-d4rl", logged=True)
    assert settings.representation.ratio.temperature == 0.2
    assert settings.confidence.bonus_scale == 1.0
    assert settings.planner.actor_critic.actor_learning_rate == 0.0003
    assert settings.planner.actor_critic.critic_learning_rate == 0.001
    assert settings.representation.feature_learning_rate == 0.0003
    assert settings.planner.regularisation.behaviour_weight == 1.0
    assert settings.planner.actor_critic.actor_sizes == (256, 256)
    sizes = (*settings.representation.feature_sizes, settings.representation.feature_dim)
    assert sizes == (512, 512, 512)
    assert (settings.planner.actor_critic.critic, settings.planner.actor_critic.critic_width) == (
        "two_layer",
        512,
    )
    assert settings.planner.actor_critic.discount == 0.99
    assert settings.planner.actor_critic.target_rate == 0.005
    assert schedule.batch_size == 256
    # Section 6.3: 200K steps of the representation first. What is ours stays out of it.
    assert settings.phases[0] == Phase("representation", 200_000)
    assert settings.planner.regularisation.value_scale is None
    assert (settings.confidence.bonus_features, settings.confidence.bonus_kernel) == ("phi", None)
    assert settings.beside_phi == "nothing"
    assert not schedule.normalise_observations


def test_small_l_is_linear_in_random_features_of_the_phi_of_small_m():
    """With the exponential ratio Q is linear in these, not in phi itself."""
    settings = preset("ctrl-ucb-l", "small").settings
    assert settings.planner.critic == "random_features"
    assert isinstance(settings.representation.ratio, Exponential)
    assert settings.representation.bonus_prediction_weight == 1.0
    changes = {
        "critic": "random_features",
        "critic_width": 512,
        "beside_phi": "nothing",
        "critic_trains_phi": 2.0,
        "bonus_prediction_weight": 1.0,
    }
    assert override(preset("ctrl-ucb-m", "small"), changes) == preset("ctrl-ucb-l", "small")


@pytest.mark.parametrize("name", [name for name in ONLINE if name != "small"])
def test_m_and_l_differ_in_the_critic_and_the_bonus_prediction_alone(name):
    """L has a linear critic and phi that predicts the bonus (appendix C), M two layers."""
    of_m, of_l = preset("ctrl-ucb-m", name), preset("ctrl-ucb-l", name)
    assert of_m.settings.planner.critic == "two_layer"
    assert of_m.settings.representation.bonus_prediction_weight == 0.0
    changes = {"critic": "linear", "bonus_prediction_weight": 1.0}
    assert override(of_m, changes) == of_l


@pytest.mark.parametrize("name", ONLINE)
def test_sac_plans_as_ctrl_does(name):
    """Method and baseline share one planner but for the critic's depth; the paper's, its width."""
    sac, ctrl = preset("sac", name), preset("ctrl-ucb-m", name)
    critic = {"critic": "two_layer"}
    if name.startswith("paper-"):
        critic["critic_width"] = ctrl.settings.planner.critic_width
    assert override(sac, critic).settings.planner == ctrl.settings.planner
    assert {sac.settings.planner.critic_width} == set(sac.settings.planner.actor_sizes)
    # And one schedule, but for the share of random actions in the maze, which is the method's.
    none = {"uniform_mix": 0.0}
    assert override(sac, none).schedule == override(ctrl, none).schedule
    assert sac.schedule.collection.uniform_mix == 0.0


def test_small_brac_plans_as_small_ctrl_lcb_does():
    """CTRL-LCB without phi and penalty: the critic is a layer deeper, since it reads (s, a)."""
    brac, ctrl = (preset(agent, "small", logged=True) for agent in ("brac", "ctrl-lcb"))
    deeper = override(ctrl, {"critic": "three_layer"}).settings
    assert brac.settings.planner == deeper.planner.actor_critic
    assert brac.settings.regularisation == deeper.planner.regularisation
    assert brac.settings.behaviour == deeper.planner.behaviour
    assert brac.schedule == ctrl.schedule


def test_small_is_small():
    settings, _ = preset("ctrl-ucb-m", "small")
    assert settings.representation.feature_dim == 256
    assert settings.representation.feature_sizes == (256, 256)
    assert settings.planner.actor_sizes == (256, 256)
    assert settings.planner.critic_width == 256
    assert preset("sac", "small").settings.planner.critic_width == 256


# Every entry


@pytest.mark.parametrize(("agent", "logged", "name"), EVERY)
def test_every_preset_of_every_agent_constructs(agent, logged, name):
    """A frozen dataclass whose state has arrays, and the schedule of what it learns from."""
    settings, schedule = preset(agent, name, logged)
    assert dataclasses.is_dataclass(settings)
    assert hash(settings) == hash(preset(agent, name, logged).settings)  # jit compiles by it
    assert (schedule.collection is None) == logged
    shapes = jax.eval_shape(lambda: settings.init(Spec(3, 1), jax.random.PRNGKey(0)))
    assert jax.tree.leaves(shapes)
    policy = settings.policy(shapes)
    assert callable(policy.mode)
    assert callable(policy.sample)


@pytest.mark.parametrize(("agent", "logged", "name"), EVERY)
def test_the_policy_comes_last_and_is_as_long_as_asked(agent, logged, name):
    """On logged data; online a phase without a number of updates has `gradient_steps` a round."""
    *before, last = protocol.phases(preset(agent, name, logged).settings)
    if logged:
        assert all(phase.updates > 0 for phase in before)
        assert last[:2] == ("policy", 0)
    else:
        assert sum(phase.updates == 0 for phase in (*before, last)) <= 1


@pytest.mark.parametrize(("agent", "logged", "name"), EVERY)
def test_names_of_settings_are_unique(agent, logged, name):
    """They become flat command-line flags."""
    chosen = preset(agent, name, logged)
    every = [field.name for part in chosen for field, value in walk(part)]
    counts = Counter(every)
    assert len(counts) > 15
    # A part may be called as a part of another one is: neither is a flag.
    flags = set(names(chosen))
    assert [field for field, count in counts.items() if count > 1 and field in flags] == []
    assert len(names(chosen)) == len(flags)


ON_POLICY = {"mbbl", "original"}
BASELINES = {"d4rl"}  # of agents that the paper quotes on logged data
SUCCESSORS = {"published"}  # of the representations that came after the paper
PEERS = {  # the paper's methods and what they are compared with, preset by preset
    False: ("ctrl-ucb-m", "ctrl-ucb-l", "sac"),
    True: ("ctrl-lcb", "brac", "cpc", "td3-bc", "sac"),
}


@pytest.mark.parametrize("logged", [False, True])
def test_methods_and_their_baselines_have_the_same_presets(logged):
    own = {"perturbed"}  # of ctrl-lcb alone, whose contrast it is about
    of_each = [
        [name for name in AGENTS[agent].presets(logged) if name not in own]
        for agent in PEERS[logged]
    ]
    assert of_each == [of_each[0]] * len(of_each)
    online = set(PRESETS) - {"paper-d4rl", *own, *ON_POLICY, *BASELINES, *SUCCESSORS}
    assert set(of_each[0]) == ({"paper-d4rl", "small"} if logged else online)


@pytest.mark.parametrize("agent", PEERS[True])
def test_peers_on_logged_data_have_one_schedule(agent):
    """But for normalised observations, which were the agent's own setting once."""
    for _, schedule in AGENTS[agent].presets(logged=True).values():
        assert dataclasses.replace(schedule, normalise_observations=False) == LOGGED


@pytest.mark.parametrize("agent", learners(logged=True))
def test_small_is_as_small_for_every_agent_on_logged_data(agent):
    """The same schedule, actor and critic, phi aside, so that scores can be compared."""
    chosen = preset(agent, "small", logged=True)
    assert chosen.schedule == LOGGED_NORMALISED
    own = {field.name: value for part in chosen for field, value in walk(part)}
    assert own["actor_sizes"] == (256, 256)
    assert own.get("critic_sizes", (256, 256)) == (256, 256)
    assert own.get("behaviour_sizes", (256, 256)) == (256, 256)
    if agent != "ctrl-lcb":
        assert own.get("critic_width", 256) == 256
        assert own.get("critic", "three_layer") == "three_layer"


@pytest.mark.parametrize("agent", AGENTS)
def test_all_presets_of_an_agent_are_of_one_class(agent):
    """A stored configuration is read back as that class."""
    for logged in (False, True):
        kinds = {type(preset.settings) for preset in AGENTS[agent].presets(logged).values()}
        assert len(kinds) <= 1


def test_every_preset_has_a_text_and_every_agent_a_summary():
    assert {name for _, _, name in EVERY} == set(PRESETS)
    assert all(PRESETS.values())
    assert all(entry.summary for entry in AGENTS.values())
    assert all(entry.online or entry.logged for entry in AGENTS.values())


def test_who_learns_from_what():
    for name, entry in AGENTS.items():
        for logged in (False, True):
            assert (name in learners(logged)) == bool(entry.presets(logged))
    assert "sac" in learners(False).keys() & learners(True).keys()  # the baseline of both halves


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"agent is 'ctrl'.*ctrl-ucb-m.*sac"):
        preset("ctrl", "small")
    with pytest.raises(InputError, match=r"preset is 'paper'.*paper-mujoco.*small"):
        preset("sac", "paper")
    with pytest.raises(InputError, match="agent is 'ctrl-ucb-m': to learn from logged data choose"):
        preset("ctrl-ucb-m", "small", logged=True)
    with pytest.raises(InputError, match="agent is 'ctrl-lcb': to train in an environment choose"):
        preset("ctrl-lcb", "small")
    with pytest.raises(
        InputError, match="preset is 'maze': ctrl-lcb has paper-d4rl, small, perturbed"
    ):
        preset("ctrl-lcb", "maze", logged=True)


# The schedule


@pytest.mark.parametrize(
    ("made", "bad"),
    [
        (Schedule, {"log_every": 0}),
        (Schedule, {"batch_size": 1}),
        (Schedule, {"checkpoint_every": 0}),
        (Schedule, {"evaluate_every": -1}),
        (Schedule, {"evaluation_episodes": 0}),
        (Collection, {"learning_starts": -1}),
        (Collection, {"buffer_size": 0}),
        (Collection, {"train_freq": 0}),
        (Collection, {"gradient_steps": 0}),
        (Collection, {"uniform_mix": 1.1}),
        (Collection, {"uniform_mix": -0.1}),
    ],
)
def test_a_bad_schedule_is_refused_by_name(made, bad):
    (name, value), *_ = bad.items()
    with pytest.raises(InputError, match=f"{name} is {value}"):
        made(**bad)


# Override, on real presets; tests/test_settings.py has the rest


def test_override_reaches_every_part_and_leaves_the_rest():
    before = preset("ctrl-ucb-m", "small")
    changes = {"feature_dim": 7, "negatives": 3, "ridge": 0.5, "discount": 0.5, "batch_size": 9}
    after = override(before, changes)
    assert after.settings.representation.feature_dim == 7
    assert after.settings.representation.noise.negatives == 3
    assert after.settings.confidence.ridge == 0.5
    assert after.settings.planner.discount == 0.5
    assert after.schedule.batch_size == 9
    assert type(after) is Preset
    back = {"feature_dim": 256, "negatives": 0, "ridge": 1.0, "discount": 0.99, "batch_size": 128}
    assert override(after, back) == before
    assert preset("ctrl-ucb-m", "small") == before


def test_override_refuses_an_unknown_name_and_suggests_one():
    with pytest.raises(InputError, match=r"'discont'.*discount"):
        override(preset("sac", "small"), {"discont": 0.9})
    with pytest.raises(InputError, match="feature_dim"):  # SAC has no phi
        override(preset("sac", "small"), {"feature_dim": 8})


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("change", [{"behaviour_weight": 1.0}, {"value_penalty": True}])
def test_what_holds_a_policy_near_logged_data_is_no_setting_of_sac(logged, change):
    """Nor of any agent without a clone, so that nothing has to be refused."""
    with pytest.raises(InputError, match=f"no setting '{next(iter(change))}'"):
        override(preset("sac", "small", logged), change)
    assert not {field.name for field in dataclasses.fields(SoftActorCritic)} & set(change)
    assert {field.name for field in dataclasses.fields(Regularisation)} >= set(change)


@pytest.mark.parametrize("agent", learners(logged=False))
def test_settings_for_logged_data_are_none_where_there_is_none(agent):
    with pytest.raises(InputError, match="behaviour_weight"):
        override(preset(agent, "small"), {"behaviour_weight": 1.0})


@pytest.mark.parametrize("agent", learners(logged=True))
@pytest.mark.parametrize("name", ["learning_starts", "uniform_mix", "buffer_size"])
def test_a_run_on_logged_data_has_nothing_to_collect(agent, name):
    with pytest.raises(InputError, match=f"no setting '{name}'"):
        override(preset(agent, "small", logged=True), {name: 1})


def test_ratio_is_one_flag():
    """Both ratios are comparable in one flag, each with its own defaults."""
    exponential = preset("ctrl-ucb-m", "small")
    linear = override(exponential, {"ratio": "linear", "balance_weight": 0.3})
    assert linear.settings.representation.ratio == Linear(balance_weight=0.3)
    assert linear.settings.representation.feature_dim == 256
    with pytest.raises(InputError, match="no setting 'temperature'"):
        override(exponential, {"ratio": "linear", "temperature": 1.0})
    assert override(exponential, {"ratio": "exponential"}) == exponential
