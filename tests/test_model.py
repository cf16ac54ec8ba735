import copy
import json
import pickle
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from phimu import Contrastive, Ctrl, Elliptical, InputError, Sac, learn_features
from phimu.features import LearnedFeatures
from phimu.model import Model
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import Exponential

MAZE = "phimu/FourRooms-v0"
SMALL = {
    "actor_sizes": (8,),
    "critic_width": 8,
    "batch_size": 8,
    "buffer_size": 100,
    "learning_starts": 20,
}
SMALL_CTRL = SMALL | {
    "feature_dim": 8,
    "feature_sizes": (8,),
    "negatives": 4,
    "bonus_scale": 1.0,
    "refresh_every": 10,
    "covariance_sample": 20,
}
OPTIONS = {"reward": "dense", "random_start": True, "max_episode_steps": 25}


class Uneven(gymnasium.Env):
    """A position moved by actions whose range is not [-1, 1]; it has no Gymnasium id."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-50, 50, (2,), np.float32)
        low, high = np.array([0, -3], np.float32), np.array([4, -1], np.float32)
        self.action_space = gymnasium.spaces.Box(low, high)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=2)
        self.steps = 0
        return self.position.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        assert self.action_space.contains(action)
        self.position = self.position + action - (2, -2)
        self.steps += 1
        reward = -float(np.abs(self.position).sum())
        return self.position.astype(np.float32), reward, False, self.steps == 10, {}


def ctrl(seed: int = 0, **changes: object) -> Ctrl:
    return Ctrl(MAZE, seed=seed, task_options=OPTIONS, **SMALL_CTRL | changes)


@pytest.fixture(scope="module")
def model() -> Ctrl:
    """Read only."""
    return ctrl().learn(40)


@pytest.fixture(scope="module")
def sac() -> Sac:
    """Read only; its environment is an object."""
    return Sac(Uneven(), **SMALL).learn(40)


POINTS = np.array([[2, 3], [18, 2], [5, 15]], np.float32)
ACTIONS = np.array([[0.5, -1], [0, 0], [-0.2, 0.9]], np.float32)


def test_learn_counts_steps_and_changes_the_policy(model: Ctrl) -> None:
    fresh = ctrl()
    assert (fresh.run.step, fresh.run.updates) == (0, 0)
    assert (model.run.step, model.run.updates) == (40, 21)
    before, after = (m.predict(POINTS, deterministic=True)[0] for m in (fresh, model))
    assert not np.array_equal(before, after)


def test_learning_is_repeatable_and_seeded(model: Ctrl) -> None:
    same, other = ctrl().learn(40), ctrl(seed=1).learn(40)
    expected = model.predict(POINTS, deterministic=True)[0]
    np.testing.assert_array_equal(same.predict(POINTS, deterministic=True)[0], expected)
    assert not np.array_equal(other.predict(POINTS, deterministic=True)[0], expected)


@pytest.mark.parametrize("steps", [0, -5])
def test_learn_needs_a_step(model: Ctrl, steps: int) -> None:
    with pytest.raises(InputError, match=f"total_timesteps is {steps}"):
        model.learn(steps)


def test_actions_lie_in_the_range_of_the_environment(sac: Sac) -> None:
    space = sac.run.task.env.action_space
    many = np.random.default_rng(0).uniform(-50, 50, (500, 2)).astype(np.float32)
    actions, state = sac.predict(many)
    assert state is None
    assert actions.shape == (500, 2)
    assert actions.dtype == space.dtype
    assert all(space.contains(action) for action in actions)
    # The sampled ones use the range: they are not the raw [-1, 1].
    assert actions[:, 0].max() > 2
    assert actions[:, 1].min() < -2
    single, _ = sac.predict(many[0])
    assert space.contains(single)


def test_single_and_batched_observations_agree(model: Ctrl) -> None:
    batch, _ = model.predict(POINTS, deterministic=True)
    assert batch.shape == (3, 2)
    for point, action in zip(POINTS, batch, strict=True):
        single, _ = model.predict(point, deterministic=True)
        assert single.shape == (2,)
        np.testing.assert_allclose(single, action, atol=1e-6)


def test_mode_repeats_and_samples_vary(model: Ctrl) -> None:
    modes = [model.predict(POINTS[0], deterministic=True)[0] for _ in range(3)]
    np.testing.assert_array_equal(modes[0], modes[1])
    np.testing.assert_array_equal(modes[0], modes[2])
    samples = [model.predict(POINTS[0])[0] for _ in range(3)]
    assert len({sample.tobytes() for sample in samples}) == 3
    rows, _ = model.predict(np.repeat(POINTS[:1], 4, axis=0))
    assert len({row.tobytes() for row in rows}) == 4


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 1, 2), ()])
def test_observation_of_another_shape_is_refused(model: Ctrl, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="observation has shape"):
        model.predict(np.zeros(shape, np.float32))


def test_no_observation_has_no_action(model: Ctrl, sac: Sac) -> None:
    assert model.predict(POINTS[:0])[0].shape == (0, 2)
    actions, _ = sac.predict(POINTS[:0], deterministic=True)
    assert (actions.shape, actions.dtype) == ((0, 2), np.float32)


@pytest.mark.parametrize(
    ("points", "actions", "sentence"),
    [
        (POINTS[0], ACTIONS[0], r"observation has shape \(2,\): give a batch \[B, 2\]"),
        (POINTS, ACTIONS[:, :1], r"action has shape \(3, 1\): give a batch \[B, 2\]"),
        (POINTS, ACTIONS[:2], "action has 2 rows: give 3, one for each"),
        (POINTS[None], ACTIONS, r"observation has shape \(1, 3, 2\)"),
    ],
)
def test_queries_of_another_shape_are_refused(
    model: Ctrl, points: np.ndarray, actions: np.ndarray, sentence: str
) -> None:
    for query in (model.q_value, model.phi, model.bonus):
        with pytest.raises(InputError, match=sentence):
            query(points, actions)
    with pytest.raises(InputError, match=r"next_observation has shape \(2,\)"):
        model.density_ratio(POINTS, ACTIONS, POINTS[0])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused_with_the_way_to_make_one(model: Ctrl, copied) -> None:
    with pytest.raises(InputError, match=r"use save\(path\), then Ctrl.load\(path\)"):
        copied(model)


def test_settings_are_checked_before_anything_is_learned() -> None:
    with pytest.raises(InputError, match="batch_size is '64': give an integer"):
        ctrl(batch_size="64")
    assert ctrl(actor_sizes=[8, 8]).learn(25).run.step == 25


def test_predict_serves_the_policy_evaluation_of_stable_baselines3(model: Ctrl) -> None:
    """Its evaluate_policy calls predict with a vector environment's batch, exactly like this."""
    vector = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(MAZE, **OPTIONS)] * 2)
    observations, _ = vector.reset(seed=0)  # [2, 2]: as many environments as numbers
    episode_starts, states = np.ones(2, bool), None
    for _ in range(3):
        actions, states = model.predict(
            observations, state=states, episode_start=episode_starts, deterministic=True
        )
        assert states is None
        assert vector.action_space.contains(actions)
        observations, _, terminated, truncated, _ = vector.step(actions)
        episode_starts = terminated | truncated
    handed_on = object()
    assert model.predict(observations, state=handed_on)[1] is handed_on


