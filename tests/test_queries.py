"""What models can be asked: own ranges, normalised densities, and one meaning of each word."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from phimu import Contrastive, Ctrl, InputError, Model, Offline, Sac, from_arrays, learn_features
from phimu.representation.negatives import Negatives
from phimu.representation.ratio import Exponential, Linear

TINY = {
    "actor_sizes": (8,),
    "critic_width": 8,
    "batch_size": 8,
    "feature_dim": 8,
    "feature_sizes": (8,),
    "negatives": 16,
    "feature_rate": 0.1,
    "feature_learning_rate": 3e-3,
}
ONLINE = TINY | {"learning_starts": 20, "buffer_size": 200, "bonus_scale": 1.0, "refresh_every": 10}
LOGGED = TINY | {
    "behaviour_sizes": (8,),
    "behaviour_updates": 200,  # enough for a density
    "behaviour_learning_rate": 1e-2,
    "representation_updates": 20,
}
PAIR = ("phi", "q_value", "bonus", "penalty", "behaviour", "log_z")
WORDS = {*PAIR, "mu", "temperature", "density_ratio"}
DENSITY = {"phi", "mu", "temperature", "density_ratio", "log_z", "q_value"}


def logged(spread: float | None = None) -> Any:
    """Walks whose actions lie in [0, 4]: all over it, or around 2 with this deviation."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(61, 3)), axis=0)
    return from_arrays(
        observation=walk[:-1],
        action=rng.uniform(0, 4, (60, 1)) if spread is None else rng.normal(2, spread, (60, 1)),
        reward=rng.normal(size=60),
        next_observation=walk[1:],
        terminated=np.zeros(60, bool),
        truncated=np.arange(60) % 20 == 19,
        action_low=0,
        action_high=4,
    )


def make(name: str, data: Any = None, **more: Any) -> Model:
    if name == "ctrl-ucb-l":  # the linear ratio
        return Ctrl("Pendulum-v1", "l", **ONLINE, ratio="linear", levels=()).learn(40)
    if name.startswith("ctrl-ucb"):
        loss = "binary" if name.endswith("binary") else "ranking"
        more |= {"levels": (0.5, 1.0)} if name.endswith("blurred") else {}
        return Ctrl("Pendulum-v1", **ONLINE, loss=loss, **more).learn(40)
    if name == "sac":
        small = {key: ONLINE[key] for key in ("actor_sizes", "critic_width", "learning_starts")}
        return Sac("Pendulum-v1", **small).learn(30)
    settings = LOGGED if name == "ctrl-lcb" else {}
    if name in ("brac", "cpc"):
        settings = {k: v for k, v in LOGGED.items() if "feature" not in k and k != "negatives"}
    if name == "brac":
        del settings["representation_updates"]
    if name == "cpc":
        settings |= {"embedding_sizes": (8,), "embedding_dim": 4}
    return Offline(data or logged(), name, **settings | {"batch_size": 8} | more).learn(5)


MODELS: dict[str, Model] = {}


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Model:
    """Made once a name; read only."""
    if request.param not in MODELS:
        MODELS[request.param] = make(request.param)
    return MODELS[request.param]


named = pytest.mark.parametrize(
    ("model", "words"),
    [
        ("ctrl-ucb-m", DENSITY | {"bonus"}),
        ("ctrl-ucb-l", (DENSITY | {"bonus"}) - {"temperature"}),
        ("sac", {"q_value"}),
        ("ctrl-lcb", DENSITY | {"penalty", "behaviour"}),
        pytest.param("brac", {"q_value", "behaviour"}, marks=pytest.mark.thorough),
        pytest.param("cpc", {"q_value", "behaviour"}, marks=pytest.mark.thorough),
        ("td3-bc", {"q_value"}),
    ],
    indirect=["model"],
)
with_density = pytest.mark.parametrize(
    "model",
    ["ctrl-ucb-m", "ctrl-ucb-binary", "ctrl-ucb-blurred", "ctrl-ucb-l", "ctrl-lcb"],
    indirect=True,
)


