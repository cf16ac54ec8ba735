"""The border holds: what crosses it is flat, scaled and finite, and what cannot is named."""

import re
import subprocess
import sys
import textwrap

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text

from phimu.environments.task import open_task
from phimu.errors import EnvironmentFault, InputError, by_environment, environment_traceback
from phimu.types import Spec

SEE = Box(-np.inf, np.inf, (3,), np.float64)
ACT = Box(-1.0, 1.0, (1,), np.float32)


class Scripted(gymnasium.Env):
    """Returns the given observations and rewards in turn, and remembers the actions it got."""

    def __init__(self, observations=None, rewards=(0.0,), see=SEE, act=ACT):
        self.observation_space, self.action_space = see, act
        self.observations = observations or [np.zeros(see.shape)]
        self.rewards, self.actions, self.seeds, self.closed = rewards, [], [], False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.actions = []
        return self.observations[0], {}

    def step(self, action):
        self.actions.append(action)
        count = len(self.actions)
        observation = self.observations[min(count, len(self.observations) - 1)]
        return (
            observation,
            self.rewards[min(count, len(self.rewards)) - 1],
            False,
            np.bool_(True),
            {},
        )

    def close(self):
        self.closed = True


def test_a_gymnasium_task():
    task = open_task("Pendulum-v1")
    assert (task.name, task.suite, task.spec) == ("Pendulum-v1", "gymnasium", Spec(3, 1))
    observation = task.reset(seed=0)
    assert (observation.shape, observation.dtype) == ((3,), np.float32)
    observation, reward, terminated, truncated = task.step(np.zeros(1))
    assert (observation.shape, observation.dtype) == ((3,), np.float32)
    assert (type(reward), terminated, truncated) == (float, False, False)


def test_the_suite_is_the_namespace():
    assert open_task("phimu/FourRooms-v0").suite == "phimu"
    assert open_task("phimu.environments:phimu/FourRooms-v0").name == "phimu/FourRooms-v0"
    task = open_task(Scripted())
    assert (task.name, task.suite) == ("Scripted", "custom")


def test_an_env_object_keeps_its_wrappers():
    task = open_task(gymnasium.wrappers.TimeLimit(gymnasium.make("Pendulum-v1"), 3))
    assert task.name == "Pendulum-v1"
    task.reset(0)
    assert [task.step([0.0])[3] for _ in range(3)] == [False, False, True]


def test_kwargs_reach_the_environment():
    task = open_task("phimu/FourRooms-v0", noise=0.0, start=(5.0, 5.0))
    np.testing.assert_array_equal(task.reset(), [5, 5])
    np.testing.assert_array_equal(task.step([0.5, -1.0])[0], [6, 3])


def test_seeds_fix_the_episode():
    first, second = (open_task("Pendulum-v1") for _ in range(2))
    for _ in range(2):
        np.testing.assert_array_equal(first.reset(np.int64(7)), second.reset(7))
        for action in (0.1, -0.7):
            np.testing.assert_array_equal(first.step([action])[0], second.step([action])[0])
    assert (first.reset(8) != second.reset(7)).any()


@pytest.mark.parametrize(
    ("action", "torque"), [(-1.0, -2.0), (0.0, 0.0), (0.25, 0.5), (1.0, 2.0), (3.0, 2.0), (-9, -2)]
)
def test_actions_are_rescaled_and_clipped(action, torque):
    task = open_task("Pendulum-v1")
    scaled = task.to_env_action(np.array([action]))
    np.testing.assert_array_equal(scaled, [torque])
    assert scaled.dtype == np.float32
    np.testing.assert_array_equal([task.action_range.low, task.action_range.high], [[-2], [2]])


def test_lopsided_and_shaped_actions():
    act = Box(np.array([[0.0, -3.0]]), np.array([[1.0, 5.0]]), dtype=np.float64)
    env = Scripted(act=act)
    task = open_task(env)
    assert task.spec.action_dim == 2
    task.reset()
    task.step(np.array([-1.0, 0.5]))
    np.testing.assert_array_equal(env.actions[-1], [[0.0, 3.0]])
    assert (env.actions[-1].shape, env.actions[-1].dtype) == ((1, 2), np.float64)


