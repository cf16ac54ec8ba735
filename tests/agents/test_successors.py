"""SPEDER and those after it: presets beside CTRL's and the published numbers."""

from dataclasses import replace

import numpy as np
import pytest

from phimu.agents import preset
from phimu.agents.schedule import Schedule
from phimu.representation import REPRESENTATIONS
from phimu.settings import override

AGENTS = {"speder": "spectral", "diff-sr": "score", "lv-rep": "latent"}


@pytest.mark.parametrize("agent", [*AGENTS, "ctrl-sr"])
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


@pytest.mark.parametrize(("agent", "name"), AGENTS.items())
def test_small_is_one_flag_away_from_ctrl_online_and_on_logged_data(agent, name):
    assert override(preset("ctrl-ucb-m", "small"), {"representation": name}) == preset(
        agent, "small"
    )
    logged = override(preset("ctrl-lcb", "small", logged=True), {"representation": name})
    assert REPRESENTATIONS[name].endswith(f":{type(logged.settings.representation).__name__}")


def test_speders_table():
    settings, schedule = preset("speder", "published")
    phi, planner = settings.representation, settings.planner
    assert (*phi.feature_sizes, phi.feature_dim) == (1024, 1024, 1024)
    assert (phi.loss, phi.orthogonality_weight, phi.marginal_weight) == ("orthonormal", 1.0, 1.0)
    assert (phi.feature_learning_rate, phi.feature_rate, phi.reward_weight) == (3e-4, 0.005, 0.0)
    assert (planner.critic, planner.critic_width) == ("two_layer", 1024)
    assert (settings.confidence.bonus_scale, settings.beside_phi) == (0.0, "nothing")
    assert (schedule.batch_size, schedule) == (256, Schedule())


def test_ctrl_srs_table():
    settings, schedule = preset("ctrl-sr", "published")
    phi, planner = settings.representation, settings.planner
    assert (*phi.feature_sizes, phi.feature_dim) == (512, 512, 512, 512)
    assert (phi.ratio.phi_output, phi.ratio.temperature) == ("unit_norm", 1.0)
    assert (phi.noise.negatives, phi.noise.in_batch) == (0, True)
    assert (phi.feature_learning_rate, phi.feature_rate, phi.reward_weight) == (1e-4, 0.005, 1.0)
    assert planner.actor_sizes == (512, 512, 512)
    assert (planner.actor_learning_rate, planner.discount) == (3e-4, 0.99)
    assert (schedule.batch_size, schedule.normalise_observations) == (512, True)
    kept = 1 / (1 + np.square(phi.levels))
    published = [0.988, 0.961, 0.920, 0.867, 0.804, 0.734, 0.660, 0.583, 0.508, 0.435]
    np.testing.assert_allclose(kept[:10], published, atol=6e-4)
    np.testing.assert_allclose(kept[-4:], [0.020, 0.014, 0.010, 0.006], atol=6e-4)
    assert len(kept) == 25


def test_diff_srs_table():
    settings, schedule = preset("diff-sr", "published")
    phi = settings.representation
    assert (*phi.feature_sizes, phi.feature_dim) == (512, 512, 512, 512)
    assert (phi.noise_levels, phi.phi_output, phi.reward_weight) == (50, "identity", 0.1)
    like, when = preset("ctrl-sr", "published")
    assert (settings.planner, settings.beside_phi, schedule) == (like.planner, "nothing", when)


def test_lv_reps_table():
    settings, schedule = preset("lv-rep", "published")
    phi = settings.representation
    assert (*phi.feature_sizes, phi.latent_dim) == (512, 512, 512, 512)
    assert (phi.kl_weight, phi.reward_weight) == (0.1 / 2, 1.0)
    assert (phi.feature_learning_rate, schedule.normalise_observations) == (3e-4, False)
    like, when = preset("ctrl-sr", "published")
    assert (settings.planner, schedule.batch_size) == (like.planner, when.batch_size)