def pairs(model: Model, count: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Observations as of a pendulum, and actions from all of the model's own range."""
    rng = np.random.default_rng(seed)
    ends = model.action_range
    actions = rng.uniform(ends.low, ends.high, (count, 1))
    return rng.uniform(-1, 1, (count, 3)), actions


def inside(model: Model, action: np.ndarray) -> np.ndarray:
    """The same actions in [-1, 1]."""
    low, high = model.action_range.low, model.action_range.high
    return np.float32(2 * (action - low) / (high - low) - 1)


def ask(model: Model, word: str) -> np.ndarray:
    o, a = pairs(model)
    if word == "temperature":
        return np.asarray(model.temperature)
    if word == "mu":
        return model.mu(o)
    return (
        model.density_ratio(o, a, o[:2]) if word == "density_ratio" else getattr(model, word)(o, a)
    )


@named
def test_each_model_answers_what_it_has_and_says_what_it_lacks(
    model: Model, words: set[str]
) -> None:
    shapes = {"phi": (5, 8), "mu": (5, 8), "temperature": (), "density_ratio": (5, 2)}
    if model.config.agent == "ctrl-ucb-l":
        shapes |= {"phi": (5, 8), "mu": (5, 8)}
    for word in WORDS:
        if word in words:
            found = ask(model, word)
            assert found.shape == shapes.get(word, (5,)), word
            assert np.isfinite(found).all(), word
        else:
            with pytest.raises(InputError) as told:
                ask(model, word)
            assert str(told.value).count(".") <= 2, word
            assert "has no" in str(told.value), word


@named
def test_actions_are_in_the_own_range_of_environment_or_data(model: Model, words: set[str]) -> None:
    """As `predict` gives them; an agent sees them in [-1, 1]."""
    o, a = pairs(model)
    for word in words & {"phi", "q_value", "bonus", "penalty"}:
        expected = model.run.learner.query(word, np.float32(o), inside(model, a))
        np.testing.assert_allclose(getattr(model, word)(o, a), expected, rtol=1e-4, atol=1e-6)
    low, high = model.action_range.low, model.action_range.high
    predicted, _ = model.predict(np.float32(o), deterministic=True)
    model.q_value(o, predicted)  # what it answers, it takes
    for word in words & set(PAIR):
        for wrong in (high + 0.01, low - 1, np.array([np.nan]), np.array([np.inf])):
            actions = a.copy()
            actions[3] = wrong
            with pytest.raises(InputError, match=r"^action (in row 3, column 0|is not finite in)"):
                getattr(model, word)(o, actions)
        rounding = np.broadcast_to(high * (1 + 1e-6), (5, 1))
        clipped = np.broadcast_to(high, (5, 1))
        here, there = (getattr(model, word)(o, each) for each in (rounding, clipped))
        np.testing.assert_allclose(here, there, rtol=1e-6, err_msg=word)


@named
def test_wrong_shapes_are_named(model: Model, words: set[str]) -> None:
    o, a = pairs(model)
    for word in words & set(PAIR):
        for wrong, said in (
            ((o[0], a[0]), r"observation has shape \(3,\): give a batch \[B, 3\]"),
            ((o[:, :2], a), r"observation has shape \(5, 2\): give a batch"),
            ((o, a[:, 0]), r"action has shape \(5,\): give a batch \[B, 1\]"),
            ((o, a[:4]), "action has 4 rows: give 5"),
            ((o, [["x"]] * 5), "action is no array of numbers"),
            ((np.where(o > 0, np.nan, o), a), "observation is not finite in row"),
        ):
            with pytest.raises(InputError, match=said):
                getattr(model, word)(*wrong)
        assert len(getattr(model, word)(o[:0], a[:0])) == 0
    if "mu" in words:
        with pytest.raises(InputError, match=r"next_observation has shape \(5, 1\)"):
            model.mu(a)
        with pytest.raises(InputError, match=r"next_observation has shape \(3,\)"):
            model.density_ratio(o, a, o[0])


def f_of(model: Any, phi: np.ndarray, mu: np.ndarray, linear: bool) -> np.ndarray:
    """In float64, from what the model says of itself."""
    inner = phi.astype(np.float64) @ mu.T.astype(np.float64)
    return inner if linear else np.exp(inner / model.temperature)


def agree(model: Any, o: np.ndarray, a: np.ndarray, linear: bool, constant: float) -> None:
    """ratio = f(phi, mu, temperature) / Z, and Z = E_p f."""
    base, others = model.base_measure(), np.random.default_rng(3).uniform(-1, 1, (7, o.shape[1]))
    phi = model.phi(o, a)
    z = f_of(model, phi, model.mu(base.points), linear) @ base.weights
    ratio = f_of(model, phi, model.mu(others), linear) / z[:, None]
    np.testing.assert_allclose(model.density_ratio(o, a, others), ratio, rtol=1e-3)
    np.testing.assert_allclose(model.log_z(o, a), np.log(z) - constant, atol=1e-3)
    mean = model.density_ratio(o, a, base.points) @ base.weights
    np.testing.assert_allclose(mean, 1, rtol=1e-5)


@with_density
def test_the_words_agree_with_each_other(model: Model) -> None:
    features = model.run.state.agent.representation.features
    constant = 0.0 if features.log_normaliser is None else float(features.log_normaliser)
    linear = isinstance(model.run.agent.representation.ratio, Linear)
    agree(model, *pairs(model), linear, constant)


@pytest.mark.parametrize("ratio", [Exponential(temperature=0.5, learn_temperature=True), Linear()])
def test_the_words_agree_for_features_from_arrays_too(ratio: Any) -> None:
    rng = np.random.default_rng(0)
    o, a = rng.uniform(-1, 1, (300, 2)), rng.uniform(-5, 5, (300, 1))
    settings = Contrastive(
        ratio=ratio,
        noise=Negatives(negatives=16, random_share=0.0),
        feature_dim=8,
        feature_sizes=(8,),
        feature_rate=0.1,
    )
    found = learn_features(o, a, o + 0.1 * a, settings=settings, updates=60, batch_size=32)
    agree(found, o[:5], a[:5], isinstance(ratio, Linear), 0.0)
    assert found.base_measure().points.shape == (300, 2)
    fresh = found.density_ratio(o[:20], a[:20], (o + 0.1 * a)[200:])
    assert fresh.mean() == pytest.approx(1, abs=0.2)
    if isinstance(ratio, Linear):
        with pytest.raises(InputError, match="linear ratio has no temperature"):
            _ = found.temperature
    with pytest.raises(InputError, match=r"action has shape \(5, 2\)"):
        found.phi(o[:5], o[:5])


def test_the_learned_ratio_does_not_integrate_to_one_by_itself() -> None:
    """What `density_ratio` once gave: its mean over s' was in the hundreds."""
    model = Ctrl("Pendulum-v1", **ONLINE | {"temperature": 0.5}, seed=1).learn(150)
    o, a = pairs(model, 50)
    stored = model.run.replay.rows.next_observation[:150]
    raw = np.exp(model.run.learner.query("log_ratio", np.float32(o), inside(model, a), stored))
    assert not 0.5 < raw.mean() < 2
    np.testing.assert_allclose(np.exp(model.log_z(o, a)).mean(), raw.mean(), rtol=0.5)
    # A third of p are the warm-up's points, so that over the others it can be 1.5 at most.
    assert 0.5 < model.density_ratio(o, a, stored).mean() <= 1.5


def test_the_base_measure_is_kept_until_the_model_learns_on(tmp_path: Path) -> None:
    model = Ctrl("Pendulum-v1", **ONLINE).learn(30)
    before = model.base_measure()
    assert model.base_measure() is before
    model.save(tmp_path)
    np.testing.assert_array_equal(Ctrl.load(tmp_path).base_measure().points, before.points)
    assert len(model.learn(5).base_measure().points) > len(before.points)


def test_without_its_data_a_model_has_no_density(tmp_path: Path) -> None:
    made = make("ctrl-lcb")
    made.save(tmp_path)
    o, a = pairs(made)
    alone = Offline.load(tmp_path)
    for word in ("phi", "penalty", "q_value", "behaviour"):
        np.testing.assert_array_equal(getattr(alone, word)(o, a), getattr(made, word)(o, a))
    with pytest.raises(InputError, match="no data to integrate over"):
        alone.density_ratio(o, a, o)
    again = Offline.load(tmp_path, logged())
    np.testing.assert_array_equal(again.density_ratio(o, a, o), made.density_ratio(o, a, o))


THOROUGH = [pytest.param(name, marks=pytest.mark.thorough) for name in ("brac", "cpc")]


@pytest.mark.parametrize("name", ["ctrl-lcb", *THOROUGH])
def test_the_behaviour_is_a_density_in_the_own_range(name: str) -> None:
    """Of data whose actions stay clear of the ends, where the clone's density is cut off."""
    model = make(name, logged(spread=0.3))
    o, _ = pairs(model, 3)
    grid = np.linspace(0, 4, 4_001)[:, None]
    for each in o:
        density = np.exp(model.behaviour(np.tile(each, (len(grid), 1)), grid))
        assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1, abs=0.01)
        assert 1 < grid[density.argmax(), 0] < 3