def test_every_scaled_action_is_within_the_space():
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        low = rng.normal(size=5).astype(dtype)
        act = Box(low, low + rng.uniform(1e-3, 3, 5).astype(dtype), dtype=dtype)
        task = open_task(Scripted(act=act))
        for action in [*rng.uniform(-1.2, 1.2, (200, 5)), np.ones(5), -np.ones(5)]:
            assert act.contains(task.to_env_action(action))


def test_observations_are_flattened_and_copied():
    shared = np.array([[1, 2], [3, 4]], np.float32)
    task = open_task(Scripted([shared], see=Box(0, 9, (2, 2), np.float32)))
    observation = task.reset()
    shared[:] = 9
    np.testing.assert_array_equal(observation, np.float32([1, 2, 3, 4]))
    assert task.spec.observation_dim == 4
    image = open_task(Scripted([np.uint8([[7]])], see=Box(0, 255, (1, 1), np.uint8)))
    assert image.reset().dtype == np.float32


def test_flags_are_plain_bools():
    task = open_task(Scripted(rewards=(np.float32(2),)))
    task.reset()
    _, reward, terminated, truncated = task.step([0.0])
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert (reward, terminated, truncated) == (2.0, False, True)


def test_close_reaches_the_environment():
    env = Scripted()
    open_task(env).close()
    assert env.closed


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            "Pendulm-v1",
            "'Pendulm-v1' is not a registered.*it may mean Pendulum-v1 .*my_module:My-v0",
        ),
        ("Pendulum-v7", "'Pendulum-v7' is not a registered Gymnasium id; it may mean Pendulum-v1"),
        ("phimu/FourRoom-v0", "it may mean phimu/FourRooms-v0"),
        ("nothing/Like-v0", "is not a registered Gymnasium id; if it is your own"),
        ("not an id", "'not an id' is not a registered Gymnasium id"),
        ("", "'' is not a registered Gymnasium id"),
        ("no_such_module:My-v0", "module 'no_such_module', which cannot be imported"),
        ("HalfCheetah-v2", "'HalfCheetah-v2' cannot be opened: .*gymnasium-robotics"),
        (3, "task must be a Gymnasium id or a gymnasium.Env, not a int"),
        (object(), "task must be a Gymnasium id or a gymnasium.Env, not a object"),
    ],
)
def test_a_task_that_cannot_be_opened(task, message):
    with pytest.raises(InputError, match=message):
        open_task(task)


@pytest.mark.filterwarnings("ignore:.*infinity")
@pytest.mark.parametrize(
    ("spaces", "message"),
    [
        ({"act": Box(-np.inf, np.inf, (2,))}, "Scripted has Box.*TransformAction"),
        ({"act": Box(np.float32([-1, 0]), np.float32([1, np.inf]))}, "bounded Box action space"),
        ({"act": Box(0, 3, (2,), np.int64)}, "wrap it to take a vector of floats"),
        ({"act": Box(-1.0, 1.0, ())}, "wrap it to take a vector of floats"),
        ({"act": Dict(a=ACT)}, "bounded Box action space of floats, but Scripted has Dict"),
        ({"act": MultiDiscrete([2, 3])}, r"has MultiDiscrete\(\[2 3\]\); wrap it to take one int"),
        ({"act": MultiBinary(2)}, r"has MultiBinary\(2\); wrap it to take one integer"),
        ({"see": Sequence(SEE)}, "but Scripted has Sequence.*; wrap it"),
        ({"see": Dict(a=SEE, b=Text(3))}, "but Scripted has Dict.*; wrap it"),
        ({"see": Dict()}, "with something to see"),
        ({"see": Box(0.0, 1.0, (0,))}, "with something to see"),
    ],
)
def test_spaces_that_cannot_be_used(spaces, message):
    with pytest.raises(InputError, match=message):
        open_task(Scripted([np.zeros(1)], **spaces))