def test_queries_have_the_documented_shapes(model: Ctrl, sac: Sac) -> None:
    others = np.concatenate([POINTS, POINTS[:2] + 1])
    assert model.phi(POINTS, ACTIONS).shape == (3, 8)
    assert sac.q_value(POINTS, 2 * ACTIONS % 4 - (0, 3)).shape == (3,)
    assert model.q_value(POINTS, ACTIONS).shape == (3,)
    bonus = model.bonus(POINTS, ACTIONS)
    assert bonus.shape == (3,)
    assert ((bonus > 0) & (bonus <= 2)).all()
    ratio = model.density_ratio(POINTS, ACTIONS, others)
    assert ratio.shape == (3, 5)
    assert (ratio > 0).all()
    # Row by row and column by column, it is the ratio of that pair.
    alone = model.density_ratio(POINTS[1:2], ACTIONS[1:2], others[3:4])
    np.testing.assert_allclose(alone, ratio[1:2, 3:4], rtol=1e-4)


def test_what_an_agent_cannot_answer_is_one_sentence(model: Ctrl, sac: Sac) -> None:
    for name in ("phi", "bonus", "penalty"):
        with pytest.raises(InputError, match=rf"^sac has no {name}\.$"):
            getattr(sac, name)(POINTS, ACTIONS)
    with pytest.raises(InputError, match=r"^sac has no density_ratio\.$"):
        sac.density_ratio(POINTS, ACTIONS, POINTS)
    with pytest.raises(InputError, match=r"^ctrl-ucb-m has no penalty\.$"):
        model.penalty(POINTS, ACTIONS)
    with pytest.raises(InputError, match="estimates are for models that learn from data"):
        model.estimates()


