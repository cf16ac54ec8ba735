"""Observations of every space become flat as Gymnasium flattens them; integers become one-hot."""

from collections import OrderedDict

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import batch_space

from phimu.action_range import Choices
from phimu.environments.spaces import Flattening
from phimu.environments.task import open_task
from phimu.errors import EnvironmentFault, InputError
from phimu.types import Spec

SPACES = [
    Box(-1.0, 1.0, (2, 3)),
    Box(0, 1, (10, 10, 4), bool),  # as MinAtar shows its games
    Discrete(4, start=-2),
    MultiBinary(3),
    MultiDiscrete([2, 3], start=[0, 5]),
    Dict(b=Box(0, 255, (2, 2), np.uint8), a=Discrete(3), c=Dict(d=Box(-1.0, 1.0, (1,)))),
    Dict(OrderedDict(z=Discrete(2), y=Box(-1.0, 1.0, (2,)))),
    Tuple((Discrete(3), Discrete(2), Box(-1.0, 1.0, (2,)))),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_flattened_as_gymnasium_does_it(space):
    space.seed(0)
    forms = Flattening(space, "a task")
    for _ in range(5):
        observation = space.sample()
        flat = forms.flat(observation)
        assert flat.dtype == np.float32
        assert flat.shape == (forms.size,)
        np.testing.assert_allclose(flat, spaces.flatten(space, observation), rtol=1e-6)
        np.testing.assert_allclose(forms.flat(forms.own(flat)), flat, rtol=1e-6)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_batches_are_those_of_vector_environments(space):
    many = batch_space(space, 4)
    many.seed(0)
    batch = many.sample()
    flat = Flattening(space, "a task").flat(batch)
    each = list(gymnasium.vector.utils.iterate(many, batch))
    assert len(each) == len(flat) == 4
    for row, observation in zip(flat, each, strict=True):
        np.testing.assert_allclose(row, spaces.flatten(space, observation), rtol=1e-6)


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (Discrete(3, start=1), 0),
        (Discrete(3, start=1), 4),
        (Discrete(3), 0.5),
        (Dict(a=Discrete(2)), {"b": 1}),
        (Dict(a=Box(-1.0, 1.0, (2,))), {"a": np.zeros(3)}),
        (Tuple((Discrete(2), Discrete(2))), (1,)),
    ],
    ids=str,
)
def test_what_is_not_of_the_space_is_a_fault_of_the_environment(space, wrong):
    class Wrong(gymnasium.Env):
        observation_space, action_space = space, Discrete(2)

        def reset(self, *, seed=None, options=None):
            return wrong, {}

    with pytest.raises(EnvironmentFault, match=r"not of its observation_space .* at the reset"):
        open_task(Wrong()).reset()


class Counted(gymnasium.Env):
    """Remembers the action it got."""

    observation_space = Dict(place=Discrete(3), speed=Box(-1.0, 1.0, (1,)))
    action_space = Discrete(3, start=5)
    got = None

    def reset(self, *, seed=None, options=None):
        return {"place": 2, "speed": np.zeros(1)}, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.got = action
        return {"place": 1, "speed": np.full(1, 0.5)}, 1.0, False, False, {}


def test_a_task_of_discrete_actions_and_dict_observations():
    env = Counted()
    task = open_task(env)
    assert task.spec == Spec(4, 3, discrete=True)
    np.testing.assert_array_equal(task.reset(), [0, 0, 1, 0])
    observation, *_ = task.step(np.array([0, 0, 1], np.float32))
    np.testing.assert_array_equal(observation, np.float32([0, 1, 0, 0.5]))
    assert env.got == 7
    assert type(env.got) is int
    assert task.note == (
        "Counted has Dict observations: they are flattened to 4 numbers, as "
        "gymnasium.wrappers.FlattenObservation does."
    )
    assert open_task("CartPole-v1").note is None
    with pytest.raises(InputError, match="action has 2 numbers, but Counted takes 3"):
        task.step(np.zeros(2))
    with pytest.raises(InputError, match=r"action\[1\] is nan"):
        task.step(np.array([0, np.nan, 0]))


@pytest.mark.parametrize("task", ["FrozenLake-v1", "Blackjack-v1"])
def test_toy_tasks_of_gymnasium_are_open(task):
    opened = open_task(task)
    rng = np.random.default_rng(0)
    assert opened.reset(0).shape == (opened.spec.observation_dim,)
    opened.step(opened.spec.random_action(rng))


def test_random_actions_are_uniform():
    rng, spec = np.random.default_rng(0), Spec(1, 3, discrete=True)
    actions = np.array([spec.random_action(rng) for _ in range(3_000)])
    assert (actions.sum(axis=1) == 1).all()
    np.testing.assert_allclose(actions.mean(axis=0), 1 / 3, atol=0.03)


def test_choices_go_out_and_in():
    choices = Choices(3, start=2**40)
    own = np.array([2**40 + 2, 2**40])
    inside = choices.inward(own.astype(choices.kind))
    np.testing.assert_array_equal(inside, [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(choices.outward(inside), own)
    assert choices.fits(Choices(3, 2**40))
    assert not choices.fits(Choices(3))
    for wrong in (0.0, 2**40 + 3, 2**40 + 0.5, -np.inf):
        with pytest.raises(InputError, match=r"action in row 1 is .* none of the integers"):
            choices.inward(np.array([2.0**40, wrong]))