def test_flattening_as_advised_works():
    env = Scripted([{"a": np.ones(3), "b": 1}], see=Dict(a=SEE, b=Discrete(2)))
    task = open_task(gymnasium.wrappers.FlattenObservation(env))
    np.testing.assert_array_equal(task.reset(), [1, 1, 1, 0, 1])


def test_arguments_that_the_environment_does_not_take():
    with pytest.raises(InputError, match=r"does not accept 'gravity'; its own arguments are .*g"):
        open_task("Pendulum-v1", gravity=3.0)
    with pytest.raises(InputError, match="noise must be a standard deviation"):
        open_task("phimu/FourRooms-v0", noise=-1.0)
    with pytest.raises(InputError, match="g can be given only with a task id"):
        open_task(gymnasium.make("Pendulum-v1"), g=3.0)


def test_a_fault_within_the_environment_is_not_blamed_on_the_user():
    class Faulty(Scripted):
        def __init__(self):
            raise TypeError("a fault of its own")

    gymnasium.register("test/Faulty-v0", Faulty)
    try:
        with pytest.raises(TypeError, match="a fault of its own"):
            open_task("test/Faulty-v0")
    finally:
        del gymnasium.registry["test/Faulty-v0"]


@pytest.mark.parametrize(
    ("observations", "rewards", "message"),
    [
        ([[0, np.nan, 0]], [0], r"observation\[1\] is nan at the reset of the episode in Scripted"),
        ([[0] * 3] * 2 + [[0, 0, -np.inf]], [0], r"observation\[2\] is -inf after step 2 of the"),
        ([[0] * 3, [1e300, 0, 0]], [0], r"observation\[0\] is inf after step 1 .* float32"),
        ([[0] * 3], [0, 0, np.nan], "reward is nan after step 3 of the episode in Scripted"),
        ([[0] * 3], [np.inf], "reward is inf after step 1"),
        ([[0] * 4], [0], "observation has 4 numbers at the reset.*observation_space says 3"),
    ],
)
def test_numbers_that_are_not_finite_are_named(observations, rewards, message):
    task = open_task(Scripted([np.array(o, np.float64) for o in observations], rewards))

    def run():
        task.reset()
        for _ in range(3):
            task.step([0.0])

    for _ in range(2):  # the count begins anew with each episode
        with pytest.raises(InputError, match=message):
            run()


def test_broken_actions_are_named():
    task = open_task(Scripted())
    task.reset()
    with pytest.raises(InputError, match=r"action\[0\] is nan after step 1"):
        task.step([np.nan])
    with pytest.raises(InputError, match="action has 2 numbers, but Scripted takes 1"):
        task.step([0.0, 0.0])