def test_every_model_takes_the_same_arguments(sac: Sac, tmp_path: Path) -> None:
    """The short names choose the agent; preset, seed and settings are Model's."""
    named = Model(MAZE, "ctrl-ucb-l", preset="maze", seed=3, feature_sizes=(8,), feature_dim=8)
    short = Ctrl(MAZE, "l", "maze", 3, feature_sizes=(8,), feature_dim=8)
    assert short.config == named.config
    assert (short.config.agent, short.config.seed) == ("ctrl-ucb-l", 3)
    assert Sac(MAZE, "small", 3, **SMALL).config == Model(MAZE, "sac", seed=3, **SMALL).config
    sac.save(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["preset"] == "small"
    loaded = Model.load(tmp_path, env=Uneven())
    here, there = (each.predict(POINTS, deterministic=True)[0] for each in (sac, loaded))
    np.testing.assert_array_equal(here, there)


def test_samples_are_the_policys_alone() -> None:
    """uniform_mix is for collecting: predict does not mix its random actions in."""
    plain, mixed = (Sac(Uneven(), **SMALL, uniform_mix=mix) for mix in (0.0, 1.0))
    np.testing.assert_array_equal(plain.predict(POINTS)[0], mixed.predict(POINTS)[0])


def test_asking_again_does_not_compile_again(model: Ctrl) -> None:
    model.q_value(POINTS, ACTIONS)
    traced: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.run.agent), "q_value", lambda *a: traced.append(a))
        model.q_value(POINTS, ACTIONS)
    assert traced == []


def test_evaluate_is_repeatable(model: Ctrl) -> None:
    result = model.evaluate(episodes=2, seed=1)
    assert result == model.evaluate(episodes=2, seed=1)
    assert result != model.evaluate(episodes=2, seed=2)
    assert result["episodes"] == 2
    assert 1 <= result["length"] <= 25


@pytest.mark.parametrize("name", ["feature_dmi", "featuredim"])
def test_unknown_setting_suggests_the_right_one(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}.*did you mean feature_dim"):
        Ctrl(MAZE, **{name: 8})


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InputError, match="version is 'x'"):
        Ctrl(MAZE, version="x")
    with pytest.raises(InputError, match="preset is 'huge'"):
        Sac(MAZE, preset="huge")
    with pytest.raises(InputError, match="discount is 1"):
        Sac(MAZE, discount=1.0)
    with pytest.raises(InputError, match="not a registered Gymnasium id"):
        Sac("Maze-v77")
    with pytest.raises(InputError, match=r"Gymnasium id or a gymnasium\.Env, not a int"):
        Sac(3)  # type: ignore[arg-type]