@pytest.mark.parametrize("version", ["m", "l"])
def test_a_bonus_that_can_only_be_zero_says_why(version: str) -> None:
    """The presets small and paper-mujoco have none, as the paper on MuJoCo."""
    model = Ctrl("Pendulum-v1", version, **ONLINE | {"bonus_scale": 0.0}).learn(25)
    with pytest.raises(
        InputError, match=r"^bonus_scale is 0 .* bonus is 0 everywhere: make one with"
    ):
        model.bonus(*pairs(model))
    assert "bonus" not in model.run.metrics  # nor is a row of zeros logged
    data = Offline(logged(), **LOGGED, bonus_scale=0.0)
    with pytest.raises(InputError, match="bonus_scale is 0"):
        data.penalty(*pairs(data))


def test_a_penalty_is_not_asked_before_there_is_a_covariance() -> None:
    model = Offline(logged(), **LOGGED)
    with pytest.raises(InputError, match="learn first"):
        model.penalty(*pairs(model))


class Blocks(gymnasium.Env):
    """Observations and actions that are matrices."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2, 3), np.float32)
    action_space = gymnasium.spaces.Box(0, 10, (2, 2), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, (2, 3)).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple:
        seen = self.np_random.uniform(-1, 1, (2, 3)).astype(np.float32)
        return seen, float(action.sum()), False, bool(self.np_random.uniform() < 0.1), {}


def test_queries_take_the_shapes_of_the_environment() -> None:
    model = Ctrl(Blocks(), **ONLINE).learn(25)
    o = np.random.default_rng(0).uniform(-1, 1, (4, 2, 3))
    a, _ = model.predict(o, deterministic=True)
    assert a.shape == (4, 2, 2)
    assert model.phi(o, a).shape == (4, 8)
    assert model.density_ratio(o, a, o[:2]).shape == (4, 2)
    with pytest.raises(InputError, match=r"action has shape \(4, 4\): give a batch \[B, 2, 2\]"):
        model.q_value(o, a.reshape(4, 4))