@pytest.mark.parametrize(
    ("package", "task", "command"),
    [
        ("mujoco", "HalfCheetah-v5", 'package mujoco; to get it, run: pip install "phimu[mujoco]"'),
        ("Box2D", "LunarLander-v3", 'package Box2D; to get it, run: pip install "phimu[box2d]"'),
    ],
)
def test_a_missing_package_is_named_with_its_command(package, task, command, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.")]:
        if "mujoco" in name or "box2d" in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # makes `import` fail
    with pytest.raises(InputError) as raised:
        open_task(task)
    assert command in str(raised.value)


def test_opening_a_mujoco_task_says_nothing_and_leaves_no_log(tmp_path):
    pytest.importorskip("mujoco")
    script = """
        from phimu.environments.task import open_task
        task = open_task("HalfCheetah-v5")
        task.reset(0)
        print(task.spec.observation_dim, task.spec.action_dim)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu", "MUJOCO_GL": "disabled"},
    )
    assert (done.stdout, done.stderr) == ("17 6\n", "")
    assert list(tmp_path.iterdir()) == []


def test_the_advice_on_unbounded_actions_helps():
    env = Scripted(act=Box(-np.inf, np.inf, (2,)))
    with pytest.raises(InputError) as refused:
        open_task(env)
    (advice,) = re.findall(r"gymnasium\.wrappers\.TransformAction\(.*\)\)", str(refused.value))
    wrapped = eval(advice, {"gymnasium": gymnasium, "env": env})  # noqa: S307 (our own text)
    task = open_task(wrapped)
    task.reset(0)
    task.step([0.5, -0.5])
    np.testing.assert_array_equal(env.actions, [[0.5, -0.5]])


@pytest.mark.parametrize(
    ("reward", "sentence"),
    [
        (np.ones(1), r"reward has shape \(1,\) after step 1 .* one number, such as float"),
        ([1.0, 2.0], r"reward has shape \(2,\) after step 1"),
        (None, "reward is None after step 1 .* finite float32 rewards"),
        ("much", "reward is much after step 1"),
    ],
)
def test_a_reward_that_is_no_number_is_named(reward, sentence):
    task = open_task(Scripted(rewards=(reward,)))
    task.reset(0)
    with pytest.raises(EnvironmentFault, match=sentence):
        task.step([0.0])


def test_a_reward_may_be_a_number_of_numpy():
    task = open_task(Scripted(rewards=(np.float32(0.5), np.array(2.0))))
    task.reset(0)
    assert [task.step([0.0])[1] for _ in range(2)] == [0.5, 2.0]


def test_the_old_interface_of_gym_is_named():
    class Old(Scripted):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0] if seed == 1 else super().reset(seed=seed)

        def step(self, action):
            observation, reward, _, done, info = super().step(action)
            return observation, reward, done, info

    task = open_task(Old())
    with pytest.raises(EnvironmentFault, match="reset of Old returned ndarray; it must return obs"):
        task.reset(1)
    task.reset(0)
    with pytest.raises(EnvironmentFault, match="step of Old returned 4 things; it must return obs"):
        task.step([0.0])


def test_what_an_environment_raises_is_its_own_with_a_note():
    class Broken(Scripted):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed) if seed else {}["start"]

        def step(self, action):
            return 1 / 0

    task = open_task(Broken())
    with pytest.raises(KeyError) as raised:
        task.reset(0)
    assert raised.value.__notes__ == ["Broken raised KeyError ('start') in its reset."]
    task.reset(1)
    with pytest.raises(ZeroDivisionError) as raised:
        task.step([0.0])
    (note,) = raised.value.__notes__
    assert note == "Broken raised ZeroDivisionError (division by zero) in step 1 of the episode."
    assert by_environment(raised.value)
    where = environment_traceback(raised.value)
    assert where is not None
    assert where.tb_frame.f_code.co_filename == __file__


@pytest.mark.parametrize("value", ["abc", None, [1]])
def test_an_option_that_is_no_number_where_one_is_wanted(value):
    with pytest.raises(InputError, match=r"option g is .*, but Pendulum-v1 has a number there, by"):
        open_task("Pendulum-v1", g=value)
    assert open_task("Pendulum-v1", g=9).env.unwrapped.g == 9


def test_the_time_limit_is_that_of_the_id_or_of_the_wrapper():
    assert open_task("Pendulum-v1").time_limit == 200
    assert open_task(Scripted()).time_limit is None
    limited = gymnasium.wrappers.TimeLimit(Scripted(), 17)
    assert open_task(gymnasium.wrappers.RecordEpisodeStatistics(limited)).time_limit == 17


def test_the_suite_of_an_id_needs_no_simulator():
    script = (
        "import sys; sys.modules['mujoco'] = sys.modules['dm_control'] = None\n"
        "import phimu.environments\n"
        "from phimu.environments.task import suite_of\n"
        "ids = 'Hopper-v5', 'mbbl/HalfCheetah-v0', 'dmc/walker-run-v0', 'phimu/FourRooms-v0'\n"
        "print(*map(suite_of, ids))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["gymnasium", "mbbl", "dmc", "phimu"], done.stderr