def test_saved_model_predicts_the_same_bits(model: Ctrl, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = Ctrl.load(tmp_path / "model")
    assert type(loaded) is Ctrl
    assert loaded.config == model.config
    assert loaded.run.step == model.run.step
    for query in ("phi", "bonus", "q_value"):
        here, there = (getattr(m, query)(POINTS, ACTIONS) for m in (model, loaded))
        np.testing.assert_array_equal(here, there, err_msg=query)
    here, there = (m.predict(POINTS, deterministic=True)[0] for m in (model, loaded))
    np.testing.assert_array_equal(here, there)
    here, there = (m.density_ratio(POINTS, ACTIONS, POINTS) for m in (model, loaded))
    np.testing.assert_array_equal(here, there)


def test_learning_on_after_load_equals_uninterrupted_learning(tmp_path: Path) -> None:
    stopped = ctrl().learn(32)  # within the second episode and between two refreshes
    stopped.save(tmp_path)
    assert_same_weights(Ctrl.load(tmp_path).learn(13), ctrl().learn(45))


def test_environment_without_an_id_is_given_again_to_load(sac: Sac, tmp_path: Path) -> None:
    sac.save(tmp_path)
    with pytest.raises(InputError, match="Uneven"):
        Sac.load(tmp_path)
    loaded = Sac.load(tmp_path, env=Uneven()).learn(10)
    assert_same_weights(loaded, Sac(Uneven(), **SMALL).learn(50))


def assert_same_weights(model: Model, other: Model) -> None:
    assert model.run.step == other.run.step
    pairs = zip(jax.tree.leaves(model.run.state), jax.tree.leaves(other.run.state), strict=True)
    for here, there in pairs:
        np.testing.assert_array_equal(here, there)
    np.testing.assert_array_equal(model.run.replay.rows.reward, other.run.replay.rows.reward)


def test_save_refuses_the_directory_of_another_model(model: Ctrl, sac: Sac, tmp_path: Path) -> None:
    model.save(tmp_path)
    model.save(tmp_path)  # its own it may renew
    with pytest.raises(InputError, match="was made with agent"):
        sac.save(tmp_path)
    np.testing.assert_array_equal(
        Ctrl.load(tmp_path).q_value(POINTS, ACTIONS), model.q_value(POINTS, ACTIONS)
    )


def test_load_refuses_what_is_no_such_model(model: Ctrl, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory"):
        Ctrl.load(tmp_path)
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="holds the agent ctrl-ucb-m, not one of Sac"):
        Sac.load(tmp_path / "model")


# Features from arrays: s' = s + a + noise, with s in [-1, 1] and a in [-1, 1]

NOISE = 0.1
TINY = Contrastive(
    ratio=Exponential(
        phi_output="unit_variance",
        mu_output="tanh",
        temperature=1.0,
        marginal_weight=0.1,  # without it the ranking loss leaves the scale of the ratio free
        learn_temperature=True,
    ),
    noise=Negatives(negatives=64, random_share=0.0),
    feature_dim=16,
    feature_sizes=(32,),
    feature_learning_rate=5e-3,
    feature_rate=0.05,
)


def transitions(n: int = 1_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    observation, action = rng.uniform(-1, 1, (2, n, 1))
    return observation, action, observation + action + NOISE * rng.normal(size=(n, 1))


@pytest.fixture(scope="module")
def features() -> LearnedFeatures:
    return learn_features(*transitions(), settings=TINY, updates=600, batch_size=64, seed=0)


def test_density_ratio_peaks_at_the_true_next_observation(features: LearnedFeatures) -> None:
    s, a = np.array([[-0.5], [0.0], [0.3], [-0.8]]), np.array([[0.5], [-0.6], [0.4], [0.3]])
    grid = np.linspace(-1.8, 1.8, 73)[:, None]
    ratio = features.density_ratio(s, a, grid)
    assert ratio.shape == (4, 73)
    assert (ratio >= 0).all()
    distance = np.abs(grid.T - (s + a))  # [4, 73]
    assert (np.take_along_axis(distance, ratio.argmax(axis=1)[:, None], 1) < 2 * NOISE).all()
    at_truth = np.take_along_axis(ratio, distance.argmin(axis=1)[:, None], 1)[:, 0]
    for row, truth, far in zip(ratio, at_truth, distance > 5 * NOISE, strict=True):
        assert truth > 3 * row[far].max()


def test_density_ratio_integrates_to_one(features: LearnedFeatures) -> None:
    observation, action, next_observation = transitions()
    ratio = features.density_ratio(observation[:50], action[:50], next_observation)
    # The integral over p, the data's next observations.
    np.testing.assert_allclose(ratio.mean(axis=1), 1, rtol=1e-5)
    assert np.abs(features.log_z(observation[:50], action[:50])).max() > 0.05  # not by itself


def test_bonus_is_higher_far_from_the_data(features: LearnedFeatures) -> None:
    observation, action, _ = transitions()
    features.fit_confidence(observation, action, Elliptical(bonus_scale=1.0))
    within = features.bonus(observation[:100], action[:100])
    far = features.bonus(np.array([[5.0], [-5.0]]), np.array([[0.0], [0.0]]))
    assert within.shape == (100,)
    assert far.min() > 1.2 * within.mean()
    left = observation[:, 0] < 0
    features.fit_confidence(observation[left], action[left], Elliptical(bonus_scale=1.0))
    bonus = features.bonus(observation, action)
    assert bonus[~left].mean() > 2 * bonus[left].mean()


def test_shapes_of_phi_and_mu(features: LearnedFeatures) -> None:
    observation, action, next_observation = (column[:5] for column in transitions())
    assert features.phi(observation, action).shape == (5, 16)
    assert features.mu(next_observation[:3]).shape == (3, 16)
    assert {"nce_loss", "nce_accuracy"} <= features.metrics.keys()


def test_bonus_needs_data_to_measure_from(features: LearnedFeatures) -> None:
    parts = features._normaliser, features._representation
    unfitted = LearnedFeatures(features.settings, *parts, {}, features.spec, features._base)
    with pytest.raises(InputError, match="call fit_confidence first"):
        unfitted.bonus(np.zeros((1, 1)), np.zeros((1, 1)))


@pytest.mark.parametrize("name", ["observation", "action", "next_observation", "reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_named_with_its_row(name: str, value: float) -> None:
    columns = dict(zip(("observation", "action", "next_observation"), transitions(9), strict=True))
    columns["reward"] = np.zeros(9)
    columns[name][7] = value
    with pytest.raises(InputError, match=f"^{name} is not finite in row 7"):
        learn_features(**columns, settings=TINY, updates=1)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("observation", (9,)),
        ("action", (8, 1)),
        ("action", (9,)),
        ("next_observation", (10, 1)),
        ("next_observation", (9, 1, 1)),
        ("next_observation", (9, 2)),
        ("reward", (8,)),
        ("reward", (9, 1)),
    ],
)
def test_bad_shape_is_named(name: str, shape: tuple[int, ...]) -> None:
    columns = dict(zip(("observation", "action", "next_observation"), transitions(9), strict=True))
    columns[name] = np.zeros(shape)
    with pytest.raises(InputError, match=f"^{name} has "):
        learn_features(**columns, settings=TINY, updates=1)


def test_no_rows_is_refused() -> None:
    none = np.zeros((0, 1))
    with pytest.raises(InputError, match=r"observation has shape \(0, 1\)"):
        learn_features(none, none, none, updates=1)
